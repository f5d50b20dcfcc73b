//! Changes to the policy of an open rollout: budgets, deadlines, signals and the maintenance window.

use muster_api::rollouts::{AdjustRollout, RolloutState};
use muster_core::rollout::{AfterDeadline, DrainPolicy, RolloutPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::check_reason;
use super::control::{Request, allow_state, answer, lock};
use super::plan::{check, check_date, check_monitors, check_window, refuse_never_open};
use super::regressions;
use super::windows::Windows;
use crate::db;
use crate::document::{self, escape, fault, merge};
use crate::error::{Error, Fault};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing;

/// Members of a policy that may change after the start. A person confirmed the other members at the
/// start.
const LIVE: [&str; 8] = [
    "budgets",
    "drain",
    "drain_lead_s",
    "failure_budget",
    "halt_when",
    "maintenance_window",
    "stall_after_s",
    "visit_by",
];

/// Changes the policy of a running or halted rollout. The next tick follows the new policy.
///
/// # Errors
/// 404; 400 for a policy of a wrong shape; 409 for a rollout that has ended or was not started, and for
/// a maintenance window that never opens together with the others (`never_open`); 422 for a wrong policy,
/// a member fixed by the plan, and without a reason.
pub(crate) async fn adjust(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &AdjustRollout,
) -> Result<Answer, Error> {
    let reason = check_reason(&body.reason)?;
    // Before the rollout is looked up: a body of a wrong shape is refused for every rollout alike.
    // A patch may change a part of the deadline.
    let complete = RolloutPolicy {
        drain: DrainPolicy::Deadline {
            after_s: 3600,
            then: AfterDeadline::Ask,
        },
        ..RolloutPolicy::default()
    };
    let complete = serde_json::to_value(complete).map_err(Error::internal)?;
    apply(&complete, &body.policy)?;
    let Request { app, actor, key } = request;
    writing::once(app, actor, idempotency, body, async |conn| {
        let row = lock(conn, key).await?;
        let open = [RolloutState::Running, RolloutState::Halted];
        allow_state(&row, &open, "adjusted")?;
        let before = serde_json::to_value(&row.policy.0).map_err(Error::internal)?;
        let policy = apply(&before, &body.policy)?;
        let now = app.clock.now();
        check(&policy)?;
        // A date that has passed, and the name of a deleted window, stay as they are.
        if policy.visit_by != row.policy.0.visit_by {
            check_date(&policy, now)?;
        }
        if policy.maintenance_window != row.policy.0.maintenance_window {
            check_window(conn, &policy).await?;
        }
        if policy.halt_when != row.policy.0.halt_when {
            check_monitors(conn, &policy).await?;
            regressions::check(conn, row.pool, &policy, &row.policy).await?;
        }
        let after = serde_json::to_value(&policy).map_err(Error::internal)?;
        let changes = list_changes(&before, &after);
        if changes.is_empty() {
            return answer(conn, request).await;
        }
        db::rollouts::set_policy(conn, row.id, &policy).await?;
        if policy.maintenance_window != row.policy.0.maintenance_window {
            refuse_never_open(&Windows::load(conn, row.id).await?, now)?;
            // The past would be measured by the new window, and deadlines could pass at once.
            db::rollout_waits::restart_waits(conn, row.id, now).await?;
        }
        let members: Vec<&str> = changes.keys().map(String::as_str).collect();
        let summary = format!(
            "rollout {} is adjusted ({}): {reason}",
            row.name,
            members.join(", ")
        );
        let event = actor.event(now, "rollout.adjusted", None, summary);
        let detail = json!({ "rollout": row.name, "pool": row.pool_name, "revision": row.number, "changes": changes });
        db::events::insert(conn, event.about(row.pool).with(detail)).await?;
        answer(conn, request).await
    })
    .await
}

/// The part of the body that is read as a policy after the merge; faults point into the body.
#[derive(Serialize, Deserialize)]
struct Merged {
    policy: RolloutPolicy,
}

/// Applies a merge patch to a policy.
///
/// # Errors
/// 422 with a fault for each member that is fixed by the plan; 400 for a policy of a wrong shape.
fn apply(before: &Value, patch: &Map<String, Value>) -> Result<RolloutPolicy, Error> {
    let fixed = patch
        .keys()
        .filter(|member| !LIVE.contains(&member.as_str()));
    let faults: Vec<Fault> = fixed
        .map(|member| {
            let detail = format!(
                "This member is fixed by the plan. Plan a new rollout, or change: {}.",
                LIVE.join(", ")
            );
            fault(format!("/policy/{}", escape(member)), "fixed", detail)
        })
        .collect();
    if !faults.is_empty() {
        return Err(Error::Unprocessable(faults));
    }
    let mut after = before.clone();
    merge(&mut after, &Value::Object(patch.clone()));
    Ok(document::typed::<Merged>(&json!({ "policy": after }))?.policy)
}

/// Returns the changed members with the former and the new value.
fn list_changes(before: &Value, after: &Value) -> Map<String, Value> {
    let changed = LIVE
        .iter()
        .filter(|member| before[**member] != after[**member]);
    let change = |member: &&str| {
        let values = json!({ "from": before[*member], "to": after[*member] });
        ((*member).to_owned(), values)
    };
    changed.map(change).collect()
}
