//! Requests of actions on nodes, by the API and by pages, with the preconditions and the second
//! person.

use muster_api::nodes::NodeAction;
use muster_core::effects::erases;
use muster_core::lifecycle::state::Action;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::dry_run;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::requests::{self, ActionRequest};
use crate::intents::nodes::{erasures, write};
use crate::intents::preconditions::Preconditions;
use crate::intents::writing::{self, Effect};

/// Requests an action, for the API and the pages.
///
/// # Errors
/// The errors of the route `act_on_node`; 422 for an action with members beyond the reason, because
/// such an action has its own route.
pub async fn request_action(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    body: &NodeAction,
    action: Action,
) -> Result<Answer, Error> {
    let more = match action {
        Action::Adopt => Some("a pool, a credential and the machine's host key"),
        Action::ReplaceParts => Some("the serials of the old part and of the new part"),
        Action::Release => Some("the claim that ends"),
        _ => None,
    };
    if let Some(more) = more {
        return Err(Error::unprocessable(
            "action",
            "incomplete",
            format!("The action {action} needs {more}; use its own route."),
        ));
    }
    let request = ActionRequest {
        action,
        reason: body.reason.as_deref(),
        until: body.until,
        suite: body.suite.as_deref(),
        override_budget: body.override_budget.as_deref(),
    };
    requests::check(request, app.clock.now())?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        match erases(action) && !dry_run::asked() {
            true => preconditions.allow_erasure(node.generation)?,
            false => preconditions.allow_write(Some(node.generation))?,
        }
        if request.override_budget.is_some() {
            let named = Named { kind: "node", key };
            actor.need(conn, "budget.override", named).await?;
        }
        if erases(action) {
            requests::allow(&node, request)?;
            let pending = erasures::request_approval(conn, app, actor, &node, request).await?;
            if let Some(pending) = pending {
                return Ok(Effect::Held(pending.refusal()));
            }
        }
        requests::write_action(conn, app, actor, &node, request)
            .await
            .map(Effect::Begun)
    })
    .await
}
