//! One walk of every endpoint by every role: over the whole fleet, within the site of the objects,
//! and within another site. Calls to be refused are sent first, without `dry_run`, and must leave
//! the database unchanged. Open calls follow as dry runs. Reads and
//! pages have no dry run, so open reads and pages are sent for real.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::lifecycle::state::Action;
use reqwest::Method;
use serde_json::{Value, json};

use super::expected::{ABSENT, ACTIONS, EXPECTED, PAGES, Reach};
use super::{only_in, two_sites};
use crate::dry_runs::dump;
use crate::support::server::{Caller, Reply, Server};

const ROLES: [(char, Role); 6] = [
    ('g', Role::Guest),
    ('v', Role::Viewer),
    ('u', Role::Automation),
    ('o', Role::Operator),
    ('r', Role::ReleaseOwner),
    ('a', Role::Admin),
];

/// An endpoint with objects of the site `lab` in path and body.
struct Call {
    name: String,
    method: Method,
    path: String,
    body: Vec<u8>,
    roles: &'static str,
    reach: Reach,
    /// A page, or a form of a page. Neither has a dry run.
    page: bool,
}

/// The scope of a caller's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Fleet,
    /// The site of the objects.
    Own,
    /// Another site.
    Foreign,
}

struct Walker {
    letter: char,
    within: Within,
    caller: Caller,
}

/// The objects named in paths. Every object with a site is in the site `lab`.
struct Objects {
    parameters: Vec<(&'static str, String)>,
    /// Ids hidden from callers of another site, in every answer.
    own: Vec<String>,
}

/// The expected answer to a caller of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Any answer except a refusal because of the caller.
    Open,
    Forbidden,
    /// 404, as for a missing object.
    Hidden,
    /// 403, 404 or 422: the body names an object outside the caller's scope.
    Refused,
}

fn expected(call: &Call, letter: char, within: Within) -> Answer {
    let may = call.roles.contains(letter);
    match (call.reach, within) {
        (Reach::Object | Reach::ObjectByFleet, Within::Foreign) => Answer::Hidden,
        // A guest may not read the object.
        (Reach::Object | Reach::ObjectByFleet, _) if letter == 'g' => Answer::Hidden,
        (Reach::ObjectByFleet, Within::Own) => Answer::Forbidden,
        (Reach::Fleet, Within::Own | Within::Foreign) => Answer::Forbidden,
        (Reach::Body, Within::Foreign) if may => Answer::Refused,
        _ if may => Answer::Open,
        _ => Answer::Forbidden,
    }
}

