//! The grammar: `muster <noun> <verb>`. Kinds share their verbs ([`super::kinds`]); the additional
//! verbs of a noun are added here.

use clap::{Args as _, Command, Subcommand as _};

use super::connection::PRECEDENCE;
use super::session::Common;
use super::{
    agents, apply, approvals, audits, cabling, caution, claims, completing, contexts, events, exit,
    gate_runs, kinds, nodes, operations, parts, pools, recoveries, rollouts, tokens, uploads,
    users, version, waivers, webhooks,
};
use crate::{gates, images, stack};

/// The nouns and verbs of `--help`, grouped by purpose.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Fleet",
        &["node", "claim", "pool", "rollout", "apply", "plan"],
    ),
    (
        "What happens",
        &[
            "operation",
            "event",
            "gate_run",
            "waiver",
            "breaker",
            "component",
            "approval",
            "caution",
            "audit",
        ],
    ),
    (
        "Declared",
        &[
            "site",
            "rack",
            "subnet",
            "hardware_profile",
            "network_profile",
            "maintenance_window",
            "monitor",
            "signing_key",
            "image",
            "stack",
            "suite",
            "gate",
            "cluster",
            "credential",
            "webhook",
            "blob",
        ],
    ),
    (
        "Access",
        &["user", "token", "role_binding", "agent", "context"],
    ),
    (
        "This host",
        &[
            "doctor",
            "version",
            "record",
            "server",
            "agent",
            "dev",
            "migrate",
            "admin",
            "completion",
            "exit-codes",
            "help",
        ],
    ),
];

/// Returns whether a noun or verb may need a server: all groups of the help except this host.
pub(super) fn needs_server(word: &str) -> bool {
    let (_this_host, clients) = GROUPS.split_last().expect("the help has groups");
    clients.iter().any(|(_, words)| words.contains(&word))
}

/// Adds all clients of the API to the program's command.
pub(crate) fn add(command: Command) -> Command {
    let command = kinds::with(command, Common::augment_args);
    let command = kinds::nouns().into_iter().fold(command, |command, noun| {
        command.subcommand(own(noun.command()))
    });
    add_documents(add_nouns(command))
        .subcommand(version::command())
        .subcommand(exit::command())
        .subcommand(completing::command())
}

/// Adds the nouns other than kinds.
fn add_nouns(command: Command) -> Command {
    let noun = |word: &'static str, about: &'static str, verbs: fn(Command) -> Command| {
        kinds::with(
            Command::new(word).about(about).subcommand_required(true),
            verbs,
        )
    };
    let gate_runs = "Gate runs: measurements and verdicts of a node";
    let components = "Parts by serial: present and former places";
    let cautious = "Caution mode: the database is older than the records of agents or replicas";
    command
        .subcommand(noun(
            "event",
            "The history: every change with its author",
            events::EventVerb::augment_subcommands,
        ))
        .subcommand(
            noun(
                "gate_run",
                gate_runs,
                gate_runs::GateRunVerb::augment_subcommands,
            )
            .aliases(["gate-run", "gate_runs"]),
        )
        .subcommand(noun(
            "gate",
            "Gates: explain the shipped gates, lint suites, try parsers",
            gates::GateVerb::augment_subcommands,
        ))
        .subcommand(
            noun(
                "component",
                components,
                parts::ComponentVerb::augment_subcommands,
            )
            .alias("components"),
        )
        .subcommand(noun(
            "caution",
            cautious,
            caution::CautionVerb::augment_subcommands,
        ))
        .subcommand(rollout())
        .subcommand(noun(
            "blob",
            "Images and bundles, by digest",
            uploads::BlobVerb::augment_subcommands,
        ))
        .subcommand(
            noun(
                "context",
                "Servers by name, in a file of your own",
                contexts::ContextVerb::augment_subcommands,
            )
            .after_help(PRECEDENCE),
        )
}

