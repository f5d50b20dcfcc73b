//! The examples and links of the description. The server accepts every example of a request body. A
//! server gave every example of an answer. Every link leads to an existing operation.

mod answers; // Answers of a server, compared with the stored examples
mod bodies; // Examples of request bodies, sent to a server
mod links; // Links from writes to operations
mod world; // A server with a row for every list

use std::collections::BTreeMap;

use serde_json::Value;

use crate::simulated::World;
use crate::support::server::{Reply, Server};

/// Answers of one server by name of the schema, or by operation id for a schema without a name.
struct Answers {
    description: Value,
    by_name: BTreeMap<String, Value>,
}

/// Returns every operation with path and method.
fn operations(description: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let items = description["paths"].as_object().unwrap().iter();
    items.flat_map(|(path, item)| {
        let operations = item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| *key != "parameters");
        operations.map(|(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn id(operation: &Value) -> &str {
    operation["operationId"].as_str().unwrap()
}

/// Returns the successful JSON answers of an operation: status and media type.
fn successes(operation: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let responses = operation["responses"].as_object().unwrap().iter();
    responses
        .filter(|(status, _)| status.starts_with('2'))
        .filter_map(|(status, response)| {
            let content = response.pointer("/content/application~1json")?;
            Some((status.as_str(), content))
        })
}

/// Returns the name of an answer: the name of the schema, or else the operation id.
fn name(operation: &Value, content: &Value) -> String {
    let schema = content["schema"]["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    schema.unwrap_or_else(|| id(operation)).to_owned()
}

impl Answers {
    fn new() -> Self {
        let description = serde_json::to_value(muster_server::http::description()).unwrap();
        Self {
            description,
            by_name: BTreeMap::new(),
        }
    }

    /// Keeps the first answer of each name. Panics on a status without a documented JSON answer.
    fn keep(&mut self, operation: &str, reply: &Reply) {
        let (_, _, of) = operations(&self.description)
            .find(|(_, _, known)| id(known) == operation)
            .unwrap();
        let documented = successes(of).find(|(status, _)| *status == reply.status.to_string());
        let (_, content) =
            documented.unwrap_or_else(|| panic!("{operation}: {} {}", reply.status, reply.text));
        let name = name(of, content);
        self.by_name
            .entry(name)
            .or_insert_with(|| reply.body.clone());
    }
}

/// Fills every list of the server. Returns the world and the path parameters for [`reads`].
pub(crate) async fn lived_in(server: Server) -> (World, Vec<(&'static str, String)>) {
    let mut world = world::build(server).await;
    let named = world::act(&mut world, &mut Answers::new()).await;
    (world, named)
}

/// Returns every GET of a description with a JSON answer: operation id and path. The path
/// parameters are replaced by the names.
pub(crate) fn reads(description: &Value, named: &[(&str, String)]) -> Vec<(String, String)> {
    let mut reads = Vec::new();
    for (route, method, operation) in operations(description) {
        if method != "get" || successes(operation).next().is_none() {
            continue;
        }
        let own = match id(operation) {
            "get_webhook" | "list_webhook_deliveries" => "ops",
            "get_role_binding" => "infra",
            "get_credential" => "bmc",
            "get_network_profile" => "bonded",
            "get_maintenance_window" => "nights",
            "get_monitor" => "errors",
            "get_signing_key" => "release",
            "get_site" => "lab",
            "get_rack" => "r1",
            "get_subnet" => "prov",
            "get_hardware_profile" => "virtual",
            "get_image" => "debian-12",
            "get_stack" => "base",
            "get_suite" => "smoke",
            "get_cluster" => "slurm",
            _ => "gpu",
        };
        let fixed = [
            ("node", "n1"),
            ("site", "lab"),
            ("rack", "r1"),
            ("pool", "gpu"),
            ("claim", "c-n1"),
            ("revision", "2"),
            ("rollout", "gpu-1"),
            ("agent", "first"),
        ];
        let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
        let all = fixed
            .iter()
            .chain(named)
            .fold(route.replace("{name}", own), |path, (name, value)| {
                path.replace(&format!("{{{name}}}"), value)
            });
        let takes = |name: &str| {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            parameters
                .into_iter()
                .any(|one| one["name"] == name && one["in"] == "query")
        };
        let mut query: Vec<String> = Vec::new();
        query.extend(takes("limit").then(|| "limit=2".to_owned()));
        if id(operation) == "list_components" {
            let (_, serial) = named.iter().find(|(name, _)| *name == "serial").unwrap();
            query.push(format!("serial={serial}"));
        }
        reads.push((
            id(operation).to_owned(),
            format!("{all}?{}", query.join("&")),
        ));
    }
    reads
}

fn example(description: &Value, operation: &str) -> Value {
    let (_, _, of) = operations(description)
        .find(|(_, _, known)| id(known) == operation)
        .unwrap();
    let content = of["requestBody"]["content"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap();
    content["example"].clone()
}