/// Makes an object for every path parameter.
async fn objects(server: &Server, admin: &Caller) -> Objects {
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("{value} is no text"))
            .to_owned()
    };
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "releases_per_hour": 0 } }),
        )
        .await
        .expect(200);
    // The requester takes no part in the walk, because requesters may not approve their own
    // requests.
    let asker = server.caller(Role::Operator).await;
    assert_eq!(
        asker
            .expecting(1)
            .delete("/v1/claims/held")
            .await
            .problem()
            .1,
        "second_person"
    );
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "releases_per_hour": null } }),
        )
        .await
        .expect(200);
    admin
        .post("/v1/sites/lab/agents", &json!({ "name": "first" }))
        .await
        .expect(201);
    let until = server.app.clock.now() + SignedDuration::from_hours(48);
    let waiver = json!({ "node": "n1", "gate": "node.profile", "reason": "a part is on its way", "until": until });
    let waiver = asker.post("/v1/waivers", &waiver).await.expect(201);
    let token = json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 });
    let token = admin.post("/v1/tokens", &token).await.expect(201);
    let mut conn = server.app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "bob", "no hash", "guest", server.app.clock.now())
        .await
        .unwrap();
    let user: uuid::Uuid = sqlx::query_scalar("SELECT id FROM users WHERE name = 'bob'")
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    let job: uuid::Uuid = sqlx::query_scalar(
        "INSERT INTO jobs (id, node_id, site_id, operation_id, visit, step, kind, epoch, state, not_before, timeout_s, created_at)
         SELECT gen_random_uuid(), n.id, n.site_id, o.id, 1, 'inventory', 'inventory', 0, 'queued', now(), 60, now()
         FROM nodes n JOIN operations o ON o.node_id = n.id WHERE o.kind = 'accept' AND n.name = 'n1' RETURNING id",
    )
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    let claim = admin.get("/v1/claims/held").await.expect(200).body;
    let approvals = admin.get("/v1/approvals").await.expect(200).body;
    let approvals = approvals["items"].as_array().unwrap();
    let approval = text(
        &approvals
            .iter()
            .find(|approval| approval["claim"] == "held")
            .unwrap()["id"],
    );
    let operation = text(&claim["status"]["operation"]);
    let mut own = vec![
        text(&claim["id"]),
        approval.clone(),
        operation.clone(),
        text(&waiver.body["id"]),
    ];
    for path in [
        "/v1/nodes/n1",
        "/v1/nodes/n2",
        "/v1/sites/lab",
        "/v1/racks/r1",
        "/v1/pools/gpu",
        "/v1/clusters/slurm",
    ] {
        own.push(text(&admin.get(path).await.expect(200).body["id"]));
    }
    let rollout: uuid::Uuid = sqlx::query_scalar(
        "INSERT INTO rollouts (id, name, pool_id, target_id, policy, state, digest, expires_at, planned, actor, created_at)
         SELECT gen_random_uuid(), 'gpu-1', pool_id, id, '{}', 'planned', '', now(), 0, 'test', now() FROM pool_revisions
         WHERE pool_id = (SELECT id FROM objects WHERE kind = 'pool' AND name = 'gpu') LIMIT 1 RETURNING id",
    )
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    own.push(rollout.to_string());
    let nothing = uuid::Uuid::nil().to_string();
    let parameters = vec![
        ("node", "n1".to_owned()),
        ("site", "lab".to_owned()),
        ("rack", "r1".to_owned()),
        ("pool", "gpu".to_owned()),
        ("stack", "base".to_owned()),
        ("claim", "held".to_owned()),
        ("agent", "first".to_owned()),
        ("hex", "0".repeat(64)),
        ("operation", operation.clone()),
        ("id", operation),
        ("approval", approval),
        ("waiver", text(&waiver.body["id"])),
        ("token", text(&token.body["token"]["id"])),
        ("user", user.to_string()),
        ("job", job.to_string()),
        // Revision and rollout have the place of their pool. Breaker and run do not exist.
        ("revision", "1".to_owned()),
        ("rollout", "gpu-1".to_owned()),
        ("breaker", nothing.clone()),
        ("run", nothing),
    ];
    Objects { parameters, own }
}

impl Objects {
    fn fill(&self, route: &str) -> String {
        let name = match route.split('/').nth(2).unwrap_or_default() {
            "sites" => "lab",
            "racks" => "r1",
            "subnets" => "prov",
            "clusters" => "slurm",
            "pools" => "gpu",
            "images" => "debian-12",
            "stacks" => "base",
            "suites" => "smoke",
            "credentials" => "bmc",
            "hardware_profiles" => "virtual",
            "network_profiles" => "bonded",
            "maintenance_windows" => "nights",
            "monitors" => "errors",
            "signing_keys" => "release",
            _ => "x",
        };
        let path = self
            .parameters
            .iter()
            .fold(route.replace("{name}", name), |path, (parameter, value)| {
                path.replace(&format!("{{{parameter}}}"), value)
            });
        assert!(!path.contains('{'), "{path}: name an object here");
        path
    }
}

