//! Documents of every kind with a wrong shape in the place of an object. The server stores exactly
//! the checked document, at any depth.

mod places; // Places of objects in a document, by the example and by the schema
mod stored; // Rows stored wrongly by an older version

use std::sync::LazyLock;

use muster_api::kind::COLLECTIONS;
use serde_json::{Map, Value, json};

use self::places::{Mutant, of_example, of_schema};
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(muster_server::http::description()).unwrap());

/// A kind: the collection, the creating operation, and the example of the operation's body.
struct Kind {
    word: &'static str,
    collection: &'static str,
    method: &'static str,
    schema: &'static Value,
    example: Value,
}

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        COLLECTIONS.into_iter().map(|(word, collection)| {
            let operations = DESCRIPTION["paths"].as_object().unwrap().values();
            let mut operations = operations.flat_map(|item| item.as_object().unwrap());
            let names = [format!("put_{word}"), format!("create_{word}")];
            let (method, operation) = operations
                .find(|(_, operation)| names.iter().any(|name| operation["operationId"] == **name))
                .unwrap_or_else(|| panic!("no operation makes a {word}"));
            let content = &operation["requestBody"]["content"]["application/json"];
            let example = content["example"].clone();
            assert!(example.is_object(), "the body of {names:?} has no example");
            Self {
                word,
                collection,
                method,
                schema: &content["schema"],
                example,
            }
        })
    }

    /// Sends a document of a new object, by PUT if the kind has a PUT, otherwise by POST.
    async fn make(&self, admin: &Caller, document: &Value) -> Reply {
        match self.method {
            "put" => {
                let path = format!("/v1/{}/mutant", self.collection);
                admin.put(&path, document).await
            }
            _ => {
                admin
                    .post(&format!("/v1/{}", self.collection), document)
                    .await
            }
        }
    }

    /// The path of a right object of the kind: an object of the fleet, or the example.
    async fn find_or_make(&self, admin: &Caller) -> String {
        let page = admin.get(&format!("/v1/{}", self.collection)).await;
        if let Some(object) = page.expect(200).body["items"].get(0) {
            return object["self"].as_str().unwrap().to_owned();
        }
        let path = format!("/v1/{}/right", self.collection);
        admin.put(&path, &self.example).await.expect(201);
        path
    }

    /// Whether the kind's documents have a sealed member.
    fn has_secret(&self) -> bool {
        self.example["spec"].get("secret").is_some()
    }
}

/// A server with a fleet and a claim.
async fn world() -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 2).await;
    let claim = json!({ "name": "right", "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    (server, admin)
}

/// The shown form of a sent spec: without the secret.
fn as_shown(sent: &Value) -> Value {
    let mut spec = sent["spec"].clone();
    if let Some(members) = spec.as_object_mut() {
        members.remove("secret");
    }
    spec
}

/// An array is refused with the array's pointer. Other shapes are refused, or stored and shown
/// unchanged.
#[track_caller]
fn assert_refused_or_kept(what: &str, mutant: &Mutant, reply: &Reply) {
    assert!(reply.status < 500, "{what} {mutant}: {}", reply.text);
    if mutant.is_array() {
        let refusal = (400, "invalid_request", mutant.pointer.as_str());
        assert_eq!(reply.problem(), refusal, "{what} {mutant}: {}", reply.text);
    }
    if let 200..300 = reply.status {
        let sent = as_shown(&mutant.document);
        assert_eq!(reply.body["spec"], sent, "{what} {mutant}");
        assert_eq!(reply.body.get("spec_faults"), None, "{what} {mutant}");
    }
}

/// Plans all documents of a kind at once. The plan points at the fault of a wrong document, and
/// writes no row.
async fn plan(kind: &Kind, admin: &Caller, mutants: &[Mutant]) {
    let planned: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| mutant.pointer.starts_with("/spec"))
        .collect();
    let desired = planned.iter().enumerate().map(|(at, mutant)| {
        let (kind, spec) = (kind.word, &mutant.document["spec"]);
        json!({ "kind": kind, "name": format!("mutant-{at}"), "spec": spec })
    });
    let body = json!({ "objects": desired.collect::<Vec<_>>() });
    let plan = admin.post("/v1/plan", &body).await.expect(200);
    let objects = plan.body["objects"].as_array().unwrap();
    assert_eq!(objects.len(), planned.len(), "{}", kind.word);
    for (mutant, object) in planned.iter().zip(objects) {
        if mutant.is_array() {
            let pointer = &object["blockers"][0]["pointer"];
            assert_eq!(*pointer, mutant.pointer, "{} {mutant}: {object}", kind.word);
        }
    }
}

