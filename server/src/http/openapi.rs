//! The OpenAPI document, generated from the handlers and checked in as docs/openapi.json.

use muster_api::claims::ClaimSpec;
use muster_api::nodes::NodeSpec;
use muster_api::problem::Problem;
use serde_json::{Map, Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::declared::describe;
use super::links;

/// Builds the document before any path is added.
pub fn base_document() -> OpenApi {
    let mut components = Components::new();
    let mut schemas = vec![("Problem".to_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    // The handlers of nodes and claims are not generic, but their objects are. The derive macro
    // cannot name generic objects, so the schemas are added here.
    schemas.extend(describe::schemas::<NodeSpec>());
    schemas.extend(describe::schemas::<ClaimSpec>());
    components.schemas.extend(schemas);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token: mst_…"))
        .build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let info = InfoBuilder::new()
        .title("Muster")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Bare-metal fleet provisioning for GPU clusters."))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some(vec![SecurityRequirement::new(
            "token",
            Vec::<String>::new(),
        )]))
        .build()
}

/// Examples of request bodies: `{operationId: body}`. A test sends each example.
const EXAMPLES: &str = include_str!("examples.json");

/// Examples of answers: `{schema: body}`, or by operation for a schema without a name. A test
/// records the answers of a real server.
const ANSWERS: &str = include_str!("answers.json");

/// A refusal: status, name among the components, description, and an optional header with its
/// description.
type Refusal = (
    &'static str,
    &'static str,
    &'static str,
    Option<(&'static str, &'static str)>,
);

/// Refusals possible on many routes.
const REFUSALS: [Refusal; 12] = [
    (
        "400",
        "Invalid",
        "The request is malformed; `errors` names each place",
        None,
    ),
    (
        "401",
        "Unauthenticated",
        "The credential is missing or invalid",
        Some(("WWW-Authenticate", "Bearer")),
    ),
    (
        "403",
        "Forbidden",
        "The caller's role does not allow the request",
        None,
    ),
    (
        "404",
        "NotFound",
        "The object in the path does not exist",
        None,
    ),
    (
        "409",
        "Conflict",
        "The current state does not allow the request",
        Some((
            "Retry-After",
            "Seconds to wait, where another operation is in progress",
        )),
    ),
    (
        "412",
        "PreconditionFailed",
        "The precondition in If-Match or If-None-Match failed",
        Some(("ETag", "The current ETag, if the object exists")),
    ),
    (
        "413",
        "TooLarge",
        "The body exceeds the limit of the route",
        None,
    ),
    (
        "415",
        "UnsupportedMediaType",
        "The Content-Type of the body is not JSON",
        None,
    ),
    (
        "422",
        "Unprocessable",
        "The request is well-formed but invalid; `errors` lists each problem",
        None,
    ),
    ("428", "PreconditionRequired", "If-Match is missing", None),
    (
        "429",
        "TooManyRequests",
        "The caller exceeded the rate limit",
        Some(("Retry-After", "Seconds to wait")),
    ),
    (
        "503",
        "Unavailable",
        "The database is unreachable or full, or the server is in caution mode",
        Some(("Retry-After", "Seconds to wait")),
    ),
];

/// Completes the document with the parts common to many operations: refusals, `dry_run`, links and
/// examples.
pub fn complete_document(description: &OpenApi) -> Value {
    let mut document =
        serde_json::to_value(description).expect("a description is made of strings and maps");
    let examples: Value = serde_json::from_str(EXAMPLES).expect("examples.json is JSON");
    let answers: Map<String, Value> = serde_json::from_str(ANSWERS).expect("answers.json is JSON");
    document["components"]["responses"] = describe_refusals();
    close_tagged(&mut document["components"]["schemas"]);
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete_operation(path, method, operation, &examples, &answers);
        }
    }
    let shown = answers
        .into_iter()
        .map(|(name, body)| (name, json!({ "value": body })));
    document["components"]["examples"] = Value::Object(shown.collect());
    document
}

