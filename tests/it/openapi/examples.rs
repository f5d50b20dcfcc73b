//! The examples and links of the description. The server accepts every example of a request body. A
//! server gave every example of an answer. Every link leads to an existing operation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::SignedDuration;
use muster_core::facts::Neighbour;
use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_server::tasks::{seals, sweeps};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::schema::faults;
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

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
    let mut world = world(server).await;
    let named = act(&mut world, &mut Answers::new()).await;
    (world, named)
}

/// Builds three claimed nodes with a history. The first node failed a sweep and was recovered.
async fn world(server: Server) -> World {
    let mut world = World::on(server, 3, |path, mut body| {
        if path == "/v1/racks/r1" {
            body["spec"]["cables"] = json!([{ "node": "n1", "nic": "eth0", "switch": "leaf1", "port": "Ethernet1" }]);
        }
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] =
                json!({ "sweep": "smoke", "recovery": { "rungs": ["collect", "restart_services"] } });
        }
        body
    })
    .await;
    let heard = Neighbour {
        nic: "eth0".into(),
        chassis: "02:00:5e:00:53:03".into(),
        port: "02:00:5e:00:53:01".into(),
        system_name: Some("leaf1.example.net".into()),
        port_description: Some("Ethernet1".into()),
    };
    world.machine("n1", |machine| machine.neighbours = vec![heard]);
    world.settle().await;
    for name in ["n1", "n2", "n3"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    world.gates("n1", &[Verdict::Fail]);
    sweeps::round(&world.server.app, NodeId(Uuid::nil()))
        .await
        .unwrap();
    world.settle().await;
    world
}

