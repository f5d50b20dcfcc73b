//! Detached jobs: they outlive the SSH connection and the agent that started them.

mod context;

pub use context::JobContext;
