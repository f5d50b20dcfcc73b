//! Lists the running jobs of a node by `squeue -w`.

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

impl Controller {
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

/// Describes the jobs in a short sentence.
pub(super) fn sentence(jobs: &[RunningJob]) -> String {
    let named: Vec<String> = jobs
        .iter()
        .take(NAMED)
        .map(|job| format!("{} of {} ({} left)", job.id, job.user, job.left))
        .collect();
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
        assert_eq!(
            sentence(&jobs),
            "job 17 of alice (3:20 left), 18_4 of bob (UNLIMITED left)"
        );
        assert_eq!(sentence(&vec![jobs[0].clone(); 7]).matches("17").count(), 5);
        assert!(sentence(&vec![jobs[0].clone(); 7]).ends_with("and 2 more"));
        assert!(parse("nonsense\n").is_err());
    }
}
