//! `muster approval`.

use clap::Subcommand;
use muster_api::approvals::Approval;
use uuid::Uuid;

use super::Session;
use super::output::{Rows, age};

/// What a second person can do.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalVerb {
    /// List the releases that wait for a second person.
    List,
    /// Agree to what another person asked for, and begin it.
    Approve { id: Uuid },
    /// Turn it down.
    Deny { id: Uuid },
}

pub(super) async fn run(session: &Session, verb: ApprovalVerb) -> anyhow::Result<()> {
    match verb {
        ApprovalVerb::List => {
            let page = session.client.list_approvals().await?;
            session.output.print(&page.items, || table(session, &page.items))
        }
        ApprovalVerb::Approve { id } => {
            let approval = session.client.decide_approval(id, "approve").await?;
            session.output.print_lines(&approval, || vec![format!("{} is released", approval.node)])
        }
        ApprovalVerb::Deny { id } => {
            let approval = session.client.decide_approval(id, "deny").await?;
            session.output.print_lines(&approval, || vec![format!("{} is kept", approval.node)])
        }
    }
}

fn table(session: &Session, approvals: &[Approval]) -> Rows<6> {
    let now = session.clock.now();
    let row = |approval: &Approval| {
        [
            approval.id.to_string(),
            approval.node.clone(),
            approval.claim.clone(),
            approval.requested_by.clone(),
            age(now, Some(approval.requested_at)),
            approval.because.clone(),
        ]
    };
    Rows {
        headings: ["ID", "NODE", "CLAIM", "ASKED BY", "AGE", "BECAUSE"],
        rows: approvals.iter().map(row).collect(),
        wide_from: 6,
    }
}