/// Patches a right object with every document. A refusal leaves the object unchanged.
async fn patch(kind: &Kind, admin: &Caller, path: &str, mutants: &[Mutant]) {
    let before = admin.get(path).await.expect(200).body;
    for mutant in mutants {
        let what = format!("PATCH {path}");
        let mut patch = mutant.document.clone();
        if let Some(members) = patch.as_object_mut() {
            members.retain(|name, _| matches!(name.as_str(), "labels" | "annotations" | "spec"));
        }
        let reply = admin.patch(path, &patch).await;
        assert!(reply.status < 500, "{what} {mutant}: {}", reply.text);
        if mutant.is_array() {
            let (status, code, pointer) = reply.problem();
            assert_eq!((status, code), (400, "invalid_request"), "{what} {mutant}");
            // A merge leaves two variants side by side: the pointer ends above both.
            assert!(
                mutant.pointer.starts_with(pointer),
                "{what} {mutant}: {pointer}"
            );
        }
        let after = admin.get(path).await.expect(200).body;
        match reply.status {
            200 => {
                assert_eq!(after["spec"], reply.body["spec"], "{what} {mutant}");
                assert_eq!(after.get("spec_faults"), None, "{what} {mutant}");
                if kind.method == "put" {
                    let parts = ["labels", "annotations", "spec"];
                    let former: Map<String, Value> = parts
                        .into_iter()
                        .map(|part| (part.to_owned(), before[part].clone()))
                        .collect();
                    admin.put(path, &former.into()).await.expect(200);
                }
            }
            _ => assert_eq!(after["spec"], before["spec"], "{what} {mutant}"),
        }
    }
}

#[tokio::test]
async fn an_array_in_an_objects_place_is_refused_for_every_kind() {
    let (server, admin) = world().await;
    for kind in Kind::all() {
        let path = kind.find_or_make(&admin).await;
        let mut mutants = of_example(&kind.example);
        let by_example = mutants.len();
        mutants.extend(of_schema(&DESCRIPTION, kind.schema, &kind.example));
        assert!(by_example >= 8, "{}: {by_example}", kind.word);
        for mutant in &mutants {
            let what = format!("{} {}", kind.method, kind.word);
            let reply = kind.make(&admin, &mutant.document).await;
            assert_refused_or_kept(&what, mutant, &reply);
            if let 201 = reply.status {
                let made = reply.header("location").to_owned();
                let read = admin.get(&made).await.expect(200);
                assert_eq!(read.body["spec"], reply.body["spec"], "{what} {mutant}");
                let generation = reply.body["generation"].as_i64().unwrap_or(1);
                let made = admin.expecting(generation).delete(&made).await;
                assert!(made.status < 300, "{what} {mutant}: {}", made.text);
            }
        }
        plan(&kind, &admin, &mutants).await;
        patch(&kind, &admin, &path, &mutants).await;
    }
    let wrong: Vec<String> = sqlx::query_scalar(
        "SELECT kind || ' ' || name FROM objects WHERE jsonb_typeof(spec) <> 'object'
         UNION SELECT 'node ' || name FROM nodes WHERE jsonb_typeof(spec) <> 'object'
         UNION SELECT 'claim ' || name FROM claims WHERE jsonb_typeof(spec) <> 'object'",
    )
    .fetch_all(&server.app.pool)
    .await
    .unwrap();
    assert!(wrong.is_empty(), "stored though it is no object: {wrong:?}");
}

#[tokio::test]
async fn a_secret_that_is_sent_in_another_shape_is_neither_stored_nor_shown() {
    let (server, admin) = world().await;
    let mut kinds = 0;
    for kind in Kind::all().filter(Kind::has_secret) {
        kinds += 1;
        let secret = kind.example["spec"]["secret"].as_str().unwrap();
        let path = kind.find_or_make(&admin).await;
        for mutant in of_example(&kind.example) {
            kind.make(&admin, &mutant.document).await;
            admin.patch(&path, &mutant.document).await;
            for path in [format!("/v1/{}/mutant", kind.collection), path.clone()] {
                let shown = admin.get(&path).await;
                assert!(!shown.text.contains(secret), "{mutant}: {}", shown.text);
            }
        }
        let list = admin.get(&format!("/v1/{}", kind.collection)).await;
        assert!(!list.expect(200).text.contains(secret), "{}", kind.word);
        let stored: Vec<String> = sqlx::query_scalar("SELECT spec::text FROM objects")
            .fetch_all(&server.app.pool)
            .await
            .unwrap();
        let leaks = stored.iter().any(|spec| spec.contains(secret));
        assert!(
            !leaks,
            "the secret of a {} is stored in the clear",
            kind.word
        );
    }
    assert!(kinds >= 2, "credentials and webhooks");
}

/// Every body of the contract, whole, and every object inside.
#[tokio::test]
async fn an_array_in_the_place_of_an_object_is_refused_in_every_body() {
    let (_server, admin) = world().await;
    let mut bodies = 0;
    for (path, item) in DESCRIPTION["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let content = &operation["requestBody"]["content"]["application/json"];
            let (Some(example), true) = (content.get("example"), content["schema"].is_object())
            else {
                continue;
            };
            bodies += 1;
            let path = path.replace("{action}", "inspect").replace(['{', '}'], "");
            let mut mutants = of_example(example);
            mutants.extend(of_schema(&DESCRIPTION, &content["schema"], example));
            // A plan refuses the spec of an object in the answer, beside the other objects.
            let planned = |mutant: &Mutant| mutant.pointer.starts_with("/objects/0/spec");
            let refused = |mutant: &&Mutant| mutant.is_array() && !planned(mutant);
            for mutant in mutants.iter().filter(refused) {
                let method = method.to_uppercase().parse().unwrap();
                let reply = admin.json(method, &path, &mutant.document).await;
                let refusal = (400, "invalid_request", mutant.pointer.as_str());
                let what = operation["operationId"].as_str().unwrap();
                assert_eq!(reply.problem(), refusal, "{what} {mutant}: {}", reply.text);
            }
        }
    }
    assert!(bodies > 25, "{bodies}");
}
