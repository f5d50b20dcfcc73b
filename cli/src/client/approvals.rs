//! `muster approval`.

use clap::Subcommand;
use muster_api::approvals::Approval;
use muster_core::effects::{self, Effect};
use muster_core::lifecycle::state::{Action, State};
use uuid::Uuid;

use super::session::Session;

/// Subcommands of approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalVerb {
    /// Approve the request of another person, and start the operation
    Approve {
        id: Uuid,
        /// Show the effects without approving
        #[arg(long, visible_alias = "dry-run")]
        plan: bool,
    },
    /// Deny a request
    Deny { id: Uuid },
}

pub(super) async fn run(session: &Session, verb: ApprovalVerb) -> anyhow::Result<()> {
    match verb {
        ApprovalVerb::Approve { id, plan: true } => {
            let approval = session.client.plan_approval(id).await?;
            session.output.print_lines(&approval, || planned(&approval))
        }
        ApprovalVerb::Approve { id, plan: false } => {
            let approval = session.client.decide_approval(id, "approve").await?;
            session
                .output
                .print_lines(&approval, || vec![approved(&approval)])
        }
        ApprovalVerb::Deny { id } => {
            let approval = session.client.decide_approval(id, "deny").await?;
            session
                .output
                .print_lines(&approval, || vec![denied(&approval)])
        }
    }
}

/// The effects of an approval.
fn planned(approval: &Approval) -> Vec<String> {
    let (effect, begun) = match (&approval.waiver, &approval.node) {
        (None, Some(node)) if approval.action.as_deref() == Some("reinstall") => {
            let effect = effects::of_action(Action::Reinstall, State::InService, None);
            (
                effect,
                format!("{node} would be drained, and its image written to its root disk again"),
            )
        }
        (None, Some(node)) if approval.action.is_some() => {
            let effect = effects::of_action(Action::Wipe, State::Quarantined, None);
            (effect, format!("every disk of {node} would be erased"))
        }
        (None, Some(node)) => {
            let effect = effects::of_action(Action::Release, State::InService, None);
            let wiped = if approval.erase_now {
                "wiped at once, with no way back"
            } else {
                "wiped"
            };
            (
                effect,
                format!(
                    "{node} would be drained, taken out of its scheduler and {wiped}, and its claim would end"
                ),
            )
        }
        _ => (
            Effect::None,
            "the waiver would count from now on: the gate would keep no node out any more"
                .to_owned(),
        ),
    };
    vec![
        format!("effect: {effect}"),
        format!("  {begun}"),
        format!(
            "  asked for by {}: {}",
            approval.requested_by, approval.because
        ),
    ]
}

fn approved(approval: &Approval) -> String {
    match (&approval.waiver, &approval.node) {
        (None, Some(node)) => match approval.action.as_deref() {
            Some(action) => format!("{node} was asked to {action}"),
            None if approval.erase_now => {
                format!("{node} is released, and its disks are erased at once")
            }
            None => format!("{node} is released"),
        },
        _ => format!("agreed: {}", approval.because),
    }
}

fn denied(approval: &Approval) -> String {
    match (&approval.waiver, &approval.node) {
        (None, Some(node)) => format!("{node} is kept"),
        _ => "turned down".to_owned(),
    }
}