/// Adds the verbs for files with documents.
fn add_documents(command: Command) -> Command {
    let verb = |word: &'static str, about: &'static str, part: fn(Command) -> Command| {
        kinds::with(Command::new(word).about(about), part)
    };
    let applied = "Create or replace objects from files: YAML or JSON with kind, name, labels, annotations, spec; or a suite, profile or stack in TOML";
    let planned =
        "Show the changes, reboots, reinstallations and wipes of applying files, without writing";
    command
        .subcommand(verb("apply", applied, apply::ApplyArgs::augment_args))
        .subcommand(verb("plan", planned, apply::PlanArgs::augment_args))
}

fn rollout() -> Command {
    let command = Command::new("rollout")
        .about("Rollouts: move the nodes of a pool to a revision, in waves")
        .subcommand_required(true)
        .alias("rollouts");
    kinds::with(command, rollouts::RolloutVerb::augment_subcommands)
}

/// Adds the additional verbs of a kind.
fn own(command: Command) -> Command {
    let verbs = match command.get_name() {
        "node" => nodes::NodeVerb::augment_subcommands,
        "rack" => cabling::RackVerb::augment_subcommands,
        "pool" => pools::PoolVerb::augment_subcommands,
        "claim" => claims::ClaimVerb::augment_subcommands,
        "operation" => operations::OperationVerb::augment_subcommands,
        "user" => users::UserVerb::augment_subcommands,
        "token" => tokens::TokenVerb::augment_subcommands,
        "approval" => approvals::ApprovalVerb::augment_subcommands,
        "waiver" => waivers::WaiverVerb::augment_subcommands,
        "breaker" => recoveries::BreakerVerb::augment_subcommands,
        "webhook" => webhooks::WebhookVerb::augment_subcommands,
        "image" => images::ImageVerb::augment_subcommands,
        "stack" => stack::StackVerb::augment_subcommands,
        _ => return command,
    };
    kinds::with(command, verbs)
}

/// Adds the verbs of agents beside the program `muster agent`. The program has its own --server, so
/// the global option is passed
/// explicitly.
pub(crate) fn agent(command: Command) -> Command {
    let verbs = agents::AgentVerb::augment_subcommands(Command::new("agent"));
    let verbs = verbs
        .get_subcommands()
        .cloned()
        .map(|verb| kinds::with(verb, Common::augment_args));
    command
        .subcommands(verbs)
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
}

/// Adds the verbs of the audit's server side beside `muster audit verify`.
pub(crate) fn audit(command: Command) -> Command {
    audits::HeadVerb::augment_subcommands(command)
}

/// Builds `--help` by purpose instead of by alphabet.
pub(crate) fn grouped(mut command: Command) -> Command {
    let about = |word: &str| {
        let about = command
            .find_subcommand(word)
            .and_then(|found| found.get_about())
            .map(ToString::to_string);
        about.unwrap_or_else(|| "Print this, or the help of a noun or verb".into())
    };
    let mut text = String::new();
    let mut listed = vec!["help"];
    for (group, words) in GROUPS {
        text.push_str(&format!("\n{group}:\n"));
        for word in words {
            let about = if *word == "agent" && group == "Access" {
                "Agents: list, enrol, remove".into()
            } else {
                about(word)
            };
            text.push_str(&format!("  {word:<17} {about}\n"));
            listed.push(word);
        }
    }
    let more = command
        .get_subcommands()
        .filter(|found| !found.is_hide_set())
        .map(Command::get_name);
    let more: Vec<String> = more
        .filter(|name| !listed.contains(name))
        .map(str::to_owned)
        .collect();
    if !more.is_empty() {
        text.push_str(&format!("\nAlso: {}\n", more.join(", ")));
    }
    let text = format!(
        "{{about}}\n\n{{usage-heading}} muster [OPTIONS] <NOUN> <VERB>\n{text}\nOptions:\n{{options}}{{after-help}}"
    );
    command = command.help_template(text);
    command.after_help(
        "`muster help NOUN VERB` says more. Exit codes: `muster help exit-codes`. Which server, and as whom: `muster help context`.",
    )
}
