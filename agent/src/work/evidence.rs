//! What a BMC logged while a job failed, told in the job's own log: often the only word on why a machine died. Best effort; the failure stays
//! what it is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::wire::agent::{BmcTarget, JobSpec, Power};

use super::context::JobContext;
use crate::bmc::{BmcError, EventEntry};

const DEADLINE: Duration = Duration::from_secs(10);
const ENTRIES: usize = 50;
const LINE_CHARS: usize = 300;
/// BMCs' clocks are set by hand or by nobody: so far may they be behind.
const SLACK: SignedDuration = SignedDuration::from_mins(1);

/// Adds what the BMC logged since the job began to the job's log.
pub(super) async fn collect(context: &JobContext) {
    let Some(target) = bmc_of(&context.job.spec) else { return };
    match tokio::time::timeout(DEADLINE, read(context, target)).await {
        Ok(Ok(entries)) => lines(&entries, context.began).into_iter().for_each(|line| context.voice.log(line)),
        Ok(Err(error)) => context.voice.log(shortened(format!("the BMC's event log cannot be read: {error}"))),
        Err(_late) => context.voice.log(format!("the BMC's event log did not come within {} s", DEADLINE.as_secs())),
    }
}

/// The BMC that the job powers its machine through.
fn bmc_of(spec: &JobSpec) -> Option<&BmcTarget> {
    let power = match spec {
        JobSpec::BootLive(boot) => &boot.power,
        JobSpec::PowerOff { power, .. } | JobSpec::BootDisk { power, .. } | JobSpec::Reboot { power, .. } => power,
        JobSpec::Inventory { .. }
        | JobSpec::WriteImage { .. }
        | JobSpec::Converge { .. }
        | JobSpec::Gates { .. }
        | JobSpec::SlurmAdmit { .. }
        | JobSpec::SlurmDrain { .. }
        | JobSpec::SlurmRemove { .. }
        | JobSpec::Adopt(_)
        | JobSpec::Wipe { .. } => return None,
    };
    match power {
        Power::Redfish(target) => Some(target),
        Power::Manual { .. } => None,
    }
}

/// All times: the log is cut here, where a wrong clock can be told.
async fn read(context: &JobContext, target: &BmcTarget) -> Result<Vec<EventEntry>, BmcError> {
    context.agent.bmcs.open(target, context.job.id)?.event_log(None, ENTRIES).await
}

fn lines(entries: &[EventEntry], began: Timestamp) -> Vec<String> {
    let after = began.saturating_sub(SLACK).unwrap_or(began);
    let (old, fresh): (Vec<&EventEntry>, Vec<&EventEntry>) =
        entries.iter().partition(|entry| entry.at.is_some_and(|at| at < after));
    match (fresh.is_empty(), old.last()) {
        (false, _) => fresh.into_iter().map(line).collect(),
        (true, Some(last)) => {
            vec!["the BMC logged nothing since this job began, by its own clock; its last entry:".into(), line(last)]
        }
        (true, None) => vec!["the BMC's event log is empty".into()],
    }
}

fn line(entry: &EventEntry) -> String {
    let at = entry.at.map_or_else(|| "without a time".into(), |at| at.to_string());
    let severity = entry.severity.as_deref().unwrap_or("no severity");
    shortened(format!("BMC event log, {at}: {severity}: {}", entry.message))
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
        EventEntry { id: "1".into(), at, severity: Some("Critical".into()), message: message.into() }
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
