//! Parses the system event log as printed by `ipmitool sel list`.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

use crate::bmc::error::shortened;
use crate::bmc::evidence::EventEntry;

/// Returns the latest `max` entries in the order of the log.
pub(super) fn entries(listed: &str, max: usize) -> Vec<EventEntry> {
    let entries: Vec<EventEntry> = listed.lines().filter_map(entry).collect();
    let old = entries.len().saturating_sub(max);
    entries.into_iter().skip(old).collect()
}

/// Parses `4 | 01/02/26 | 20:30:56 UTC | Temperature #0x30 | Upper Critical going high | Asserted`
fn entry(line: &str) -> Option<EventEntry> {
    let mut columns = line.split('|').map(str::trim);
    let (id, date, time) = (columns.next()?, columns.next()?, columns.next()?);
    let message = columns.collect::<Vec<_>>().join(", ");
    (!id.is_empty() && !message.is_empty()).then(|| EventEntry {
        id: shortened(id),
        at: at(date, time),
        severity: None,
        message: shortened(&message),
    })
}

/// Parses date and time. Returns `None` for entries logged before the clock of the BMC was set
/// (`Pre-Init`).
fn at(date: &str, time: &str) -> Option<Timestamp> {
    let mut parts = date.split('/').map(|part| part.parse::<i16>().ok());
    let (month, day, year) = (parts.next()??, parts.next()??, parts.next()??);
    // ipmitool prints two digits since 1.8.19 and four digits before.
    let year = if year < 100 { 2000 + year } else { year };
    let date = Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    let time: Time = time.split(' ').next()?.parse().ok()?;
    Some(
        date.to_datetime(time)
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_ipmitool_prints_them() {
        let listed = concat!(
            "   1 |  Pre-Init  |0000001118| Power Supply #0x51 | Power Supply AC lost | Asserted\n",
            "   2 | 01/02/26 | 20:30:56 UTC | Temperature #0x30 | Upper Critical going high | Asserted\n",
            "   a | 01/02/2026 | 20:30:57 | Memory #0x10 | Uncorrectable ECC | Asserted\n",
            "SEL has no entries\n 5 | 99/99/99 | 1 |\n",
        );
        let all = entries(listed, 10);
        assert_eq!(all.len(), 3);
        assert_eq!(
            (all[0].at, all[0].message.as_str()),
            (None, "Power Supply #0x51, Power Supply AC lost, Asserted")
        );
        assert_eq!(all[1].at, Some("2026-01-02T20:30:56Z".parse().unwrap()));
        assert_eq!(all[2].at, Some("2026-01-02T20:30:57Z".parse().unwrap()));
        assert_eq!(entries(listed, 1)[0].id, "a", "the latest");
    }
}