/// Adds an example to each successful answer.
fn add_example(id: &str, operation: &mut Value, answers: &Map<String, Value>) {
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let Some(content) = response
            .pointer_mut("/content/application~1json")
            .filter(|_| status.starts_with('2'))
        else {
            continue;
        };
        let name = content["schema"]["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next())
            .unwrap_or(id)
            .to_owned();
        if answers.contains_key(&name) {
            content["examples"] =
                json!({ "answer": { "$ref": format!("#/components/examples/{name}") } });
        }
    }
}

/// Closes an internally tagged variant as a whole. Such a variant is an `allOf` of the variant's
/// schema and the tag. A closed inner schema would reject the tag, so `unevaluatedProperties`
/// closes both together.
fn close_tagged(schemas: &mut Value) {
    let mut inner = Vec::new();
    for (_, schema) in schemas.as_object_mut().into_iter().flatten() {
        for variant in schema
            .get_mut("oneOf")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let parts = variant["allOf"].as_array().cloned().unwrap_or_default();
            let names = parts
                .iter()
                .filter_map(|part| part["$ref"].as_str()?.rsplit('/').next().map(str::to_owned));
            let before = inner.len();
            inner.extend(names);
            if inner.len() > before {
                variant["unevaluatedProperties"] = false.into();
            }
        }
    }
    for name in inner {
        if let Some(schema) = schemas.get_mut(&name).and_then(Value::as_object_mut) {
            schema.remove("additionalProperties");
        }
    }
}

fn describe_refusals() -> Value {
    let mut responses = Map::new();
    for (_, name, description, header) in REFUSALS {
        let schema = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
        let mut response = json!({ "description": description, "content": { "application/problem+json": schema } });
        if let Some((header, meaning)) = header {
            response["headers"] =
                json!({ header: { "description": meaning, "schema": { "type": "string" } } });
        }
        responses.insert(name.to_owned(), response);
    }
    Value::Object(responses)
}

fn complete_operation(
    path: &str,
    method: &str,
    operation: &mut Value,
    examples: &Value,
    answers: &Map<String, Value>,
) {
    let writes = !matches!(method, "get" | "head");
    let body = operation.get("requestBody").is_some();
    let named = |operation: &Value, place: &str| {
        let parameters = operation["parameters"].as_array();
        parameters.is_some_and(|all| all.iter().any(|parameter| parameter["in"] == place))
    };
    let holds = operation["parameters"].as_array().is_some_and(|all| {
        all.iter()
            .any(|one| matches!(one["name"].as_str(), Some("If-Match" | "If-None-Match")))
    });
    for (status, name, ..) in REFUSALS {
        let may = match status {
            "404" => path.contains('{'),
            "409" => writes,
            "412" => holds,
            "413" | "415" => body,
            "422" => writes || named(operation, "query"),
            "428" => holds && method == "delete",
            _ => true,
        };
        let known = operation["responses"].get(status).is_some();
        if may && !known {
            operation["responses"][status] =
                json!({ "$ref": format!("#/components/responses/{name}") });
        }
    }
    let id = operation["operationId"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if writes && id != "make_plan" {
        let parameter = json!({
            "name": "dry_run", "in": "query", "required": false, "schema": { "type": "boolean" },
            "description": "`true`: runs the same checks and stores no effect; the answer shows the effect of the request.",
        });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(parameter),
            None => operation["parameters"] = json!([parameter]),
        }
    }
    let begins = operation["responses"].get("202").is_some() && id != "cancel_operation";
    if begins && operation["responses"].get("200").is_none() {
        let schema = json!({ "schema": { "$ref": "#/components/schemas/NodePlan" } });
        operation["responses"]["200"] = json!({ "description": "The plan, for a request with `dry_run`", "content": { "application/json": schema } });
    }
    if let Some(example) = examples.get(&id) {
        for (_, content) in operation["requestBody"]["content"]
            .as_object_mut()
            .into_iter()
            .flatten()
        {
            content["example"] = example.clone();
        }
    }
    links::add_links(&id, operation);
    add_example(&id, operation, answers);
}