/// Performs the writes of people, runs the pairs of the pool, and keeps the answers. Returns the
/// path parameters for [`reads`].
async fn act(world: &mut World, answers: &mut Answers) -> Vec<(&'static str, String)> {
    let admin = world.admin.clone();
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("{value} is no text"))
            .to_owned()
    };
    for (path, body) in [
        ("/v1/network_profiles/bonded", fleet::network_profile()),
        (
            "/v1/maintenance_windows/nights",
            fleet::maintenance_window(),
        ),
        ("/v1/monitors/errors", fleet::monitor()),
        (
            "/v1/credentials/root",
            json!({ "spec": { "purpose": "adopt", "secret": "key" } }),
        ),
        (
            "/v1/role_bindings/infra",
            json!({ "spec": { "subject": "group:infra", "role": "operator" } }),
        ),
        (
            "/v1/webhooks/ops",
            example(&answers.description, "put_webhook"),
        ),
        ("/v1/suites/pairs", crate::pairs::suite()),
    ] {
        admin.put(path, &body).await.expect(201);
    }
    let mut post = async |operation: &str, path: &str, body: Value| {
        let reply = admin.header("if-match", "*").post(path, &body).await;
        answers.keep(operation, &reply);
        reply.body
    };
    let token = post(
        "create_token",
        "/v1/tokens",
        json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 }),
    )
    .await;
    post(
        "enrol_agent",
        "/v1/sites/lab/agents",
        json!({ "name": "second" }),
    )
    .await;
    let until = world.server.app.clock.now() + SignedDuration::from_hours(48);
    let waiver = json!({ "node": "n1", "gate": "node.profile", "reason": "a spare disk arrives on Friday", "until": until });
    let waiver = post("create_waiver", "/v1/waivers", waiver).await;
    post("test_webhook", "/v1/webhooks/ops/actions/test", json!({})).await;
    post(
        "make_plan",
        "/v1/plan",
        json!({ "objects": [{ "kind": "claim", "name": "c-n2", "absent": true }] }),
    )
    .await;
    post(
        "act_on_node",
        "/v1/nodes/n3/actions/drain?dry_run=true",
        json!({}),
    )
    .await;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(
        &mut conn,
        "ada",
        "no hash",
        "viewer",
        world.server.app.clock.now(),
    )
    .await
    .unwrap();
    let user = admin.get("/v1/users").await.expect(200).body["items"][0]["id"].clone();
    post(
        "disable_user",
        &format!("/v1/users/{}/actions/disable", text(&user)),
        json!({}),
    )
    .await;
    let run = post(
        "run_pairs",
        "/v1/pools/gpu/actions/run-pairs",
        json!({ "suite": "pairs" }),
    )
    .await;
    drop(conn);
    world.settle().await;
    let looked = admin
        .post("/v1/nodes/n1/actions/check-drift", &json!({}))
        .await
        .expect(202);
    world.settle().await;
    // Simulated machines write neither console text nor log lines of jobs, so the test
    // inserts both.
    for statement in [
        "INSERT INTO console_chunks (node_id, id, at, text) SELECT id, 10, $1::timestamptz, 'n1 login: ' FROM nodes WHERE name = 'n1'",
        "INSERT INTO job_logs (job_id, attempt, at, text) SELECT id, 1, $1::timestamptz, 'compares it with stack base' FROM jobs WHERE step = 'drift'",
    ] {
        let now = world.server.app.clock.now().to_string();
        sqlx::query(statement)
            .bind(now)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
    let change = json!({ "spec": { "version": "2", "sysctl": { "vm.swappiness": "1" } } });
    admin.patch("/v1/stacks/base", &change).await.expect(200);
    world.agent.report_jobs().await.unwrap();
    let rollout = json!({ "pool": "gpu", "revision": 2 });
    let planned = admin.post("/v1/rollouts", &rollout).await;
    answers.keep("plan_rollout", &planned);
    let start = json!({ "plan": planned.body["plan"] });
    let path = "/v1/rollouts/gpu-1/actions/start";
    answers.keep("start_rollout", &admin.post(path, &start).await);
    let path = "/v1/rollouts/gpu-1/actions/halt";
    let reason = json!({ "reason": "the fabric is being measured" });
    answers.keep("halt_rollout", &admin.post(path, &reason).await);
    alarm(&admin, answers).await;
    seals::round(&world.server.app, 0).await.unwrap();
    let components = admin.get("/v1/nodes/n1/components").await.expect(200).body;
    vec![
        ("approval", text(&waiver["approval"])),
        ("waiver", text(&waiver["id"])),
        ("token", text(&token["token"]["id"])),
        ("user", text(&user)),
        ("run", text(&run["id"])),
        ("id", text(&looked.body["id"])),
        ("serial", text(&components["items"][0]["serial"])),
    ]
}

