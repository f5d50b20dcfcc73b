//! Requests of actions on nodes, by the API and by pages: the route, the preconditions and the second person.

use axum::extract::State;
use muster_api::nodes::NodeAction;
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::effects::erases;
use muster_core::lifecycle::state::Wish;

use super::wishes::{self, ActionRequest};
use super::{erasures, write};
use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::dry_run;
use crate::http::extract::{OptionalJson, Path};
use crate::http::idempotency::IdempotencyKey;
use crate::http::preconditions::Preconditions;
use crate::http::writing::{self, Effect};

/// Asks a node for an action: accept, reject, inspect, retry, quarantine, recover, wipe, drain, undrain, maintain, resume, retire, reinstate, check-drift,
/// sweep, power-on, power-off, power-cycle, run-gates, converge, reinstall, rotate-bmc. Sent with If-Match, it is asked of the node as it was read; what erases a disk
/// (wipe, reinstall) must be, and beyond the hourly limit waits for a second person.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/{action}", tag = "nodes",
    params(("node", description = "Name or id"), ("action", description = "The action"), ("If-Match" = Option<String>, Header),
        ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = NodeAction), responses(
    (status = 202, description = "Asked; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow it, it is protected, or busy; or a second person must agree: `second_person`, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The node was changed since it was read", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "To wipe or reinstall, If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn act_on_node(
    State(app): State<App>,
    actor: Actor,
    Path((key, action)): Path<(String, String)>,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    OptionalJson(body): OptionalJson<NodeAction>,
) -> Result<Answer, Error> {
    // A release ends a claim, and has the route of the claim.
    let wish: Option<Wish> = action.parse().ok().filter(|wish| *wish != Wish::Release);
    let wish = wish.ok_or_else(|| Error::NotFound(format!("The action {action:?}")))?;
    request_action(&app, &actor, &key, idempotency, preconditions, &body, wish).await
}

/// Requests an action, as the API and the pages do.
///
/// # Errors
/// As [`act_on_node`] answers; 422 for an action that takes more than a reason and has a route of its own.
pub async fn request_action(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    body: &NodeAction,
    wish: Wish,
) -> Result<Answer, Error> {
    let more = match wish {
        Wish::Adopt => Some("a pool, a credential and the machine's host key"),
        Wish::ReplaceParts => Some("the serials of the part that is out and of the one that is in"),
        Wish::Release => Some("the claim that ends"),
        _ => None,
    };
    if let Some(more) = more {
        return Err(Error::unprocessable(
            "action",
            "incomplete",
            format!("To {wish} takes {more}; use its own form."),
        ));
    }
    let request = ActionRequest {
        wish,
        reason: body.reason.as_deref(),
        until: body.until,
        suite: body.suite.as_deref(),
    };
    wishes::check(request, app.clock.now())?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        match erases(wish) && !dry_run::asked() {
            true => preconditions.allow_removal(node.generation)?,
            false => preconditions.allow_write(Some(node.generation))?,
        }
        if erases(wish) {
            wishes::allow(&node, wish)?;
            let pending = erasures::request_approval(conn, app, actor, &node, request).await?;
            if let Some(pending) = pending {
                return Ok(Effect::Held(pending.refusal()));
            }
        }
        wishes::write_wish(conn, app, actor, &node, request)
            .await
            .map(Effect::Begun)
    })
    .await
}
