//! Every documented write except `make_plan`, and the expected status of the answer.

use serde_json::{Value, json};
use uuid::Uuid;

use super::declared::list_declared;
use super::{Write, write};
use crate::support::fleet;

/// Returns every documented write except `make_plan`, for the fleet of [`fleet()`](super::fleet()).
pub(super) fn list_writes([approval, token, operation]: &[String; 3]) -> Vec<Write> {
    let mut writes = of_nodes();
    writes.extend(of_claims());
    writes.extend(of_rollouts());
    writes.extend(of_safeguards(approval, operation));
    writes.extend(of_access(token));
    writes.extend(list_declared());
    writes
}

/// Returns the writes of nodes.
fn of_nodes() -> Vec<Write> {
    vec![
        write("put_node", "/v1/nodes/n9", fleet::node(9), 201),
        write(
            "patch_node",
            "/v1/nodes/n1",
            json!({ "labels": { "a": "b" } }),
            200,
        ),
        write("delete_node", "/v1/nodes/n1", Value::Null, 204),
        write(
            "act_on_node",
            "/v1/nodes/n1/actions/inspect",
            json!({}),
            200,
        ),
        write(
            "match_node",
            "/v1/nodes/n1/actions/match",
            json!({ "to": "n2" }),
            200,
        ),
        write(
            "rename_node",
            "/v1/nodes/n1/actions/rename",
            json!({ "name": "n8" }),
            200,
        ),
        write(
            "move_node",
            "/v1/nodes/n1/actions/move",
            json!({ "rack": "r1", "rack_unit": 7 }),
            200,
        ),
        write(
            "hold_records",
            "/v1/nodes/n1/hold",
            json!({ "reason": "case 7" }),
            201,
        ),
        // The path has no query with the reason.
        write("release_records", "/v1/nodes/n1/hold", Value::Null, 422),
        write(
            "adopt_node",
            "/v1/nodes/n1/actions/adopt",
            json!({ "pool": "gpu", "credential": "root" }),
            200,
        ),
        write(
            "replace_parts",
            "/v1/nodes/n1/actions/replace-parts",
            json!({ "reason": "broken", "parts": [{ "kind": "disk", "old": "a", "new": "b" }] }),
            422,
        ),
    ]
}

/// Returns the writes of claims and of the revision of a pool.
fn of_claims() -> Vec<Write> {
    vec![
        write(
            "create_claim",
            "/v1/claims",
            json!({ "spec": { "pool": "gpu", "node": "n1" } }),
            201,
        ),
        write(
            "patch_claim",
            "/v1/claims/c2",
            json!({ "spec": { "hold": true } }),
            200,
        ),
        write(
            "replace_claim",
            "/v1/claims/c2/actions/replace",
            json!({}),
            200,
        ),
        write(
            "assign_revision",
            "/v1/claims/c2/actions/assign-revision",
            json!({ "revision": 1 }),
            409,
        ),
        write(
            "write_off_claim",
            "/v1/claims/c2/actions/write-off",
            json!({ "until": null, "reason": "back from repair" }),
            200,
        ),
        write(
            "promote_revision",
            "/v1/pools/gpu/actions/promote-revision",
            json!({ "revision": 1 }),
            200,
        ),
        write("delete_claim", "/v1/claims/c2", Value::Null, 200),
        write("undo_release", "/v1/claims/c2/undo", json!({}), 409),
    ]
}

