//! OpenAPI links of each write: from the answer to the new or changed object, or to the begun
//! operation.

use serde_json::{Map, Value, json};

/// The member of an operation with its links: `{ "self": ["get_claim", { "claim": "$response.body#/name" }] }`
/// names a link, the linked operation, and the parameters of the linked operation. [`add_links`] replaces
/// the member by the links of OpenAPI.
const EXTENSION: &str = "x-muster-links";

/// Adds the links to the successful answers of an operation.
pub(super) fn add_links(id: &str, operation: &mut Value) {
    let mut links = Map::new();
    let stated = operation
        .as_object_mut()
        .and_then(|members| members.remove(EXTENSION));
    for (name, link) in stated
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let link = json!({ "operationId": link[0], "parameters": link[1] });
        links.insert(name.clone(), link);
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