/// Returns the body of an operation, with the objects of the site `lab` missing from the path.
fn body(name: &str, server: &Server) -> Value {
    let until = server.app.clock.now() + SignedDuration::from_hours(48);
    match name {
        "create_claim" => json!({ "name": "other", "spec": { "pool": "gpu", "node": "n1" } }),
        "create_waiver" => {
            json!({ "node": "n1", "gate": "node.profile", "reason": "a part is on its way", "until": until })
        }
        "create_token" => {
            json!({ "name": "t", "role": "viewer", "scope": { "site": "lab" }, "expires_in_s": 3600 })
        }
        "make_plan" => json!({ "objects": [{ "kind": "claim", "name": "held", "absent": true }] }),
        "report_alerts" => {
            json!({ "version": "4", "alerts": [{ "status": "firing", "startsAt": server.app.clock.now(),
            "labels": { "alertname": "Xid", "node": "n1", "muster": "quarantine" }, "fingerprint": "f" }] })
        }
        "plan_rollout" => json!({ "pool": "gpu", "revision": 1 }),
        "adopt_node" => json!({ "pool": "gpu", "credential": "bmc" }),
        _ => json!({}),
    }
}

/// Returns a call of every documented operation, and of every action for a path with an action.
fn operations(server: &Server, objects: &Objects) -> Vec<Call> {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut calls = Vec::new();
    let mut named = BTreeSet::new();
    for (route, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| *key != "parameters")
        {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            let method: Method = method.to_uppercase().parse().unwrap();
            let reads = matches!(method, Method::GET | Method::HEAD);
            let body = if reads {
                Vec::new()
            } else {
                body(&name, server).to_string().into_bytes()
            };
            if route.contains("{action}") {
                assert_eq!(
                    route, "/v1/nodes/{node}/actions/{action}",
                    "say in ACTIONS who may do what there"
                );
                calls.extend(ACTIONS.iter().flat_map(|(roles, actions)| {
                    actions.iter().map(|action| Call {
                        name: action.to_string(),
                        method: method.clone(),
                        path: objects.fill(&route.replace("{action}", action)),
                        body: body.clone(),
                        roles,
                        reach: Reach::Object,
                        page: false,
                    })
                }));
                continue;
            }
            let row = EXPECTED
                .iter()
                .find(|(_, _, names)| names.contains(&name.as_str()));
            let (roles, reach, _) = row
                .unwrap_or_else(|| panic!("who may {name} ({method} {route})? say so in EXPECTED"));
            named.insert(name.clone());
            calls.push(Call {
                name,
                method,
                path: objects.fill(route),
                body,
                roles,
                reach: *reach,
                page: false,
            });
        }
    }
    // The route is not part of the contract. Metrics cover the whole fleet, like a list of all
    // objects.
    let (name, path) = ("show_metrics".to_owned(), "/metrics".to_owned());
    let (roles, reach) = ("vruoa", Reach::Fleet);
    calls.push(Call {
        name,
        method: Method::GET,
        path,
        body: Vec::new(),
        roles,
        reach,
        page: false,
    });
    let known: usize = EXPECTED.iter().map(|(_, _, names)| names.len()).sum();
    assert_eq!(named.len(), known, "EXPECTED names what is not");
    calls
}

