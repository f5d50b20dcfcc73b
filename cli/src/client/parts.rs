//! `muster node parts`, `muster node replace-parts`, `muster component`.

use anyhow::Context as _;
use clap::Args;
use muster_api::nodes::{Component, ReplaceParts, ReplacedPart};

use super::Session;
use super::acting::{ActArgs, begun};
use super::output::Rows;

/// Which parts were replaced.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    act: ActArgs,
    /// `KIND:OLD=NEW` by serial, such as `disk:S4X1=S4X9`; kinds are chassis, board, gpu, nic (by MAC), disk, dimm. May be repeated.
    #[arg(long = "part", required = true, value_parser = part)]
    parts: Vec<ReplacedPart>,
}

fn part(text: &str) -> Result<ReplacedPart, String> {
    let wrong = || format!("{text:?} is not KIND:OLD=NEW");
    let (kind, serials) = text.split_once(':').ok_or_else(wrong)?;
    let (old, new) = serials.split_once('=').ok_or_else(wrong)?;
    let kind = kind.parse().map_err(|error| format!("{error}"))?;
    Ok(ReplacedPart { kind, old: old.to_owned(), new: new.to_owned() })
}

pub(super) async fn replace(session: &Session, args: ReplaceArgs) -> anyhow::Result<()> {
    let reason = args.act.reason.clone().context("say with --reason what was wrong: the next person will ask")?;
    let operation = session.client.replace_parts(&args.act.node, &ReplaceParts { reason, parts: args.parts }).await?;
    begun(session, &operation, &args.act).await
}

pub(super) async fn list(session: &Session, node: &str) -> anyhow::Result<()> {
    let page = session.client.node_components(node).await?;
    session.output.print(&page.items, || table(&page.items))
}

/// Where a part is, and where it was.
pub(super) async fn find(session: &Session, serial: &str) -> anyhow::Result<()> {
    let page = session.client.components(serial).await?;
    session.output.print(&page.items, || table(&page.items))
}

fn table(parts: &[Component]) -> Rows<8> {
    let row = |part: &Component| {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let day = |at: jiff::Timestamp| at.strftime("%F").to_string();
        let out = part.replaced_at.map(|at| {
            let because = part.replaced_reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{} by {}{because}", day(at), text(&part.replaced_by))
        });
        [
            part.kind.clone(),
            part.serial.clone(),
            text(&part.slot),
            part.node.clone(),
            day(part.last_seen),
            out.unwrap_or_default(),
            day(part.first_seen),
            text(&part.model),
        ]
    };
    Rows {
        headings: ["KIND", "SERIAL", "SLOT", "NODE", "LAST SEEN", "REPLACED", "FIRST SEEN", "MODEL"],
        rows: parts.iter().map(row).collect(),
        wide_from: 6,
    }
}

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
