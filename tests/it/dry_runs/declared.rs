//! Writes of declared kinds: a change, a patch and a removal of an object of each kind.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Write, role_binding, webhook, write};
use crate::support::fleet;

/// Operations PUT, PATCH and DELETE of a kind, and path and body of an object in use.
type Used = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Value,
);

/// Returns the kinds of sites and machines.
fn site_kinds() -> [Used; 7] {
    [
        (
            "put_site",
            "patch_site",
            "delete_site",
            "/v1/sites/lab",
            json!({ "spec": {} }),
        ),
        (
            "put_rack",
            "patch_rack",
            "delete_rack",
            "/v1/racks/r1",
            fleet::rack(),
        ),
        (
            "put_subnet",
            "patch_subnet",
            "delete_subnet",
            "/v1/subnets/prov",
            fleet::subnet(),
        ),
        (
            "put_hardware_profile",
            "patch_hardware_profile",
            "delete_hardware_profile",
            "/v1/hardware_profiles/virtual",
            fleet::profile(),
        ),
        (
            "put_network_profile",
            "patch_network_profile",
            "delete_network_profile",
            "/v1/network_profiles/bonded",
            fleet::network_profile(),
        ),
        (
            "put_maintenance_window",
            "patch_maintenance_window",
            "delete_maintenance_window",
            "/v1/maintenance_windows/nights",
            fleet::maintenance_window(),
        ),
        (
            "put_credential",
            "patch_credential",
            "delete_credential",
            "/v1/credentials/bmc",
            json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "other" } }),
        ),
    ]
}

/// Returns the kinds of images, clusters and pools.
fn pool_kinds() -> [Used; 5] {
    [
        (
            "put_image",
            "patch_image",
            "delete_image",
            "/v1/images/debian-12",
            fleet::image(),
        ),
        (
            "put_stack",
            "patch_stack",
            "delete_stack",
            "/v1/stacks/base",
            fleet::stack(),
        ),
        (
            "put_suite",
            "patch_suite",
            "delete_suite",
            "/v1/suites/smoke",
            fleet::suite(),
        ),
        (
            "put_cluster",
            "patch_cluster",
            "delete_cluster",
            "/v1/clusters/slurm",
            fleet::cluster(),
        ),
        (
            "put_pool",
            "patch_pool",
            "delete_pool",
            "/v1/pools/gpu",
            fleet::pool(),
        ),
    ]
}

/// Returns the writes of declared kinds. All objects are in use, except monitor, signing key,
/// webhook and role binding: no declared object refers to these four kinds.
pub(super) fn list_declared() -> Vec<Write> {
    let mut writes = Vec::new();
    let changed = |mut body: Value| {
        body["annotations"] = json!({ "changed": "yes" });
        body
    };
    for (put, patch, delete, path, body) in site_kinds().into_iter().chain(pool_kinds()) {
        writes.push(write(put, path, changed(body), 200));
        writes.push(write(patch, path, json!({ "labels": { "a": "b" } }), 200));
        writes.push(write(delete, path, Value::Null, 409));
    }
    let path = "/v1/monitors/errors";
    writes.push(write("put_monitor", path, changed(fleet::monitor()), 200));
    let labels = json!({ "labels": { "a": "b" } });
    writes.push(write("patch_monitor", path, labels, 200));
    writes.push(write("delete_monitor", path, Value::Null, 204));
    let path = "/v1/signing_keys/release";
    let key = changed(fleet::signing_key());
    writes.push(write("put_signing_key", path, key, 200));
    let labels = json!({ "labels": { "a": "b" } });
    writes.push(write("patch_signing_key", path, labels, 200));
    writes.push(write("delete_signing_key", path, Value::Null, 204));
    let path = "/v1/webhooks/ops";
    writes.push(write("put_webhook", path, changed(webhook()), 200));
    writes.push(write(
        "patch_webhook",
        path,
        json!({ "labels": { "a": "b" } }),
        200,
    ));
    writes.push(write("delete_webhook", path, Value::Null, 204));
    writes.push(write(
        "test_webhook",
        "/v1/webhooks/ops/actions/test",
        json!({}),
        201,
    ));
    writes.push(write(
        "resume_webhook",
        "/v1/webhooks/ops/actions/resume",
        json!({}),
        200,
    ));
    let redeliver = json!({ "delivery": Uuid::nil() });
    writes.push(write(
        "redeliver_event",
        "/v1/webhooks/ops/actions/redeliver",
        redeliver,
        422,
    ));
    let path = "/v1/role_bindings/infra";
    writes.push(write(
        "put_role_binding",
        path,
        changed(role_binding()),
        200,
    ));
    writes.push(write(
        "patch_role_binding",
        path,
        json!({ "labels": { "a": "b" } }),
        200,
    ));
    writes.push(write("delete_role_binding", path, Value::Null, 204));
    writes
}
