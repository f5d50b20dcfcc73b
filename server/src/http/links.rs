//! OpenAPI links of each write: from the answer to the new or changed object, or to the begun
//! operation.

use serde_json::{Map, Value, json};

/// The operation, the name of the link, the linked operation, and its parameters.
type Link = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Links with a target that cannot be derived from the name of the operation.
const LINKS: [Link; 24] = [
    (
        "create_claim",
        "self",
        "get_claim",
        &[("claim", "$response.body#/name")],
    ),
    (
        "patch_claim",
        "self",
        "get_claim",
        &[("claim", "$response.body#/name")],
    ),
    (
        "put_node",
        "self",
        "get_node",
        &[("node", "$response.body#/name")],
    ),
    (
        "patch_node",
        "self",
        "get_node",
        &[("node", "$response.body#/name")],
    ),
    (
        "put_blob",
        "self",
        "head_blob",
        &[("hex", "$request.path.hex")],
    ),
    (
        "run_pairs",
        "run",
        "get_pair_run",
        &[
            ("pool", "$request.path.pool"),
            ("run", "$response.body#/id"),
        ],
    ),
    (
        "grant_approval",
        "self",
        "get_approval",
        &[("approval", "$response.body#/id")],
    ),
    (
        "grant_approval",
        "operation",
        "get_operation",
        &[("id", "$response.body#/operation")],
    ),
    (
        "deny_approval",
        "self",
        "get_approval",
        &[("approval", "$response.body#/id")],
    ),
    (
        "enrol_agent",
        "agent",
        "get_agent",
        &[
            ("site", "$request.path.site"),
            ("agent", "$response.body#/agent/name"),
        ],
    ),
    (
        "create_token",
        "self",
        "get_token",
        &[("token", "$response.body#/token/id")],
    ),
    (
        "create_token",
        "revoke",
        "revoke_token",
        &[("token", "$response.body#/token/id")],
    ),
    (
        "create_waiver",
        "self",
        "get_waiver",
        &[("waiver", "$response.body#/id")],
    ),
    (
        "create_waiver",
        "approval",
        "get_approval",
        &[("approval", "$response.body#/approval")],
    ),
    (
        "create_waiver",
        "end",
        "end_waiver",
        &[("waiver", "$response.body#/id")],
    ),
    (
        "end_waiver",
        "self",
        "get_waiver",
        &[("waiver", "$response.body#/id")],
    ),
    (
        "report_alerts",
        "operation",
        "get_operation",
        &[("id", "$response.body#/alerts/0/operation")],
    ),
    ("reset_breaker", "list", "list_breakers", &[]),
    ("confirm_caution", "self", "get_caution", &[]),
    (
        "disable_user",
        "self",
        "get_user",
        &[("user", "$response.body#/id")],
    ),
    (
        "enable_user",
        "self",
        "get_user",
        &[("user", "$response.body#/id")],
    ),
    (
        "test_webhook",
        "list",
        "list_webhook_deliveries",
        &[("name", "$request.path.name")],
    ),
    (
        "redeliver_event",
        "list",
        "list_webhook_deliveries",
        &[("name", "$request.path.name")],
    ),
    (
        "resume_webhook",
        "self",
        "get_webhook",
        &[("name", "$request.path.name")],
    ),
];

/// Adds the links to the successful answers of an operation.
pub(super) fn add(id: &str, operation: &mut Value) {
    let mut links = Map::new();
    for (_, name, target, parameters) in LINKS.iter().filter(|(of, ..)| *of == id) {
        let parameters: Map<_, _> = parameters
            .iter()
            .map(|(name, from)| ((*name).to_owned(), json!(from)))
            .collect();
        links.insert(
            (*name).to_owned(),
            json!({ "operationId": target, "parameters": parameters }),
        );
    }
    let declared = id.strip_prefix("put_").or(id.strip_prefix("patch_"));
    if let (Some(noun), true) = (declared, links.is_empty()) {
        let target = json!({ "operationId": format!("get_{noun}"), "parameters": { "name": "$response.body#/name" } });
        links.insert("self".to_owned(), target);
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let begun = status == "202";
        if begun {
            let target = json!({ "operationId": "get_operation", "parameters": { "id": "$response.body#/id" } });
            links.insert("operation".to_owned(), target);
        }
        // A 200 of an operation with a 202 is a plan of a dry run. The plan refers to no stored
        // object, so the answer has no links.
        let told = matches!(status.as_str(), "200" | "201" | "202")
            || (status == "204" && id == "put_blob");
        if told && !links.is_empty() && !(status == "200" && response_is_plan(response)) {
            response["links"] = Value::Object(links.clone());
        }
    }
}

fn response_is_plan(response: &Value) -> bool {
    response["content"]["application/json"]["schema"]["$ref"] == "#/components/schemas/NodePlan"
}
