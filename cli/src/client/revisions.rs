//! `muster pool revisions`, `muster pool diff`, `muster pool promote`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_api::revisions::{ChooseRevision, RevisionDiff, RevisionItem};

use super::output::{Column, Form};
use super::session::Session;

/// Subcommands about the revisions of pools.
#[derive(Debug, Subcommand)]
pub(crate) enum RevisionVerb {
    /// List the revisions of a pool. A changed image, stack or network profile adds a revision and
    /// changes no node
    Revisions(PoolArgs),
    /// Compare two revisions of a pool: the items, and the effect on each node
    Diff(DiffArgs),
    /// Assign a revision to the claims made from now on. Nodes of existing claims do not change
    Promote(PromoteArgs),
}

/// The pool.
#[derive(Args, Debug)]
pub(crate) struct PoolArgs {
    pool: String,
}

/// The revisions to compare.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    pool: String,
    /// Number of the revision
    revision: i32,
    /// Number of the revision to compare with. Default: the present revision
    #[arg(long, value_name = "REVISION")]
    from: Option<i32>,
}

/// The revision of new claims.
#[derive(Args, Debug)]
pub(crate) struct PromoteArgs {
    pool: String,
    /// Number of the revision
    revision: i32,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

const COLUMNS: &[Column] = &[
    Column::new("REVISION", "/number", Form::Text),
    Column::new("PRESENT", "/present", Form::Text),
    Column::new("STACK", "/stack", Form::Text),
    Column::new("VERSION", "/stack_version", Form::Text),
    Column::new("IMAGE", "/image", Form::Text),
    Column::new("ASSIGNED", "/assigned", Form::Text),
    Column::new("RUNNING", "/running", Form::Text),
    Column::new("BY", "/actor", Form::Text),
    Column::new("AGE", "/created_at", Form::Age),
];

pub(super) async fn run(session: &Session, verb: RevisionVerb) -> anyhow::Result<()> {
    match verb {
        RevisionVerb::Revisions(args) => {
            let page = session.client.pool_revisions(&args.pool).await?;
            session
                .output
                .list_of(&page.items, COLUMNS, session.clock.now())
        }
        RevisionVerb::Diff(args) => {
            let diff = session
                .client
                .diff_revisions(&args.pool, args.revision, args.from)
                .await?;
            session
                .output
                .print_lines(&diff, || describe_differences(&diff))
        }
        RevisionVerb::Promote(args) => {
            let body = ChooseRevision {
                revision: args.revision,
                reason: args.reason,
            };
            let done = session.client.promote_revision(&args.pool, &body).await?;
            session.output.print_lines(&done, || {
                vec![format!(
                    "new claims of {} are assigned revision {}",
                    args.pool, done.number
                )]
            })
        }
    }
}

/// The items, then the nodes by effect.
fn describe_differences(diff: &RevisionDiff) -> Vec<String> {
    let mut lines = vec![format!(
        "revision {} -> {} of {}: {}",
        diff.from, diff.to, diff.pool, diff.effect
    )];
    lines.extend(diff.items.iter().map(describe_item));
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in &diff.nodes {
        let effect = node.effect.as_deref().unwrap_or("unknown");
        nodes.entry(effect).or_default().push(&node.node);
    }
    lines.extend(nodes.into_iter().map(|(effect, nodes)| {
        format!("{effect:<10} {} nodes: {}", nodes.len(), nodes.join(", "))
    }));
    lines
}

fn describe_item(item: &RevisionItem) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    format!(
        "  {:<16} {:<40} {} -> {}",
        item.class.as_str(),
        item.item,
        shown(&item.from),
        shown(&item.to)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_api::revisions::RevisionNode;
    use muster_core::stacks::diff::Class;

    #[test]
    fn nodes_are_grouped_by_effect() {
        let node = |name: &str, running, effect: Option<&str>| RevisionNode {
            node: name.into(),
            claim: format!("claim-{name}"),
            assigned: 1,
            running,
            effect: effect.map(str::to_owned),
        };
        let diff = RevisionDiff {
            pool: "gpu".into(),
            from: 1,
            to: 2,
            effect: "reboot".into(),
            items: vec![RevisionItem {
                item: "kernel argument iommu=pt".into(),
                from: None,
                to: Some("present".into()),
                class: Class::Reboot,
            }],
            nodes: vec![
                node("n1", Some(1), Some("reboot")),
                node("n2", Some(2), Some("none")),
                node("n3", None, None),
                node("n4", Some(1), Some("reboot")),
            ],
        };
        let lines = describe_differences(&diff);
        let item = format!(
            "  {:<16} {:<40} - -> present",
            "reboot", "kernel argument iommu=pt"
        );
        assert_eq!(
            lines,
            [
                "revision 1 -> 2 of gpu: reboot",
                &item,
                "none       1 nodes: n2",
                "reboot     2 nodes: n1, n4",
                "unknown    1 nodes: n3",
            ]
        );
    }
}
