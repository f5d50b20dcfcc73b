//! The options and the state of every client subcommand.

use clap::Args;
use muster_api::client::Client;
use muster_core::clock::Clock;

use super::connection::Connection;
use super::output::Output;

/// The options of every client subcommand.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The state of a client subcommand.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) clock: Clock,
}
