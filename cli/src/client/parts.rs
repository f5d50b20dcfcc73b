//! `muster node parts`, `muster node replace-parts`, `muster component`.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use muster_api::nodes::{ReplaceParts, ReplacedPart};

use super::acting::{OneArgs, begun};
use super::kinds::read::{self, ListArgs};
use super::output::{Column, Form};
use super::plans;
use super::session::Session;

/// The replaced parts.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    act: OneArgs,
    /// Replaced part by serial: `KIND:OLD=NEW`, such as `disk:S4X1=S4X9`. Kinds: chassis, board,
    /// gpu, nic (by MAC), disk, dimm. Repeatable
    #[arg(long = "part", required = true, value_parser = part)]
    parts: Vec<ReplacedPart>,
}

fn part(text: &str) -> Result<ReplacedPart, String> {
    let wrong = || format!("{text:?} is not KIND:OLD=NEW");
    let (kind, serials) = text.split_once(':').ok_or_else(wrong)?;
    let (old, new) = serials.split_once('=').ok_or_else(wrong)?;
    let kind = kind.parse().map_err(|error| format!("{error}"))?;
    Ok(ReplacedPart {
        kind,
        old: old.to_owned(),
        new: new.to_owned(),
    })
}

pub(super) async fn replace(session: &Session, args: ReplaceArgs) -> anyhow::Result<()> {
    let reason = args
        .act
        .how
        .reason
        .clone()
        .context("say with --reason what was wrong: the next person will ask")?;
    let body = ReplaceParts {
        reason,
        parts: args.parts,
    };
    if args.act.how.plan {
        return plans::show(
            session,
            &session
                .client
                .plan_node(&args.act.node, "replace-parts", &body)
                .await?,
        );
    }
    let operation = session.client.replace_parts(&args.act.node, &body).await?;
    begun(session, &[operation], args.act.how.waiting).await
}

pub(super) async fn list(session: &Session, node: &str) -> anyhow::Result<()> {
    let mut page = session.client.node_components(node).await?;
    page.items
        .sort_by(|a, b| (&a.kind, &a.slot, a.first_seen).cmp(&(&b.kind, &b.slot, b.first_seen)));
    session
        .output
        .list_of(&page.items, COLUMNS, session.clock.now())
}

/// Subcommands of parts.
#[derive(Debug, Subcommand)]
pub(crate) enum ComponentVerb {
    /// Show the places of a part, latest first
    Get {
        /// Serial as printed on the part
        serial: String,
    },
    /// List the parts of all nodes, or the places of a part
    List {
        /// Serial as printed on the part
        serial: Option<String>,
        #[command(flatten)]
        args: ListArgs,
    },
}

pub(super) async fn run(session: &Session, verb: ComponentVerb) -> anyhow::Result<()> {
    match verb {
        ComponentVerb::Get { serial } => {
            let page = session.client.components(&serial).await?;
            session
                .output
                .list_of(&page.items, COLUMNS, session.clock.now())
        }
        ComponentVerb::List { serial, args } => {
            let only = serial
                .map(|serial| ("serial", serial))
                .into_iter()
                .collect();
            read::list(session, &["components"], COLUMNS, &args, only).await
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::new("KIND", "/kind", Form::Text),
    Column::new("SERIAL", "/serial", Form::Text),
    Column::new("SLOT", "/slot", Form::Text),
    Column::new("NODE", "/node", Form::Text),
    Column::new("LAST SEEN", "/last_seen", Form::Day),
    Column::new("REPLACED", "/replaced_at", Form::Day),
    Column::wide("BY", "/replaced_by", Form::Text),
    Column::wide("BECAUSE", "/replaced_reason", Form::Text),
    Column::wide("FIRST SEEN", "/first_seen", Form::Day),
    Column::wide("MODEL", "/model", Form::Text),
];

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::parts::PartKind;

    #[test]
    fn a_part_is_said_in_one_word() {
        let said = part("nic:52:54:00:00:00:01=52:54:00:00:00:02").unwrap();
        assert_eq!(
            (said.kind, said.old.as_str(), said.new.as_str()),
            (PartKind::Nic, "52:54:00:00:00:01", "52:54:00:00:00:02")
        );
        for wrong in ["disk", "disk:A", "wheel:A=B"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }
}
