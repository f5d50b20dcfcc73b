//! `muster pool`: verbs of pools, beside the verbs of every kind.

use clap::Subcommand;

use super::session::Session;
use super::{budgets, pairs, revisions};

/// Subcommands of pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolVerb {
    #[command(flatten)]
    Pairs(pairs::PairVerb),
    #[command(flatten)]
    Revisions(revisions::RevisionVerb),
    /// Show the nodes of a pool out of service, the disruption budgets, and the waiting requests
    Budget { pool: String },
}

pub(super) async fn run(session: &Session, verb: PoolVerb) -> anyhow::Result<()> {
    match verb {
        PoolVerb::Pairs(verb) => pairs::run(session, verb).await,
        PoolVerb::Revisions(verb) => revisions::run(session, verb).await,
        PoolVerb::Budget { pool } => budgets::show(session, &pool).await,
    }
}
