//! Subcommands calling the API. The room knows no database and no node.

mod acting; // A reason, and waiting for operations
mod agents; // muster agent list, enrol, remove
mod apply; // Documents from files
mod approvals; // muster approval
mod asking; // The confirmation of irreversible actions
mod audits; // muster audit head
mod budgets; // muster pool budget, muster claim write-off
mod cabling; // muster rack cabling, muster node cabling
mod caution; // muster caution
mod claims; // muster claim
pub(crate) mod completing; // Suggestions for shells
mod config; // The configuration file
pub(crate) mod connection; // The server and the credentials
mod consoles; // muster node console
mod contexts; // muster context
mod events; // muster event
pub(crate) mod exit; // Exit codes
pub(crate) mod files; // Documents from files
mod gate_runs; // muster gate_run
pub(crate) mod grammar; // Nouns and verbs as one command
mod holds; // muster node hold-records, release-records
mod kinds; // Nouns for kinds, and their shared verbs
mod node_requests; // Requested actions on nodes
mod nodes; // muster node
mod operations; // muster operation
pub(crate) mod output; // Tables, JSON, YAML
mod pairs; // muster pool run-pairs, muster pool pairs
mod parts; // muster node parts, muster component
mod place; // muster node rename, muster node move
mod plans; // Plans for people, with confirmation
mod pools; // muster pool
mod progress; // Waiting for operations, with progress
mod recoveries; // muster node recoveries, muster breaker
mod revisions; // muster pool revisions, diff, promote
mod rollouts; // muster rollout
pub(crate) mod session; // Options and state of every client
mod stacks; // muster stack publish, plan, drift
mod tokens; // muster token
mod uploads; // muster blob
mod users; // muster user
mod version; // muster version
mod waivers; // muster waiver
mod webhooks; // muster webhook

use clap::{ArgMatches, FromArgMatches as _};
use muster_core::clock::Clock;

use self::session::{Common, Session};
use crate::stack;

/// Executes the command line; `None` if the subcommand is not a client.
///
/// # Errors
/// The server's refusal, or the cause of an unreachable server; [`exit::of`] distinguishes them.
pub(crate) async fn run(common: &Common, matches: &ArgMatches) -> Option<anyhow::Result<()>> {
    let (word, matches) = matches.subcommand()?;
    match word {
        "exit-codes" => {
            print_line!("{}", exit::table());
            return Some(Ok(()));
        }
        "context" => {
            let verb =
                contexts::ContextVerb::from_arg_matches(matches).map_err(anyhow::Error::from);
            return Some(
                verb.and_then(|verb| contexts::run(common.output, &common.connection, verb)),
            );
        }
        "gate" => {
            let verb =
                crate::gates::GateVerb::from_arg_matches(matches).map_err(anyhow::Error::from);
            return Some(verb.and_then(|verb| crate::gates::run(common.output, verb)));
        }
        "image" => {
            if let Ok(verb) = crate::images::ImageVerb::from_arg_matches(matches) {
                return Some(crate::images::run(common.output, &verb));
            }
        }
        "version" => return Some(version::run(common).await),
        // Subcommands without a server: lint or lock a stack, run an agent.
        "stack" => match stack::StackVerb::from_arg_matches(matches) {
            Ok(verb) if stack::is_offline(&verb) => return None,
            _ => {}
        },
        "agent" if matches.subcommand_name().is_none() => return None,
        "audit" if matches.subcommand_name() != Some("head") => return None,
        _ => {}
    }
    let kind = kinds::noun(word);
    if kind.is_none() && !grammar::needs_server(word) {
        return None;
    }
    let session = match common.connection.client() {
        Ok(client) => Session {
            client,
            output: common.output,
            clock: Clock::System,
        },
        Err(error) => return Some(Err(error)),
    };
    if let Some(kind) = kind
        && let Some(done) = kind.run(&session, matches).await
    {
        return Some(done);
    }
    Some(run_own(&session, word, matches).await)
}

/// Executes a verb of a single noun.
async fn run_own(session: &Session, word: &str, matches: &ArgMatches) -> anyhow::Result<()> {
    match word {
        "node" => nodes::run(session, nodes::NodeVerb::from_arg_matches(matches)?).await,
        "rack" => cabling::run(session, cabling::RackVerb::from_arg_matches(matches)?).await,
        "pool" => pools::run(session, pools::PoolVerb::from_arg_matches(matches)?).await,
        "claim" => claims::run(session, claims::ClaimVerb::from_arg_matches(matches)?).await,
        "operation" => {
            operations::run(
                session,
                operations::OperationVerb::from_arg_matches(matches)?,
            )
            .await
        }
        "rollout" => {
            rollouts::run(session, rollouts::RolloutVerb::from_arg_matches(matches)?).await
        }
        "token" => tokens::run(session, tokens::TokenVerb::from_arg_matches(matches)?).await,
        "user" => users::run(session, users::UserVerb::from_arg_matches(matches)?).await,
        "approval" => {
            approvals::run(session, approvals::ApprovalVerb::from_arg_matches(matches)?).await
        }
        "breaker" => {
            recoveries::run(session, recoveries::BreakerVerb::from_arg_matches(matches)?).await
        }
        "waiver" => waivers::run(session, waivers::WaiverVerb::from_arg_matches(matches)?).await,
        "stack" => stacks::run(session, stack::StackVerb::from_arg_matches(matches)?).await,
        "webhook" => {
            webhooks::run(session, webhooks::WebhookVerb::from_arg_matches(matches)?).await
        }
        "event" => events::run(session, events::EventVerb::from_arg_matches(matches)?).await,
        "gate_run" => {
            gate_runs::run(session, gate_runs::GateRunVerb::from_arg_matches(matches)?).await
        }
        "component" => parts::run(session, parts::ComponentVerb::from_arg_matches(matches)?).await,
        "caution" => caution::run(session, caution::CautionVerb::from_arg_matches(matches)?).await,
        "blob" => uploads::run(session, uploads::BlobVerb::from_arg_matches(matches)?).await,
        "agent" => agents::run(session, agents::AgentVerb::from_arg_matches(matches)?).await,
        "audit" => audits::run(session, audits::HeadVerb::from_arg_matches(matches)?).await,
        "apply" => apply::run(session, apply::ApplyArgs::from_arg_matches(matches)?).await,
        "plan" => apply::plan(session, apply::PlanArgs::from_arg_matches(matches)?).await,
        // The parser rejects all other verbs.
        other => Err(anyhow::anyhow!("{other} has no such verb")),
    }
}
