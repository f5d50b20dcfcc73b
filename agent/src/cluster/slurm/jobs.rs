//! Lists the running jobs of a node by `squeue -w`, and requeues jobs by `scontrol requeue`.

use std::collections::BTreeSet;

use super::error::SlurmError;
use super::{Controller, command};

/// Maximum number of jobs named in a sentence. Further jobs are only counted.
const NAMED: usize = 5;
/// Id, number, user, state and time left (squeue(1), OPTIONS).
const FORMAT: &str = "%i|%A|%u|%T|%L";

/// A job, with the fields useful for a waiting operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningJob {
    id: String,
    /// The number of the task of an array differs from the id.
    number: String,
    user: String,
    state: String,
    /// Time left until the time limit, in the format of squeue: `1-02:03:04`, `UNLIMITED`.
    left: String,
}

impl Controller {
    /// Requeues the jobs of a drained node that have not ended, each once. `batch` has the numbers of
    /// the jobs that the controller requeues, read before the list of jobs.
    ///
    /// # Errors
    /// [`SlurmError::Refused`] if one of the jobs cannot be requeued. No job is requeued then.
    pub(super) async fn requeue(
        &self,
        jobs: &[RunningJob],
        batch: &BTreeSet<&str>,
        requeued: &mut BTreeSet<String>,
    ) -> Result<(), SlurmError> {
        for job in find_open(jobs, batch, requeued)? {
            self.scontrol(&["requeue", "Incomplete", &job.id]).await?;
            requeued.insert(job.id.clone());
        }
        Ok(())
    }

    /// Returns the running and completing jobs of the node.
    pub(super) async fn jobs_on(&self, name: &str) -> Result<Vec<RunningJob>, SlurmError> {
        let arguments = ["-h", "-w", name, "-o", FORMAT];
        match command::run(
            &self.cluster.conf,
            "squeue",
            &arguments,
            self.limits.command,
        )
        .await
        {
            Ok(text) => parse(&text),
            Err(SlurmError::Refused { said, .. }) if said.contains("Invalid node name") => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the jobs still to be requeued. `scontrol requeue` of a completing job would start the job
/// again.
///
/// # Errors
/// [`SlurmError::Refused`] if one of the jobs cannot be requeued.
fn find_open<'a>(
    jobs: &'a [RunningJob],
    batch: &BTreeSet<&str>,
    requeued: &BTreeSet<String>,
) -> Result<Vec<&'a RunningJob>, SlurmError> {
    let runs = |job: &&RunningJob| ["RUNNING", "SUSPENDED"].contains(&job.state.as_str());
    let is_new = |job: &&RunningJob| !requeued.contains(&job.id);
    let open: Vec<&RunningJob> = jobs.iter().filter(runs).filter(is_new).collect();
    let stays = |job: &&&RunningJob| !is_id(&job.id) || !batch.contains(job.number.as_str());
    match open.iter().find(stays) {
        Some(job) => Err(SlurmError::Refused {
            command: format!("scontrol requeue {}", job.id),
            said: "the job is interactive, or was submitted with --no-requeue".to_owned(),
        }),
        None => Ok(open),
    }
}

fn parse(text: &str) -> Result<Vec<RunningJob>, SlurmError> {
    let job = |line: &str| {
        let mut parts = line.trim().splitn(5, '|').map(str::to_owned);
        Some(RunningJob {
            id: parts.next()?,
            number: parts.next()?,
            user: parts.next()?,
            state: parts.next()?,
            left: parts.next()?,
        })
    };
    text.lines()
        .map(|line| {
            job(line).ok_or_else(|| SlurmError::Garbage {
                what: format!("squeue printed {line:?}"),
            })
        })
        .collect()
}

/// Returns whether the text is the id of a job, or of a task of an array (`18_4`). No other text
/// becomes an argument of a program. slurmctld requeues no part of a heterogeneous job (`20+1`).
pub(super) fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    text.starts_with(|first: char| first.is_ascii_digit()) && text.bytes().all(allowed)
}

/// Describes the jobs in a short sentence.
pub(super) fn sentence(jobs: &[RunningJob], requeued: &BTreeSet<String>) -> String {
    let describe = |job: &RunningJob| {
        let told = match requeued.contains(&job.id) {
            true => "; requeued",
            false => "",
        };
        format!("{} of {} ({} left{told})", job.id, job.user, job.left)
    };
    let named: Vec<String> = jobs.iter().take(NAMED).map(describe).collect();
    let more = jobs.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("job {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_runs() {
        let jobs = parse("17|17|alice|RUNNING|3:20\n18_4|22|bob|RUNNING|UNLIMITED\n").unwrap();
        let requeued = BTreeSet::new();
        assert_eq!(
            sentence(&jobs, &requeued),
            "job 17 of alice (3:20 left), 18_4 of bob (UNLIMITED left)"
        );
        let many = sentence(&vec![jobs[0].clone(); 7], &requeued);
        assert_eq!(many.matches("17").count(), 5);
        assert!(many.ends_with("and 2 more"));
        assert!(parse("nonsense\n").is_err());
        assert_eq!(
            sentence(&jobs, &BTreeSet::from(["18_4".to_owned()])),
            "job 17 of alice (3:20 left), 18_4 of bob (UNLIMITED left; requeued)"
        );
    }

    #[test]
    fn running_and_suspended_jobs_are_requeued_once_and_all_or_none() {
        let text = "17|17|alice|RUNNING|3:20\n18_4|22|bob|SUSPENDED|UNLIMITED\n\
                    19|19|eve|COMPLETING|1:00\n";
        let jobs = parse(text).unwrap();
        let open = |batch: &[&str], requeued: &[&str]| {
            let batch = batch.iter().copied().collect();
            let requeued = requeued.iter().map(|id| (*id).to_owned()).collect();
            let open = find_open(&jobs, &batch, &requeued).ok()?;
            Some(open.iter().map(|job| job.id.as_str()).collect::<Vec<_>>())
        };
        assert_eq!(open(&["17", "22", "19"], &[]), Some(vec!["17", "18_4"]));
        assert_eq!(open(&["17", "22"], &["17"]), Some(vec!["18_4"]));
        assert_eq!(open(&["17", "19"], &[]), None, "job 18_4 stays");
        let parts = parse("20+1|24|eve|RUNNING|1:00\n").unwrap();
        assert!(find_open(&parts, &BTreeSet::from(["24"]), &BTreeSet::new()).is_err());
    }

    #[test]
    fn other_texts_are_no_ids() {
        assert!(["17", "18_4"].into_iter().all(is_id));
        let others = ["", "-a", "17,18", "_1", "17 18", "all", "20+1"];
        assert!(!others.into_iter().any(is_id));
    }
}
