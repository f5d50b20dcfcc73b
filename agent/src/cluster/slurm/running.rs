//! Lists the jobs that use nodes, for a whole cluster by two calls of `squeue`, and the jobs that the
//! controller requeues.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use muster_core::wire::scheduler::ClusterJob;

use super::error::SlurmError;
use super::hostlist::expand;
use super::jobs::is_id;
use super::{Controller, command};

/// Id, number, user, state, time limit, end and nodes (squeue(1), OPTIONS). The task of an array has
/// an id (`4_1`) and a number of its own.
const FORMAT: &str = "%i|%A|%u|%T|%l|%e|%N";
/// Number, batch flag and requeue flag, padded by spaces (squeue(1), OPTIONS).
const FLAGS: &str = "JobID:.20|,BatchFlag:.4|,Requeue:.4";
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
        let jobs = self.list_jobs(&["-o", FORMAT]).await?;
        read(&jobs, &read_requeued(&self.list_flags(&[]).await?))
    }

    /// Returns the flags of the jobs, for [`read_requeued`]. Empty if this version of Slurm does not
    /// print the flags.
    pub(super) async fn list_flags(&self, only: &[&str]) -> Result<String, SlurmError> {
        match self.list_jobs(&[only, &["-O", FLAGS]].concat()).await {
            Err(SlurmError::Refused { .. }) => Ok(String::new()),
            result => result,
        }
    }

    async fn list_jobs(&self, options: &[&str]) -> Result<String, SlurmError> {
        // Jobs of other clusters of a federation use other nodes.
        let common = ["--local", "-a", "-h", "-t", STATES];
        let arguments = [&common, options].concat();
        let conf = &self.cluster.conf;
        command::run(conf, "squeue", &arguments, self.limits.command).await
    }
}

/// Returns the numbers of the jobs that the controller requeues on request: batch jobs submitted
/// without `--no-requeue` (slurmctld/job_mgr.c refuses all others). A line with another form is left
/// out.
pub(super) fn read_requeued(text: &str) -> BTreeSet<&str> {
    let jobs = text.lines().filter_map(|line| {
        let mut parts = line.split('|').map(str::trim);
        let number = parts.next()?;
        let flags = (parts.next()?, parts.next()?, parts.next());
        (flags == ("1", "1", None)).then_some(number)
    });
    jobs.collect()
}

/// Parses a line per job. A single line with another form makes the whole list unknown.
fn read(text: &str, requeued: &BTreeSet<&str>) -> Result<Vec<ClusterJob>, SlurmError> {
    let (mut jobs, mut names) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let job = read_line(line, requeued, NAMES - names).ok_or_else(|| SlurmError::Garbage {
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

fn read_line(line: &str, requeued: &BTreeSet<&str>, most: usize) -> Option<ClusterJob> {
    let mut parts = line.trim().splitn(7, '|');
    let mut next = || parts.next();
    let (id, number, user, state) = (next()?, next()?, next()?, next()?);
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
        requeues: is_id(id) && requeued.contains(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by squeue of 22.05.8 (Debian 12) with TZ=UTC0 for jobs with and without a time limit,
    /// an interactive job, an array with a suspended task, and a completing job whose epilog runs.
    const RECORDED: &str = "\
2|2|root|COMPLETING|30:00|2026-11-28T07:34:19|n4
1|1|root|RUNNING|2:00:00|2026-11-28T09:34:18|n[1-3]
3|3|root|RUNNING|UNLIMITED|NONE|n5
4|4|root|RUNNING|5:00|2026-11-28T07:39:18|n6
5_2|5|root|RUNNING|10:00|2026-11-28T07:44:18|n8
6|6|root|RUNNING|30:00|2026-11-28T08:04:18|n9
5_1|7|root|SUSPENDED|10:00|2026-11-28T07:44:18|n7
";
    /// The flags of the same jobs. Job 2 was submitted with --no-requeue, and job 4 by srun.
    const RECORDED_FLAGS: &str = "
                   2|   1|   0
                   1|   1|   1
                   3|   1|   1
                   4|   0|   1
                   5|   1|   1
                   6|   1|   1
                   7|   1|   1
";

    fn jobs(text: &str) -> Result<Vec<ClusterJob>, SlurmError> {
        read(text, &BTreeSet::new())
    }

    #[test]
    fn recorded_jobs_have_their_ends_in_utc_and_their_nodes() {
        let jobs = jobs(RECORDED).unwrap();
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
        let ends = |time: &str| Some(format!("2026-11-28T{time}Z"));
        assert_eq!(
            jobs,
            [
                ("2", "COMPLETING", ends("07:34:19"), "n4".into()),
                ("1", "RUNNING", ends("09:34:18"), "n1 n2 n3".into()),
                ("3", "RUNNING", None, "n5".into()),
                ("4", "RUNNING", ends("07:39:18"), "n6".into()),
                ("5_2", "RUNNING", ends("07:44:18"), "n8".into()),
                ("6", "RUNNING", ends("08:04:18"), "n9".into()),
                ("5_1", "SUSPENDED", None, "n7".into()),
            ]
        );
    }

    #[test]
    fn batch_jobs_are_requeued_unless_submitted_otherwise() {
        let jobs = read(RECORDED, &read_requeued(RECORDED_FLAGS)).unwrap();
        let requeued = jobs.iter().filter(|job| job.requeues);
        let requeued: Vec<&str> = requeued.map(|job| job.id.as_str()).collect();
        assert_eq!(requeued, ["1", "3", "5_2", "6", "5_1"]);
        let part = "20+0|24|root|RUNNING|10:00|2026-11-28T07:44:18|n1\n";
        let parts = read(part, &BTreeSet::from(["24"])).unwrap();
        assert!(!parts[0].requeues, "a part of a heterogeneous job");
        for wrong in ["", "1", "1|1", "1|1|0|1", "1|1|1|1", "1|yes|yes"] {
            assert!(read_requeued(wrong).is_empty(), "{wrong}");
        }
    }

    #[test]
    fn a_line_with_another_form_makes_the_list_unknown() {
        for wrong in [
            "nonsense",
            "1|1|root|RUNNING|10:00|2026-11-26T12:43:16",
            "1|1||RUNNING|10:00|2026-11-26T12:43:16|n1",
            "1|1|root|RUNNING|10:00|tomorrow|n1",
            "1|1|root|RUNNING|10:00|2026-11-26T12:43:16|n[1-",
            "1|1|root|RUNNING|10:00|2026-11-26T12:43:16|n[1-999999]",
        ] {
            let text = format!("{RECORDED}{wrong}\n");
            let found = jobs(&text);
            assert!(
                matches!(found, Err(SlurmError::Garbage { .. })),
                "{wrong}: {found:?}"
            );
        }
        assert_eq!(jobs("").unwrap(), []);
        let left = "9|9|root|COMPLETING|30:00|2026-11-26T12:33:22|\n";
        assert_eq!(jobs(left).unwrap(), []);
        let many = "9|9|root|RUNNING|30:00|NONE|n1\n".repeat(JOBS + 1);
        assert!(jobs(&many).is_err());
    }
}
