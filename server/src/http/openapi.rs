//! The description of the contract, generated from the handlers and checked in as docs/openapi.json.

use muster_api::claims::ClaimSpec;
use muster_api::nodes::NodeSpec;
use muster_api::problem::Problem;
use serde_json::{Map, Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::declared::describe;
use super::links;

/// The document before any path is added to it.
pub fn base() -> OpenApi {
    let mut components = Components::new();
    let mut schemas = vec![("Problem".to_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    // Their handlers are not generic, their objects are: named here, where the derive cannot.
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

/// What each request body can look like: `{operationId: body}`. A test sends every one of them.
const EXAMPLES: &str = include_str!("examples.json");

/// What each answer can look like: `{schema: body}`, or by the operation where its schema has no name. A server answered so: a test writes it down.
const ANSWERS: &str = include_str!("answers.json");

/// Status, name among the components, what it means, and the header beside it with its meaning.
type Refusal = (
    &'static str,
    &'static str,
    &'static str,
    Option<(&'static str, &'static str)>,
);

/// Every refusal that any route may answer with.
const REFUSALS: [Refusal; 12] = [
    (
        "400",
        "Invalid",
        "Not well formed: pointers say where",
        None,
    ),
    (
        "401",
        "Unauthenticated",
        "Not signed in",
        Some(("WWW-Authenticate", "Bearer")),
    ),
    ("403", "Forbidden", "The role is too low", None),
    (
        "404",
        "NotFound",
        "What the path names does not exist",
        None,
    ),
    (
        "409",
        "Conflict",
        "The state of things does not allow it",
        Some(("Retry-After", "Seconds, where something is under way")),
    ),
    (
        "412",
        "PreconditionFailed",
        "If-Match or If-None-Match does not hold",
        Some(("ETag", "The current one, if there is one")),
    ),
    (
        "413",
        "TooLarge",
        "The body is larger than the route takes",
        None,
    ),
    (
        "415",
        "UnsupportedMediaType",
        "The body is not JSON by its own words",
        None,
    ),
    (
        "422",
        "Unprocessable",
        "It cannot be meant: pointers say where",
        None,
    ),
    ("428", "PreconditionRequired", "If-Match is missing", None),
    (
        "429",
        "TooManyRequests",
        "More was asked than one caller may",
        Some(("Retry-After", "Seconds")),
    ),
    (
        "503",
        "Unavailable",
        "The database is away, full, or in caution mode",
        Some(("Retry-After", "Seconds")),
    ),
];

/// The document with what holds for every operation of a sort: its refusals, `dry_run`, links and examples.
pub fn complete(description: &OpenApi) -> Value {
    let mut document =
        serde_json::to_value(description).expect("a description is made of strings and maps");
    let examples: Value = serde_json::from_str(EXAMPLES).expect("examples.json is JSON");
    let answers: Map<String, Value> = serde_json::from_str(ANSWERS).expect("answers.json is JSON");
    document["components"]["responses"] = refusals();
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

/// Shows what each answer that is not a refusal looks like.
fn show(id: &str, operation: &mut Value, answers: &Map<String, Value>) {
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

/// A variant that is tagged from inside is the variant's own schema and the tag: closed on its own, the former would refuse the latter. Both
/// are closed together instead.
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

fn refusals() -> Value {
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
            "description": "`true`: the same checks, and nothing is written; the answer tells what would be.",
        });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(parameter),
            None => operation["parameters"] = json!([parameter]),
        }
    }
    let begins = operation["responses"].get("202").is_some() && id != "cancel_operation";
    if begins && operation["responses"].get("200").is_none() {
        let schema = json!({ "schema": { "$ref": "#/components/schemas/NodePlan" } });
        operation["responses"]["200"] = json!({ "description": "With `dry_run`: the plan", "content": { "application/json": schema } });
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
    links::add(&id, operation);
    show(&id, operation, answers);
}