/// Returns a call of every page and form, and of every action for a path with an action.
fn pages(_: &Server, objects: &Objects) -> Vec<Call> {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src/ui/mod.rs");
    let text = std::fs::read_to_string(sources).unwrap();
    let mut calls = Vec::new();
    let mut named = BTreeSet::new();
    // rustfmt may put the path of a long route on a separate line.
    for part in text.split(".route(").skip(1) {
        let part = part.trim_start().strip_prefix('"').unwrap();
        let (route, call) = part.split_once('"').unwrap();
        let row = PAGES.iter().find(|(_, _, routes)| routes.contains(&route));
        let (roles, reach, _) =
            row.unwrap_or_else(|| panic!("who may see or send {route}? say so in PAGES"));
        named.insert(route);
        let method = if call.split(')').next().unwrap().contains("post(") {
            Method::POST
        } else {
            Method::GET
        };
        let words: Vec<(&str, &str)> = match route {
            _ if roles.is_empty() => continue,
            "/ui/nodes/{node}/actions/{action}" => ACTIONS
                .iter()
                .flat_map(|(roles, actions)| actions.iter().map(move |action| (*roles, *action)))
                .collect(),
            "/ui/approvals/{approval}/{word}" => vec![(roles, "approve"), (roles, "deny")],
            "/ui/rollouts/{rollout}/acts/{word}" => vec![
                (roles, "start"),
                (roles, "resume"),
                (roles, "promote"),
                (roles, "adjust"),
                (roles, "skip"),
                (roles, "retry"),
            ],
            "/ui/users/{user}/{word}" => vec![(roles, "disable"), (roles, "enable")],
            _ => vec![(roles, "")],
        };
        for (roles, word) in words {
            let path = objects.fill(&route.replace("{action}", word).replace("{word}", word));
            let (name, method) = (format!("{method} {path}"), method.clone());
            calls.push(Call {
                name,
                method,
                path,
                body: Vec::new(),
                roles,
                reach: *reach,
                page: true,
            });
        }
    }
    assert_eq!(
        named.len(),
        PAGES
            .iter()
            .map(|(_, _, routes)| routes.len())
            .sum::<usize>(),
        "PAGES names what is not"
    );
    calls
}

async fn send(caller: &Caller, call: &Call, query: &str) -> Reply {
    let content = if call.page {
        "application/x-www-form-urlencoded"
    } else {
        "application/json"
    };
    let mut caller = caller.header("content-type", content);
    // A removal requires the header. A PUT of a new object must be sent without the header.
    if call.method != Method::PUT {
        caller = caller.header("if-match", "*");
    }
    caller
        .send(
            call.method.clone(),
            &format!("{}{query}", call.path),
            call.body.clone(),
        )
        .await
}

/// Returns a caller of every role in each scope.
async fn walkers(server: &Server, admin: &Caller) -> Vec<Walker> {
    let mut walkers = Vec::new();
    for (letter, role) in ROLES {
        walkers.push(Walker {
            letter,
            within: Within::Fleet,
            caller: server.caller(role).await,
        });
        for (within, site) in [(Within::Own, "lab"), (Within::Foreign, "far")] {
            let caller = only_in(server, admin, role.as_str(), site).await;
            walkers.push(Walker {
                letter,
                within,
                caller,
            });
        }
    }
    walkers
}

/// Sends a call to be refused and compares the status. Returns a description of a wrong answer.
async fn is_refused(walker: &Walker, call: &Call, answer: Answer) -> Option<String> {
    let reply = send(&walker.caller, call, "").await;
    let fits = match answer {
        Answer::Forbidden => reply.status == 403,
        Answer::Hidden => reply.status == 404,
        Answer::Refused | Answer::Open => [403, 404, 422].contains(&reply.status),
    };
    (!fits).then(|| {
        format!(
            "{} {answer:?} expected: {} {}",
            who(walker, call),
            reply.status,
            reply.text
        )
    })
}

fn who(walker: &Walker, call: &Call) -> String {
    format!(
        "{} as {} within {:?}:",
        call.name, walker.letter, walker.within
    )
}

/// Sends an open call. The answer must neither refuse the caller nor report a fault of the server.
/// An answer to a caller of another site must contain none of the ids in `own`. Returns a
/// description of a wrong answer.
async fn is_open(walker: &Walker, call: &Call, own: &[String]) -> Option<String> {
    let reads = matches!(call.method, Method::GET | Method::HEAD);
    let query = if call.page || reads || call.name == "make_plan" {
        ""
    } else {
        "?dry_run=true"
    };
    let reply = send(&walker.caller, call, query).await;
    let absent = ABSENT.iter().any(|(name, _)| call.name == *name);
    let fits = match call.reach {
        Reach::Object | Reach::ObjectByFleet => (reply.status == 404) == absent,
        Reach::Body => reply.status < 300,
        Reach::Any | Reach::Fleet => true,
    };
    let told = walker.within == Within::Foreign && own.iter().any(|id| reply.text.contains(id));
    let wrong = !fits || told || reply.status >= 500 || [401, 403].contains(&reply.status);
    wrong.then(|| format!("{} {} {}", who(walker, call), reply.status, reply.text))
}

