//! What every client verb takes on the command line, and what it works with.

use clap::Args;
use muster_api::client::Client;
use muster_core::clock::Clock;

use super::connection::Connection;
use super::output::Output;

/// What every client verb takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What a verb works with.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) clock: Clock,
}