/// Reports alerts of three nodes at once, lists the opened breaker, and resets the breaker.
async fn alarm(admin: &Caller, answers: &mut Answers) {
    // Three alerts are more than chance: the third alert opens a breaker.
    let alert = |node: &str| {
        json!({ "status": "firing", "startsAt": "2026-01-05T07:59:00Z", "fingerprint": node,
                "labels": { "alertname": "GpuXid79", "node": node, "muster": "quarantine" },
                "annotations": { "summary": "GPU 3 has fallen off the bus" } })
    };
    let alerts = json!({ "version": "4", "alerts": [alert("n3"), alert("n2"), alert("n1")] });
    answers.keep("report_alerts", &admin.post("/v1/alerts", &alerts).await);
    let breaker = admin.get("/v1/breakers").await.expect(200).body["items"][0].clone();
    // The example shows an open breaker, so the list is read before the reset.
    answers.keep("list_breakers", &admin.get("/v1/breakers?limit=2").await);
    let reset = admin
        .post(
            &format!("/v1/breakers/{}/reset", breaker["id"].as_str().unwrap()),
            &json!({}),
        )
        .await;
    answers.keep("reset_breaker", &reset);
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

/// Sends every GET and keeps the answers. Panics on a refusal or an empty list.
async fn read(admin: &Caller, answers: &mut Answers, named: &[(&str, String)]) {
    let mut empty = Vec::new();
    for (operation, path) in reads(&answers.description, named) {
        let reply = admin.get(&path).await;
        let items = reply.body["items"].as_array();
        match reply.status == 200 && items.is_none_or(|items| !items.is_empty()) {
            true => answers.keep(&operation, &reply),
            false => empty.push(format!("{path}: {}", reply.text)),
        }
    }
    assert!(empty.is_empty(), "nothing is shown: {empty:#?}");
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

/// Replaces values that differ between runs: ids are numbered in order of appearance; secrets,
/// hashes, page tokens and certificates get a fixed text.
fn settled(value: &mut Value, known: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (name.as_str(), member.as_str()) {
                    ("secret", Some(_)) => *member = json!("mst_…, shown this once"),
                    ("token", Some(_)) => *member = json!("msa_…, shown this once"),
                    ("hash" | "secret_hash", Some(text)) => *member = json!("0".repeat(text.len())),
                    ("next_page_token", Some(_)) => *member = json!("as the server made it"),
                    ("authority", Some(_)) => {
                        *member =
                            json!("-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n")
                    }
                    _ => settled(member, known),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settled(item, known)),
        Value::String(text) => *text = with_settled_ids(text, known),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn with_settled_ids(text: &str, known: &mut Vec<String>) -> String {
    let mut settled = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let found = rest.get(..36).filter(|id| id.parse::<Uuid>().is_ok());
        let step = match found {
            Some(id) => {
                let number = known.iter().position(|one| one == id).unwrap_or_else(|| {
                    known.push(id.to_owned());
                    known.len() - 1
                });
                settled.push_str(&format!("0197b0f2-9a3c-7000-8000-{number:012}"));
                36
            }
            None => {
                let one = rest.chars().next().unwrap();
                settled.push(one);
                one.len_utf8()
            }
        };
        rest = &rest[step..];
    }
    settled
}

/// Collects the paths of all members of a value, at any depth.
fn members(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    for item in value.as_array().into_iter().flatten() {
        members(item, at, found);
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        // The members of an event's detail depend on the event, and are not
        // compared.
        if name != "detail" {
            members(member, &at, found);
        }
        found.insert(at);
    }
}

/// `UPDATE_EXAMPLES=1 cargo nextest run -p muster-tests -E 'test(every_answer_is_shown)'` writes
/// the answers again. Run the test of the description with `UPDATE_OPENAPI=1` afterwards.
#[tokio::test]
async fn every_answer_is_shown_as_a_server_gave_it() {
    let mut answers = Answers::new();
    let mut world = world(Server::start().await).await;
    let named = act(&mut world, &mut answers).await;
    read(&world.admin.clone(), &mut answers, &named).await;
    let Answers {
        description,
        by_name,
    } = answers;
    let mut known = Vec::new();
    let given: Map<String, Value> = by_name
        .into_iter()
        .map(|(name, mut body)| {
            settled(&mut body, &mut known);
            (name, body)
        })
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src/http/answers.json");
    if std::env::var_os("UPDATE_EXAMPLES").is_some() {
        std::fs::write(&path, format!("{:#}\n", Value::Object(given.clone()))).unwrap();
    }
    let stored: Map<String, Value> =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut wanted = BTreeSet::new();
    let mut wrong = Vec::new();
    for (_, _, operation) in operations(&description) {
        for (status, content) in successes(operation) {
            let name = name(operation, content);
            let (Some(shown), Some(answered)) = (stored.get(&name), given.get(&name)) else {
                wrong.push(format!(
                    "{} {status}: no answer of {name}: give one here, then UPDATE_EXAMPLES",
                    id(operation)
                ));
                continue;
            };
            for body in [shown, answered] {
                let faults = faults(&description, &content["schema"], body);
                wrong.extend(faults.iter().map(|fault| format!("{name}{fault}")));
            }
            let [mut here, mut there] = [BTreeSet::new(), BTreeSet::new()];
            members(shown, "", &mut here);
            members(answered, "", &mut there);
            let differs: Vec<_> = here.symmetric_difference(&there).collect();
            if !differs.is_empty() {
                wrong.push(format!(
                    "{name} is shown otherwise than it is answered: {differs:?}; UPDATE_EXAMPLES"
                ));
            }
            wanted.insert(name);
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        stored.keys().cloned().collect::<BTreeSet<_>>(),
        wanted,
        "an example of what is not answered"
    );
}

/// Operations with a well-formed but refused example, and the status. The object or state named by
/// the example is missing on the test's server.
const REFUSED: [(&str, u16); 14] = [
    ("replace_parts", 422),
    ("confirm_caution", 409),
    ("redeliver_event", 422),
    ("run_pairs", 422),
    ("put_blob", 422),
    ("match_node", 422),
    ("start_rollout", 409),
    ("halt_rollout", 409),
    ("resume_rollout", 409),
    ("promote_rollout", 409),
    ("adjust_rollout", 409),
    ("skip_rollout_node", 409),
    ("retry_rollout_node", 409),
    ("requeue_rollout_node", 409),
];

#[tokio::test]
async fn every_body_has_an_example_that_is_taken() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let server = Server::start().await;
    let admin = server.admin().await;
    for (name, path) in [
        ("put_site", "/v1/sites/lab"),
        ("put_rack", "/v1/racks/r1"),
        ("put_subnet", "/v1/subnets/prov"),
        ("put_hardware_profile", "/v1/hardware_profiles/virtual"),
        ("put_network_profile", "/v1/network_profiles/bonded"),
        ("put_maintenance_window", "/v1/maintenance_windows/nights"),
        ("put_monitor", "/v1/monitors/errors"),
        ("put_credential", "/v1/credentials/bmc"),
        ("put_image", "/v1/images/debian-12"),
        ("put_stack", "/v1/stacks/base"),
        ("put_suite", "/v1/suites/smoke"),
        ("put_cluster", "/v1/clusters/slurm"),
        ("put_pool", "/v1/pools/gpu"),
        ("put_webhook", "/v1/webhooks/ops"),
        ("put_role_binding", "/v1/role_bindings/infra"),
        ("put_node", "/v1/nodes/n1"),
    ] {
        admin
            .put(path, &example(&description, name))
            .await
            .expect(201);
    }
    admin
        .put(
            "/v1/credentials/root",
            &json!({ "spec": { "purpose": "adopt", "secret": "key" } }),
        )
        .await
        .expect(201);
    for number in 2..=3 {
        admin
            .put(&format!("/v1/nodes/n{number}"), &fleet::node(number))
            .await
            .expect(201);
    }
    fleet::arrive(&server).await;
    admin
        .post(
            "/v1/claims",
            &json!({ "name": "held", "spec": { "pool": "gpu", "node": "n3" } }),
        )
        .await
        .expect(201);
    admin
        .post("/v1/rollouts", &json!({ "pool": "gpu", "revision": 1 }))
        .await
        .expect(201);
    // Adoption requires the state `discovered`.
    sqlx::query("UPDATE nodes SET state = 'discovered' WHERE name = 'n2'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let mut tried = 0;
    for (route, method, operation) in operations(&description) {
        let Some(contents) = operation["requestBody"]["content"].as_object() else {
            continue;
        };
        let name = match id(operation).split_once('_').map_or("", |(_, noun)| noun) {
            "site" => "lab",
            "rack" => "r1",
            "subnet" => "prov",
            "hardware_profile" => "virtual",
            "network_profile" => "bonded",
            "maintenance_window" => "nights",
            "monitor" => "errors",
            "credential" => "bmc",
            "image" => "debian-12",
            "stack" => "base",
            "suite" => "smoke",
            "cluster" => "slurm",
            "role_binding" => "infra",
            "pool" => "gpu",
            _ => "ops",
        };
        let path = route
            .replace("{name}", name)
            .replace("{site}", "lab")
            .replace("{pool}", "gpu");
        let path = path
            .replace("{claim}", "held")
            .replace("{rollout}", "gpu-1")
            .replace("{action}", "quarantine")
            .replace("{hex}", &"0".repeat(64));
        let path = path.replace(
            "{node}",
            if id(operation) == "adopt_node" {
                "n2"
            } else {
                "n1"
            },
        );
        for (media, content) in contents {
            assert!(
                !content["example"].is_null(),
                "{}: {media} has no example",
                id(operation)
            );
            let body = match &content["example"] {
                Value::String(text) => text.clone(),
                body => body.to_string(),
            };
            let caller = match method {
                "put" => admin.header("content-type", media),
                _ => admin.header("content-type", media).header("if-match", "*"),
            };
            let query = if id(operation) == "make_plan" {
                ""
            } else {
                "?dry_run=true"
            };
            let sent = caller
                .send(
                    method.to_uppercase().parse().unwrap(),
                    &format!("{path}{query}"),
                    body.into(),
                )
                .await;
            let refused = REFUSED
                .iter()
                .find(|(known, _)| *known == id(operation))
                .map(|(_, status)| *status);
            let taken = refused.map_or(sent.status < 300, |status| sent.status == status);
            assert!(taken, "{}: {} {}", id(operation), sent.status, sent.text);
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried} bodies");
}

/// Follows the links from each write to the object made or changed, or to the begun operation. A
/// removal needs no link, and neither does `make_plan`, because a plan writes no object.
#[test]
fn every_write_leads_to_what_it_makes() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut followed = 0;
    for (path, method, operation) in operations(&description) {
        let removes = method == "delete" && operation["responses"].get("204").is_some();
        if matches!(method, "get" | "head") || removes || id(operation) == "make_plan" {
            continue;
        }
        let responses = operation["responses"].as_object().unwrap();
        let linked = responses
            .iter()
            .filter(|(_, response)| response["links"].is_object());
        assert!(
            linked.clone().next().is_some(),
            "{}: where does it lead? say so in links.rs",
            id(operation)
        );
        for (status, response) in linked {
            for (link, to) in response["links"].as_object().unwrap() {
                let target = to["operationId"].as_str().unwrap();
                let (route, _, _) = operations(&description)
                    .find(|(_, _, known)| id(known) == target)
                    .unwrap_or_else(|| {
                        panic!(
                            "{}: {link} leads to {target}, which there is not",
                            id(operation)
                        )
                    });
                let parameters = to["parameters"].as_object().unwrap();
                let needed: BTreeSet<&str> = route
                    .split('{')
                    .skip(1)
                    .map(|rest| rest.split('}').next().unwrap())
                    .collect();
                assert_eq!(
                    parameters
                        .keys()
                        .map(String::as_str)
                        .collect::<BTreeSet<_>>(),
                    needed,
                    "{}: {link}",
                    id(operation)
                );
                for from in parameters.values().map(|from| from.as_str().unwrap()) {
                    if let Some(pointer) = from.strip_prefix("$response.body#") {
                        let shown =
                            response["content"]["application/json"]["examples"]["answer"]["$ref"]
                                .as_str();
                        let shown = shown
                            .unwrap_or_else(|| panic!("{} {status} shows nothing", id(operation)));
                        let body = &description.pointer(&shown[1..]).unwrap()["value"];
                        assert!(
                            body.pointer(pointer).is_some(),
                            "{} {status}: no {pointer} in {body}",
                            id(operation)
                        );
                    } else {
                        let name = from.strip_prefix("$request.path.").unwrap();
                        assert!(
                            path.contains(&format!("{{{name}}}")),
                            "{}: {from}",
                            id(operation)
                        );
                    }
                    followed += 1;
                }
            }
        }
    }
    assert!(followed > 50, "{followed} links");
}
