//! Options for the age of kept records (docs/retention.md).

use muster_server::retention::Retention;

/// The age of kept records, in days. The shortest ages protect late agents and webhooks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RetentionArgs {
    /// Age of the events kept in the database. Older events are exported to the data directory and
    /// removed.
    #[arg(long, env = "MUSTER_KEEP_EVENTS_DAYS", value_name = "DAYS",
        default_value_t = Retention::DEFAULT.events_days, value_parser = clap::value_parser!(u32).range(30..=36500))]
    pub keep_events_days: u32,
    /// Age of kept evidence of gates. The last passed run of each suite of a node stays.
    #[arg(long, env = "MUSTER_KEEP_EVIDENCE_DAYS", value_name = "DAYS",
        default_value_t = Retention::DEFAULT.evidence_days, value_parser = clap::value_parser!(u32).range(7..=36500))]
    pub keep_evidence_days: u32,
    /// Age of kept inventories. The newest and the first of each node stay.
    #[arg(long, env = "MUSTER_KEEP_FACTS_DAYS", value_name = "DAYS",
        default_value_t = Retention::DEFAULT.facts_days, value_parser = clap::value_parser!(u32).range(7..=36500))]
    pub keep_facts_days: u32,
    /// Age of kept logs, after the end of the job.
    #[arg(long, env = "MUSTER_KEEP_JOB_LOGS_DAYS", value_name = "DAYS",
        default_value_t = Retention::DEFAULT.job_logs_days, value_parser = clap::value_parser!(u32).range(7..=36500))]
    pub keep_job_logs_days: u32,
    /// Age of kept output of consoles.
    #[arg(long, env = "MUSTER_KEEP_CONSOLES_DAYS", value_name = "DAYS",
        default_value_t = Retention::DEFAULT.consoles_days, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub keep_consoles_days: u32,
    #[command(flatten)]
    pub unused_blobs: UnusedBlobsArgs,
}

/// The grace time of unused blobs. The shortest time is longer than any job.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct UnusedBlobsArgs {
    /// Time for which a stored blob stays after the end of the last use: no image, stack, site or
    /// revision names the blob, and no client has asked for the blob.
    #[arg(long, env = "MUSTER_KEEP_UNUSED_BLOBS_DAYS", value_name = "DAYS",
        default_value_t = Retention::DEFAULT.unused_blobs_days, value_parser = clap::value_parser!(u32).range(7..=36500))]
    pub keep_unused_blobs_days: u32,
}

impl RetentionArgs {
    /// The settings of the replica.
    pub(crate) fn read(&self) -> Retention {
        Retention {
            events_days: self.keep_events_days,
            evidence_days: self.keep_evidence_days,
            facts_days: self.keep_facts_days,
            job_logs_days: self.keep_job_logs_days,
            consoles_days: self.keep_consoles_days,
            unused_blobs_days: self.unused_blobs.keep_unused_blobs_days,
        }
    }
}
