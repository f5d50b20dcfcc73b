//! Lists the jobs that use nodes, for a whole cluster by a single call of `squeue`.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use muster_core::wire::scheduler::ClusterJob;

use super::error::SlurmError;
use super::hostlist::expand;
use super::{Controller, command};

/// Id, user, state, time limit, end and nodes (squeue(1), OPTIONS).
const FORMAT: &str = "%i|%u|%T|%l|%e|%N";
/// States of a job that uses nodes. The filter compares flags as well: `COMPLETING` includes a
/// requeued job whose epilog runs (squeue(1), JOB STATE CODES).
const STATES: &str = "RUNNING,SUSPENDED,COMPLETING";
/// Words of squeue for an unknown end.
const NO_END: [&str; 3] = ["NONE", "N/A", "Unknown"];
/// Largest number of jobs and of names of nodes in a list.
const JOBS: usize = 100_000;
const NAMES: usize = 400_000;

impl Controller {
    /// Returns the jobs that use nodes of the cluster.
    ///
    /// # Errors
    /// [`SlurmError`]; the jobs of all nodes are then unknown.
    pub async fn running_jobs(&self) -> Result<Vec<ClusterJob>, SlurmError> {
        // Jobs of other clusters of a federation use other nodes.
        let arguments = ["--local", "-a", "-h", "-t", STATES, "-o", FORMAT];
        let conf = &self.cluster.conf;
        let text = command::run(conf, "squeue", &arguments, self.limits.command).await?;
        read(&text)
    }
}

/// Parses a line per job. A single line with another form makes the whole list unknown.
fn read(text: &str) -> Result<Vec<ClusterJob>, SlurmError> {
    let (mut jobs, mut names) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let job = read_line(line, NAMES - names).ok_or_else(|| SlurmError::Garbage {
            what: format!("{:?} of squeue", line.chars().take(200).collect::<String>()),
        })?;
        if jobs.len() == JOBS {
            let what = format!("squeue listed more than {JOBS} jobs");
            return Err(SlurmError::Garbage { what });
        }
        names += job.nodes.len();
        jobs.extend(Some(job).filter(|job| !job.nodes.is_empty()));
    }
    Ok(jobs)
}

fn read_line(line: &str, most: usize) -> Option<ClusterJob> {
    let mut parts = line.trim().splitn(6, '|');
    let mut next = || parts.next();
    let (id, user, state) = (next()?, next()?, next()?);
    let (limit, end, nodes) = (next()?, next()?, next()?);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    if user.is_empty() || ![id, state, limit].into_iter().all(is_word) {
        return None;
    }
    let ends = match end {
        // A suspended job ends later than shown: its time limit stands still (slurm_job.c).
        _ if state == "SUSPENDED" || limit == "UNLIMITED" => None,
        end if NO_END.contains(&end) => None,
        // The command runs with UTC.
        end => {
            let ends: DateTime = end.parse().ok()?;
            Some(ends.to_zoned(TimeZone::UTC).ok()?.timestamp())
        }
    };
    // A job can have left its last node already.
    let nodes = match nodes {
        "" | "(null)" => Vec::new(),
        list => expand(list, most)?,
    };
    Some(ClusterJob {
        id: id.to_owned(),
        user: user.to_owned(),
        state: state.to_owned(),
        ends,
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by squeue of 22.05.8 (Debian 12) with TZ=UTC0 for jobs with and without a time limit,
    /// an array, a suspended job, and a completing job whose epilog runs on one of two nodes.
    const RECORDED: &str = "\
6|root|COMPLETING|30:00|2026-11-26T12:33:22|n10
1|root|RUNNING|2:00:00|2026-11-26T14:33:16|n[1-3]
3|root|RUNNING|UNLIMITED|NONE|n5
4_1|root|RUNNING|10:00|2026-11-26T12:43:16|n6
4_2|root|RUNNING|10:00|2026-11-26T12:43:16|n6
8|root|RUNNING|5:00|2026-11-26T12:38:16|n[8-9]
7|root|SUSPENDED|30:00|2026-11-26T13:03:16|n8
";

    #[test]
    fn recorded_jobs_have_their_ends_in_utc_and_their_nodes() {
        let jobs = read(RECORDED).unwrap();
        let jobs: Vec<(&str, &str, Option<String>, String)> = jobs
            .iter()
            .map(|job| {
                let ends = job.ends.map(|ends| ends.to_string());
                (
                    job.id.as_str(),
                    job.state.as_str(),
                    ends,
                    job.nodes.join(" "),
                )
            })
            .collect();
        let ends = |time: &str| Some(format!("2026-11-26T{time}Z"));
        assert_eq!(
            jobs,
            [
                ("6", "COMPLETING", ends("12:33:22"), "n10".into()),
                ("1", "RUNNING", ends("14:33:16"), "n1 n2 n3".into()),
                ("3", "RUNNING", None, "n5".into()),
                ("4_1", "RUNNING", ends("12:43:16"), "n6".into()),
                ("4_2", "RUNNING", ends("12:43:16"), "n6".into()),
                ("8", "RUNNING", ends("12:38:16"), "n8 n9".into()),
                ("7", "SUSPENDED", None, "n8".into()),
            ]
        );
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn a_line_with_another_form_makes_the_list_unknown() {
        for wrong in [
            "nonsense",
            "1|root|RUNNING|10:00|2026-11-26T12:43:16",
            "1||RUNNING|10:00|2026-11-26T12:43:16|n1",
            "1|root|RUNNING|10:00|tomorrow|n1",
            "1|root|RUNNING|10:00|2026-11-26T12:43:16|n[1-",
            "1|root|RUNNING|10:00|2026-11-26T12:43:16|n[1-999999]",
        ] {
            let text = format!("{RECORDED}{wrong}\n");
            let jobs = read(&text);
            assert!(
                matches!(jobs, Err(SlurmError::Garbage { .. })),
                "{wrong}: {jobs:?}"
            );
        }
        let left = "9|root|COMPLETING|30:00|2026-11-26T12:33:22|\n";
        assert_eq!(read(left).unwrap(), []);
        let many = "9|root|RUNNING|30:00|NONE|n1\n".repeat(JOBS + 1);
        assert!(read(&many).is_err());
    }
}
