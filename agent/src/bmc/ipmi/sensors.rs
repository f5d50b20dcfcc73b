//! Parses sensors as printed by `ipmitool -c sdr list full`: name, reading, unit, state.

use crate::bmc::error::shortened;
use crate::bmc::evidence::Sensor;

/// Maximum number of sensors read from a BMC.
const SENSORS: usize = 500;

/// Returns the number of records in the repository, from the output of `ipmitool sdr info`.
pub(super) fn records(said: &str) -> Option<u32> {
    let count = said.lines().find_map(|line| {
        line.trim()
            .strip_prefix("Record Count")?
            .trim()
            .strip_prefix(':')
    })?;
    count.trim().parse().ok()
}

/// Returns every sensor with a reading. Absent and disabled sensors have no reading and are
/// skipped.
pub(super) fn readings(said: &str) -> Vec<Sensor> {
    said.lines().filter_map(reading).take(SENSORS).collect()
}

/// Parses a line from the right, because the sensor name can contain commas and the other columns
/// cannot.
fn reading(line: &str) -> Option<Sensor> {
    let mut columns = line.rsplitn(4, ',').map(str::trim);
    let (state, unit, reading, name) = (
        columns.next()?,
        columns.next()?,
        columns.next()?,
        columns.next()?,
    );
    let reading: f64 = reading
        .parse()
        .ok()
        .filter(|reading: &f64| reading.is_finite())?;
    let health = match state {
        "ok" => Some("OK"),
        // The reading exceeds the non-critical, critical or non-recoverable threshold (IPMI 2.0,
        // section 35.14).
        "nc" => Some("Warning"),
        "cr" | "nr" => Some("Critical"),
        _ => None,
    };
    let unit = match unit {
        "degrees C" => "Cel",
        "Volts" => "V",
        "Amps" => "A",
        "Watts" => "W",
        "percent" => "%",
        other => other,
    };
    Some(Sensor {
        name: shortened(name),
        reading,
        unit: shortened(unit),
        health: health.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_ipmitool_prints_them() {
        let said = "Inlet Temp,24,degrees C,ok\nFan 1,0,RPM,cr\nPSU, left,11.900,Volts,nc\nFan 2,,,ns\nIntrusion,0x00,discrete,ok\n\n,,,\nx,NaN,RPM,ok\n";
        let sensor = |name: &str, reading, unit: &str, health: &str| Sensor {
            name: name.into(),
            reading,
            unit: unit.into(),
            health: Some(health.into()),
        };
        let read = [
            sensor("Inlet Temp", 24.0, "Cel", "OK"),
            sensor("Fan 1", 0.0, "RPM", "Critical"),
            sensor("PSU, left", 11.9, "V", "Warning"),
        ];
        assert_eq!(readings(said), read);
        assert_eq!(
            records(
                "SDR Version                         : 0x51\nRecord Count                        : 2\n"
            ),
            Some(2)
        );
        assert_eq!((records("Record Count : none"), records("")), (None, None));
    }
}
