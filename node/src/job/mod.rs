//! Detached jobs: they outlive the SSH connection and the agent that started them.
//!
//! A job is alive exactly while its process holds the one lock; no process id is ever trusted. Its lines file belongs to one process: a restart
//! moves it aside, so an attach never mixes two.

pub mod attach; // Follows a job's lines
pub mod context; // What a running job is given
pub mod detach; // Starts a process that outlives us
pub mod fence; // Refuses what an older epoch sends
pub mod lock; // One job at a time; also the proof of life
pub mod requests; // answer and cancel
pub mod spool; // The job's folder
pub mod start; // The verb `run`

pub use attach::attach;
pub use context::JobContext;
pub use requests::{answer, cancel};
pub use spool::{Spool, parse_job};
pub use start::run;
