//! Detached jobs, which outlive the SSH connection and the agent that started the job.
//!
//! A job is alive exactly while the job's process holds the lock; process ids are never trusted.
//! Each lines file belongs to one process. A restart moves the old file aside, so an attach never
//! mixes two processes.

pub mod attach; // Follows a job's lines
pub mod context; // Context of a running job: lines, deadline, cancellation
pub mod detach; // Starts a process that outlives muster-node
pub mod fence; // Refuses plans of an older epoch
pub mod lock; // One job at a time; also the proof of life
pub mod requests; // answer and cancel
pub mod spool; // The job's folder
pub mod start; // The verb `run`

pub use attach::attach;
pub use context::JobContext;
pub use requests::{answer, cancel};
pub use spool::{Spool, parse_job};
pub use start::run;
