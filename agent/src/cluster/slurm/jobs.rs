//! Lists the running jobs of a node by `squeue -w`, and requeues jobs by `scontrol requeue`.

use std::collections::BTreeMap;

use super::error::SlurmError;
use super::{Controller, command};

/// Maximum number of jobs named in a sentence. Further jobs are only counted.
const NAMED: usize = 5;

/// A job, with the fields useful for a waiting operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningJob {
    id: String,
    user: String,
    /// Time left until the time limit, in the format of squeue: `1-02:03:04`, `UNLIMITED`.
    left: String,
}

/// Jobs that the controller was asked to requeue, with the answer of a refusal.
#[derive(Clone, Debug, Default)]
pub(super) struct Requeued(BTreeMap<String, Option<String>>);

impl Controller {
    /// Asks the controller once to requeue each job. The controller refuses interactive jobs, jobs
    /// submitted with `--no-requeue`, and jobs that have just ended.
    pub(super) async fn requeue(
        &self,
        jobs: &[RunningJob],
        requeued: &mut Requeued,
    ) -> Result<(), SlurmError> {
        for job in jobs {
            if requeued.0.contains_key(&job.id) {
                continue;
            }
            let refusal = match is_id(&job.id) {
                false => Some("the id is not the id of a job".to_owned()),
                true => match self.scontrol(&["requeue", &job.id]).await {
                    Ok(_) => None,
                    Err(SlurmError::Refused { said, .. }) => Some(said),
                    Err(error) => return Err(error),
                },
            };
            requeued.0.insert(job.id.clone(), refusal);
        }
        Ok(())
    }

    /// Returns the running and completing jobs of the node.
    pub(super) async fn jobs_on(&self, name: &str) -> Result<Vec<RunningJob>, SlurmError> {
        let arguments = ["-h", "-w", name, "-o", "%i|%u|%L"];
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

fn parse(text: &str) -> Result<Vec<RunningJob>, SlurmError> {
    let job = |line: &str| {
        let mut parts = line.trim().splitn(3, '|').map(str::to_owned);
        let (id, user, left) = (parts.next()?, parts.next()?, parts.next()?);
        Some(RunningJob { id, user, left })
    };
    text.lines()
        .map(|line| {
            job(line).ok_or_else(|| SlurmError::Garbage {
                what: format!("squeue printed {line:?}"),
            })
        })
        .collect()
}

/// Returns whether the text is the id of a job, of a task of an array (`18_4`), or of a part of a
/// heterogeneous job (`20+1`). No other text becomes an argument of a program.
fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_digit() || b"_+".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_digit()) && text.bytes().all(allowed)
}

/// Describes the jobs in a short sentence.
pub(super) fn sentence(jobs: &[RunningJob], requeued: &Requeued) -> String {
    let describe = |job: &RunningJob| {
        let refused = match requeued.0.get(&job.id) {
            Some(Some(said)) => format!("; not requeued: {}", said.trim()),
            Some(None) => "; requeued".to_owned(),
            None => String::new(),
        };
        format!("{} of {} ({} left{refused})", job.id, job.user, job.left)
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
        let jobs = parse("17|alice|3:20\n18_4|bob|UNLIMITED\n").unwrap();
        let mut requeued = Requeued::default();
        assert_eq!(
            sentence(&jobs, &requeued),
            "job 17 of alice (3:20 left), 18_4 of bob (UNLIMITED left)"
        );
        let many = sentence(&vec![jobs[0].clone(); 7], &requeued);
        assert_eq!(many.matches("17").count(), 5);
        assert!(many.ends_with("and 2 more"));
        assert!(parse("nonsense\n").is_err());
        let refusal = "Only batch jobs are accepted or processed for job 17\n";
        requeued.0.insert("17".into(), Some(refusal.into()));
        requeued.0.insert("18_4".into(), None);
        assert_eq!(
            sentence(&jobs, &requeued),
            "job 17 of alice (3:20 left; not requeued: Only batch jobs are accepted or processed \
             for job 17), 18_4 of bob (UNLIMITED left; requeued)"
        );
    }

    #[test]
    fn other_texts_are_no_ids() {
        assert!(["17", "18_4", "20+1"].into_iter().all(is_id));
        assert!(
            !["", "-a", "17,18", "_1", "17 18", "all"]
                .into_iter()
                .any(is_id)
        );
    }
}
