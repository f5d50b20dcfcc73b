//! Requests waiting for a second person, and the undo of a release: forms of the page of claims.

use axum::extract::State;
use axum::response::Redirect;
use jiff::Timestamp;
use muster_core::lifecycle::state::Action;
use uuid::Uuid;

use super::format::{self, Moment};
use crate::app::App;
use crate::auth::Actor;
use crate::db::approvals::ApprovalRow;
use crate::error::Error;
use crate::http::extract::Path;
use crate::intents::approvals::decide::{Decision, decide};
use crate::intents::claims::undo;
use crate::intents::idempotency::IdempotencyKey;

/// A release, wipe, new installation, replacement or waiver waiting for approval.
pub(super) struct Pending {
    pub id: String,
    pub node: String,
    pub claim: String,
    /// The requested act: `the release`, `the release and the erasing of its disks at once`, `the
    /// replacement`, `the wipe`, `the new installation`, `the waiver`.
    pub what: &'static str,
    pub by: String,
    pub because: String,
    pub asked: Moment,
    /// Why the reader cannot approve. Empty when the reader can.
    pub refused: &'static str,
    pub may_deny: bool,
}

pub(super) fn pending(row: ApprovalRow, actor: &Actor, now: Timestamp) -> Pending {
    let may_deny = actor.holding.somewhere("approval.decide");
    Pending {
        refused: match () {
            () if !may_deny => "needs approval.decide",
            () if actor.person == row.person => "you asked for it: somebody else must agree",
            () => "",
        },
        may_deny,
        id: row.id.to_string(),
        because: format::cut(&row.because, 200),
        asked: format::moment(row.requested_at, now),
        by: row.requested_by,
        what: match (row.waiver, row.action, row.replaces) {
            (Some(_), _, _) => "the waiver",
            (None, Some(Action::Wipe), _) => "the wipe",
            (None, Some(_), _) => "the new installation",
            (None, None, true) => "the replacement",
            (None, None, false) if row.erase_now => {
                "the release and the erasing of its disks at once"
            }
            (None, None, false) => "the release",
        },
        node: row.node_name.unwrap_or_default(),
        claim: row.claim_name.unwrap_or_default(),
    }
}

/// Approves or denies a request, as `POST /v1/approvals/{approval}/…` does.
pub(super) async fn decide_approval(
    State(app): State<App>,
    actor: Actor,
    Path((id, word)): Path<(Uuid, String)>,
) -> Result<Redirect, Error> {
    let decision = match word.as_str() {
        "approve" => Decision::Approve,
        "deny" => Decision::Deny,
        _ => return Err(Error::NotFound(format!("The decision {word:?}"))),
    };
    decide(&app, &actor, id, decision, IdempotencyKey::none()).await?;
    Ok(Redirect::to("/claims"))
}

/// Undoes a release, as `POST /v1/claims/{claim}/undo` does.
pub(super) async fn undo_release(
    State(app): State<App>,
    actor: Actor,
    Path(claim): Path<String>,
) -> Result<Redirect, Error> {
    undo::undo(&app, &actor, &claim, IdempotencyKey::none()).await?;
    Ok(Redirect::to("/claims"))
}
