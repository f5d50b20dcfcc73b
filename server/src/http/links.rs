//! Where each write leads: from its answer to what was made, changed or begun.

use serde_json::{Map, Value, json};

/// Operation, what the link is called, the operation that it leads to, and the parameters of that.
type Link = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The links that the operation's name alone does not tell.
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

/// Adds them to an operation's answers that something was made, changed or begun by.
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
        // The answer with 200 to what begins something is a plan: nothing is there yet.
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
