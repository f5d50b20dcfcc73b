//! `muster approval`.

use clap::Subcommand;
use muster_api::approvals::Approval;
use uuid::Uuid;

use super::session::Session;

/// What a second person can do.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalVerb {
    /// Agree to what another person asked for, and begin it.
    Approve { id: Uuid },
    /// Turn it down.
    Deny { id: Uuid },
}

pub(super) async fn run(session: &Session, verb: ApprovalVerb) -> anyhow::Result<()> {
    match verb {
        ApprovalVerb::Approve { id } => {
            let approval = session.client.decide_approval(id, "approve").await?;
            session.output.print_lines(&approval, || vec![approved(&approval)])
        }
        ApprovalVerb::Deny { id } => {
            let approval = session.client.decide_approval(id, "deny").await?;
            session.output.print_lines(&approval, || vec![denied(&approval)])
        }
    }
}

fn approved(approval: &Approval) -> String {
    match (&approval.waiver, &approval.node) {
        (None, Some(node)) => format!("{node} is released"),
        _ => format!("agreed: {}", approval.because),
    }
}

fn denied(approval: &Approval) -> String {
    match (&approval.waiver, &approval.node) {
        (None, Some(node)) => format!("{node} is kept"),
        _ => "turned down".to_owned(),
    }
}