/// Returns the writes of rollouts. The fleet has no rollout.
fn of_rollouts() -> Vec<Write> {
    vec![
        write(
            "plan_rollout",
            "/v1/rollouts",
            json!({ "pool": "gpu", "revision": 1 }),
            201,
        ),
        write(
            "start_rollout",
            "/v1/rollouts/gpu-1/actions/start",
            json!({ "plan": "x" }),
            404,
        ),
        write(
            "halt_rollout",
            "/v1/rollouts/gpu-1/actions/halt",
            json!({ "reason": "x" }),
            404,
        ),
        write(
            "resume_rollout",
            "/v1/rollouts/gpu-1/actions/resume",
            json!({ "reason": "x" }),
            404,
        ),
        write(
            "promote_rollout",
            "/v1/rollouts/gpu-1/actions/promote",
            json!({ "reason": "x" }),
            404,
        ),
        write(
            "adjust_rollout",
            "/v1/rollouts/gpu-1/actions/adjust",
            json!({ "policy": {}, "reason": "x" }),
            404,
        ),
        write(
            "skip_rollout_node",
            "/v1/rollouts/gpu-1/actions/skip",
            json!({ "node": "n1", "reason": "x" }),
            404,
        ),
        write(
            "retry_rollout_node",
            "/v1/rollouts/gpu-1/actions/retry",
            json!({ "node": "n1", "reason": "x" }),
            404,
        ),
        write(
            "requeue_rollout_node",
            "/v1/rollouts/gpu-1/actions/requeue",
            json!({ "node": "n1", "reason": "x" }),
            404,
        ),
    ]
}

/// Returns the writes of approvals, waivers, pair runs, breakers, operations, alerts and the
/// caution.
fn of_safeguards(approval: &str, operation: &str) -> Vec<Write> {
    vec![
        write(
            "grant_approval",
            format!("/v1/approvals/{approval}/approve"),
            json!({}),
            403,
        ),
        write(
            "deny_approval",
            format!("/v1/approvals/{approval}/deny"),
            json!({}),
            200,
        ),
        write(
            "create_waiver",
            "/v1/waivers",
            json!({ "node": "n1", "gate": "a", "reason": "b", "until": "2020-01-01T00:00:00Z" }),
            422,
        ),
        write(
            "end_waiver",
            format!("/v1/waivers/{}", Uuid::nil()),
            Value::Null,
            404,
        ),
        write(
            "run_pairs",
            "/v1/pools/gpu/actions/run-pairs",
            json!({ "suite": "smoke" }),
            422,
        ),
        write(
            "reset_breaker",
            format!("/v1/breakers/{}/reset", Uuid::nil()),
            json!({}),
            404,
        ),
        write(
            "cancel_operation",
            format!("/v1/operations/{operation}/cancel"),
            json!({}),
            202,
        ),
        write(
            "report_alerts",
            "/v1/alerts",
            json!({ "version": "4", "alerts": [{ "status": "firing", "labels": { "node": "n1", "muster": "quarantine" }, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f" }] }),
            200,
        ),
        write(
            "confirm_caution",
            "/v1/caution/confirm",
            json!({ "id": Uuid::nil(), "note": "looked" }),
            409,
        ),
    ]
}

/// Returns the writes of agents, tokens, users and blobs.
fn of_access(token: &str) -> Vec<Write> {
    vec![
        write(
            "enrol_agent",
            "/v1/sites/lab/agents",
            json!({ "name": "other" }),
            201,
        ),
        write(
            "remove_agent",
            "/v1/sites/lab/agents/first",
            Value::Null,
            204,
        ),
        write(
            "create_token",
            "/v1/tokens",
            json!({ "name": "t", "role": "viewer", "expires_in_s": 3600, "releases_per_hour": 1 }),
            201,
        ),
        write(
            "disable_user",
            "/v1/users/bob/actions/disable",
            json!({}),
            404,
        ),
        write(
            "enable_user",
            "/v1/users/bob/actions/enable",
            json!({}),
            404,
        ),
        write(
            "unlock_user",
            "/v1/users/bob/actions/unlock",
            json!({}),
            404,
        ),
        write(
            "revoke_token",
            format!("/v1/tokens/{token}"),
            Value::Null,
            204,
        ),
        write(
            "put_blob",
            "/v1/blobs/sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            json!("hello"),
            201,
        ),
    ]
}
