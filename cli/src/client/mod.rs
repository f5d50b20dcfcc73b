//! The verbs that are clients of the API, like any other client: nothing here knows the database or a node.

mod acting; // A reason, and waiting for what it begins
mod apply; // Documents from files
mod approvals; // muster approval
mod caution; // muster caution
mod claims; // muster claim
mod connection; // Which server, as whom
mod consoles; // muster node console
mod events; // muster event
pub(crate) mod exit; // Exit codes
mod kinds; // muster get, delete, rack, site
mod nodes; // muster node
mod operations; // muster operation
mod output; // Tables, JSON, YAML
mod parts; // muster node parts, muster component
mod place; // muster node rename, muster node move
mod plans; // What a set of documents would do, shown and agreed to
mod progress; // Waiting for operations, visibly
mod tokens; // muster token
mod uploads; // muster blob
mod webhooks; // muster webhook

use clap::{Args, Subcommand};
use muster_api::client::Client;
use muster_core::clock::Clock;

use self::connection::Connection;
use self::output::Output;

/// What every client verb takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl Common {
    /// Whether a person reads what is printed.
    pub(crate) fn is_table(&self) -> bool {
        self.output.is_table()
    }
}

/// What a verb works with.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) clock: Clock,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    /// Nodes: list, look at, ask for actions.
    #[command(subcommand)]
    Node(nodes::NodeVerb),
    /// Where a part is and where it was, by its serial.
    Component { serial: String },
    /// Racks.
    #[command(subcommand)]
    Rack(kinds::RackVerb),
    /// Sites and their agents.
    #[command(subcommand)]
    Site(kinds::SiteVerb),
    /// Claims: bind nodes to pools, give them back.
    #[command(subcommand)]
    Claim(claims::ClaimVerb),
    /// Operations: what was asked for, and how it stands.
    #[command(subcommand)]
    Operation(operations::OperationVerb),
    /// Releases beyond the hourly limit: what waits for a second person.
    #[command(subcommand)]
    Approval(approvals::ApprovalVerb),
    /// Caution mode: the database is older than what others remember.
    #[command(subcommand)]
    Caution(caution::CautionVerb),
    /// The history.
    #[command(subcommand)]
    Event(events::EventVerb),
    /// Tokens of machines.
    #[command(subcommand)]
    Token(tokens::TokenVerb),
    /// Webhooks: who is told what happens, and what was sent.
    #[command(subcommand)]
    Webhook(webhooks::WebhookVerb),
    /// Images and bundles, by digest.
    #[command(subcommand)]
    Blob(uploads::BlobVerb),
    /// Show objects of any kind.
    Get(kinds::GetArgs),
    /// Remove an object of any declared kind, or unregister a node.
    Delete(kinds::DeleteArgs),
    /// Create or replace what files declare: documents of {kind, name, labels, annotations, spec} in YAML or JSON.
    Apply(apply::ApplyArgs),
}

/// Runs a verb.
///
/// # Errors
/// What the server refused, or why it was not reached; [`exit::code`] tells them apart.
pub(crate) async fn run(common: Common, verb: ClientVerb) -> anyhow::Result<()> {
    let session = Session { client: common.connection.client()?, output: common.output, clock: Clock::System };
    match verb {
        ClientVerb::Node(verb) => nodes::run(&session, verb).await,
        ClientVerb::Component { serial } => parts::find(&session, &serial).await,
        ClientVerb::Rack(verb) => kinds::racks(&session, verb).await,
        ClientVerb::Site(verb) => kinds::sites(&session, verb).await,
        ClientVerb::Claim(verb) => claims::run(&session, verb).await,
        ClientVerb::Operation(verb) => operations::run(&session, verb).await,
        ClientVerb::Approval(verb) => approvals::run(&session, verb).await,
        ClientVerb::Caution(verb) => caution::run(&session, verb).await,
        ClientVerb::Event(verb) => events::run(&session, verb).await,
        ClientVerb::Token(verb) => tokens::run(&session, verb).await,
        ClientVerb::Webhook(verb) => webhooks::run(&session, verb).await,
        ClientVerb::Blob(verb) => uploads::run(&session, verb).await,
        ClientVerb::Get(args) => kinds::get(&session, args).await,
        ClientVerb::Delete(args) => kinds::delete(&session, args).await,
        ClientVerb::Apply(args) => apply::run(&session, args).await,
    }
}