/// Sends all calls to be refused, compares the database with the state before, and sends the open
/// calls. Every call without credentials must get 401.
async fn walk(calls: fn(&Server, &Objects) -> Vec<Call>) {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let objects = objects(&server, &admin).await;
    let calls = calls(&server, &objects);
    let walkers = walkers(&server, &admin).await;
    let nobody = server.nobody();
    for walker in &walkers {
        // The server records the first use of a token, so the use must precede the comparison.
        walker.caller.get("/v1/nodes").await;
    }
    let before = dump(&server).await;
    let mut wrong = Vec::new();
    for call in &calls {
        assert_eq!(
            send(&nobody, call, "").await.status,
            401,
            "{} as nobody",
            call.name
        );
        for walker in &walkers {
            let answer = expected(call, walker.letter, walker.within);
            if answer != Answer::Open {
                wrong.extend(is_refused(walker, call, answer).await);
            }
        }
    }
    let after = dump(&server).await;
    let left: Vec<_> = after
        .lines()
        .filter(|row| !before.lines().any(|known| known == *row))
        .collect();
    assert!(
        after == before,
        "what was refused left something: {left:#?}"
    );
    // The event stream of the pages has no end.
    for call in calls.iter().filter(|call| call.path != "/ui/events") {
        for walker in &walkers {
            if expected(call, walker.letter, walker.within) == Answer::Open {
                wrong.extend(is_open(walker, call, &objects.own).await);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} answers are not as the tables say: {wrong:#?}",
        wrong.len()
    );
}

#[tokio::test]
async fn every_operation_is_open_to_whom_the_table_says_and_where() {
    walk(operations).await;
    let nobody = Server::start().await.nobody();
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        nobody.get(path).await.expect(200);
    }
}

#[tokio::test]
async fn every_page_and_form_is_open_to_whom_the_table_says_and_where() {
    walk(pages).await;
}

#[test]
fn every_action_of_a_node_has_its_row() {
    let named: Vec<&str> = ACTIONS
        .iter()
        .flat_map(|(_, actions)| actions.iter().copied())
        .collect();
    let known: BTreeSet<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
    assert_eq!(
        named.iter().copied().collect::<BTreeSet<_>>(),
        known,
        "say in ACTIONS who may ask for it"
    );
    assert_eq!(named.len(), known.len(), "twice");
}

/// A misspelt action, or a verb without an action, gives no access.
#[tokio::test]
async fn a_word_in_a_path_means_itself_only() {
    let server = Server::start().await;
    two_sites(&server).await;
    let (viewer, pipeline) = (
        server.caller(Role::Viewer).await,
        server.caller(Role::Automation).await,
    );
    for (word, status) in [
        ("wipe", 403),
        ("w%69pe", 403),
        ("Wipe", 404),
        ("wipe%20", 404),
        ("write", 404),
        ("x", 404),
    ] {
        for path in ["/v1/nodes/n1/actions/", "/ui/nodes/n1/actions/"] {
            let reply = pipeline
                .header("if-match", "*")
                .post(&format!("{path}{word}"), &json!({}))
                .await;
            assert!(
                reply.status == status || (path.starts_with("/ui") && reply.status == 400),
                "{path}{word}: {}",
                reply.text
            );
        }
    }
    // An unknown action requires the right to read the node, and is then reported as missing. For a
    // guest the node is missing as well.
    viewer
        .post("/v1/nodes/n1/actions/x", &json!({}))
        .await
        .expect(404);
    server
        .caller(Role::Guest)
        .await
        .post("/v1/nodes/n1/actions/x", &json!({}))
        .await
        .expect(404);
}
