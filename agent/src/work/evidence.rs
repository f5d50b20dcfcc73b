//! Copies BMC evidence of a failed job into the log of the job: event log entries and unhealthy
//! sensors. The evidence is often the only explanation for a dead machine. The collection is best
//! effort and never changes the failure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::wire::bmc::Power;
use muster_core::wire::job::JobSpec;

use super::context::JobContext;
use crate::bmc::{Bmc, EventEntry, Sensor};

const DEADLINE: Duration = Duration::from_secs(10);
const ENTRIES: usize = 50;
/// Maximum number of unhealthy sensors reported.
const SENSORS: usize = 20;
const LINE_CHARS: usize = 300;
/// Tolerance for the clock of a BMC, which is set by hand or not at all. Entries may be older than
/// the job by this time.
const SLACK: SignedDuration = SignedDuration::from_mins(1);

/// Adds the new event log entries and the unhealthy sensors of the BMC to the log of the job.
pub(super) async fn collect(context: &JobContext) {
    let bmc = match power_of(&context.job.spec) {
        Some(Power::Redfish(target)) => context.agent.bmcs.open(target, context.job.id),
        Some(Power::Ipmi(target)) => context.agent.bmcs.open(target, context.job.id),
        Some(Power::Manual { .. }) | None => return,
    };
    let Ok(bmc) = bmc else { return };
    // Reads entries of any time. The selection happens here, where a wrong clock can be reported.
    match tokio::time::timeout(DEADLINE, bmc.event_log(ENTRIES)).await {
        Ok(Ok(entries)) => lines(&entries, context.began)
            .into_iter()
            .for_each(|line| context.voice.log(line)),
        Ok(Err(error)) => {
            context.voice.log(shortened(format!(
                "the BMC's event log cannot be read: {error}"
            )));
            if !error.is_refusal() {
                return;
            }
        }
        Err(_late) => {
            let late = format!(
                "the BMC's event log did not come within {} s",
                DEADLINE.as_secs()
            );
            return context.voice.log(late);
        }
    }
    if let Ok(lines) = tokio::time::timeout(DEADLINE, health(&bmc)).await {
        lines.into_iter().for_each(|line| context.voice.log(line));
    }
}

/// Returns the unhealthy sensors and the power drawn, or an empty list for a BMC without readings.
async fn health(bmc: &Bmc) -> Vec<String> {
    let (watts, sensors) = (
        bmc.power_watts().await.ok(),
        bmc.sensors().await.unwrap_or_default(),
    );
    if watts.is_none() && sensors.is_empty() {
        return Vec::new();
    }
    let unwell: Vec<&Sensor> = sensors
        .iter()
        .filter(|sensor| {
            sensor
                .health
                .as_deref()
                .is_some_and(|health| health != "OK")
        })
        .collect();
    let drawn = watts.map_or_else(
        || "power not measured".into(),
        |watts| format!("{watts} W drawn"),
    );
    let summary = format!(
        "BMC sensors: {} read, {} not OK; {drawn}",
        sensors.len(),
        unwell.len()
    );
    let told = unwell.into_iter().take(SENSORS).map(
        |Sensor {
             name,
             reading,
             unit,
             health,
         }| {
            shortened(format!(
                "BMC sensor {name}: {reading} {unit}, {}",
                health.as_deref().unwrap_or_default()
            ))
        },
    );
    std::iter::once(summary).chain(told).collect()
}

/// Returns the power control of the job.
fn power_of(spec: &JobSpec) -> Option<&Power> {
    match spec {
        JobSpec::BootLive(boot) => Some(&boot.power),
        JobSpec::Firmware(order) => Some(&order.power),
        JobSpec::PowerOff { power, .. }
        | JobSpec::PowerOn { power, .. }
        | JobSpec::PowerCycle { power, .. }
        | JobSpec::BootDisk { power, .. }
        | JobSpec::Reboot { power, .. } => Some(power),
        JobSpec::Inventory { .. }
        | JobSpec::WriteImage { .. }
        | JobSpec::Converge { .. }
        | JobSpec::Gates { .. }
        | JobSpec::Admit { .. }
        | JobSpec::Drain { .. }
        | JobSpec::Remove { .. }
        | JobSpec::Adopt(_)
        // The job changes the password, so the valid password is unknown after a failure.
        | JobSpec::RotateBmc(_)
        | JobSpec::Pair(_)
        | JobSpec::Wipe { .. } => None,
    }
}

fn lines(entries: &[EventEntry], began: Timestamp) -> Vec<String> {
    let after = began.saturating_sub(SLACK).unwrap_or(began);
    let (old, fresh): (Vec<&EventEntry>, Vec<&EventEntry>) = entries
        .iter()
        .partition(|entry| entry.at.is_some_and(|at| at < after));
    match (fresh.is_empty(), old.last()) {
        (false, _) => fresh.into_iter().map(line).collect(),
        (true, Some(last)) => {
            vec![
                "the BMC logged nothing since this job began, by its own clock; its last entry:"
                    .into(),
                line(last),
            ]
        }
        (true, None) => vec!["the BMC's event log is empty".into()],
    }
}

fn line(entry: &EventEntry) -> String {
    let at = entry
        .at
        .map_or_else(|| "without a time".into(), |at| at.to_string());
    let severity = entry.severity.as_deref().unwrap_or("no severity");
    shortened(format!(
        "BMC event log, {at}: {severity}: {}",
        entry.message
    ))
}

fn shortened(line: String) -> String {
    match line.chars().nth(LINE_CHARS) {
        Some(_) => line.chars().take(LINE_CHARS - 1).chain(['…']).collect(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: Option<&str>, message: &str) -> EventEntry {
        let at = at.map(|at| at.parse().unwrap());
        EventEntry {
            id: "1".into(),
            at,
            severity: Some("Critical".into()),
            message: message.into(),
        }
    }

    #[test]
    fn what_was_logged_during_the_job_is_told_and_a_wrong_clock_shows() {
        let old = entry(Some("2026-01-01T00:00:00Z"), "PSU lost");
        let fresh = entry(Some("2026-01-05T07:59:30Z"), &"x".repeat(5000));
        let timeless = entry(None, "CPU IERR");
        let began = "2026-01-05T08:00:00Z".parse().unwrap();
        let told = lines(&[old.clone(), fresh, timeless], began);
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("BMC event log, 2026-01-05T07:59:30Z: Critical: xxx"));
        assert_eq!(told[0].chars().count(), LINE_CHARS);
        assert_eq!(told[1], "BMC event log, without a time: Critical: CPU IERR");
        let told = lines(&[old], began);
        assert!(told[0].contains("by its own clock") && told[1].ends_with("PSU lost"));
        assert_eq!(lines(&[], began), ["the BMC's event log is empty"]);
    }
}
