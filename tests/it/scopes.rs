//! Lists, histories and pages for readers of a part of the fleet. An answer contains all objects in
//! the reader's scope, and no name or id of other objects. A list or page missing from the tables
//! here fails the test.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// The content of a list for a reader of one site.
#[derive(Clone, Copy, Debug)]
enum Holds {
    /// The objects of the site: the JSON pointer to an item's name, the names of the site `lab`,
    /// and the names of the site `far-site`.
    Part(&'static str, &'static str, &'static str),
    /// The list of one object in the path: the object of `lab`, and the object of `far-site`. For
    /// the latter a reader of `lab` gets 404.
    Of(&'static str, &'static str),
    /// Objects without a place, listed for every reader.
    All,
    /// Refused to readers of less than the whole fleet.
    Nothing,
    /// The reader's own tokens.
    Own,
}

use Holds::{All, Nothing, Of, Own, Part};

/// Every list of the API.
const LISTS: [(&str, &str, Holds); 36] = [
    ("list_sites", "/v1/sites", Part("/name", "lab", "far-site")),
    ("list_racks", "/v1/racks", Part("/name", "r1", "far-rack")),
    (
        "list_subnets",
        "/v1/subnets",
        Part("/name", "prov", "far-net"),
    ),
    (
        "list_clusters",
        "/v1/clusters",
        Part("/name", "slurm", "far-slurm"),
    ),
    ("list_pools", "/v1/pools", Part("/name", "gpu", "far-gpu")),
    (
        "list_nodes",
        "/v1/nodes",
        Part("/name", "n1 n2", "far-1 far-2"),
    ),
    (
        "list_claims",
        "/v1/claims",
        Part("/name", "held", "far-held"),
    ),
    (
        "list_operations",
        "/v1/operations",
        Part("/target/name", "n1 n2", "far-1 far-2"),
    ),
    (
        "list_approvals",
        "/v1/approvals",
        Part("/claim", "held", "far-held"),
    ),
    (
        "list_components",
        "/v1/components?serial=S-1",
        Part("/node", "n1 n2", "far-1 far-2"),
    ),
    (
        "list_prometheus_targets",
        "/v1/prometheus/targets",
        Part("/labels/node", "n2", "far-2"),
    ),
    (
        "list_events",
        "/v1/events?limit=1000",
        Part("/detail/claim", "held", "far-held"),
    ),
    (
        "list_node_components",
        "/v1/nodes/{}/components",
        Of("n1", "far-1"),
    ),
    ("list_node_events", "/v1/nodes/{}/events", Of("n1", "far-1")),
    (
        "list_node_gate_runs",
        "/v1/nodes/{}/gate-runs",
        Of("n1", "far-1"),
    ),
    (
        "list_node_recoveries",
        "/v1/nodes/{}/recoveries",
        Of("n1", "far-1"),
    ),
    (
        "list_pair_runs",
        "/v1/pools/{}/pair-runs",
        Of("gpu", "far-gpu"),
    ),
    (
        "list_pool_revisions",
        "/v1/pools/{}/revisions",
        Of("gpu", "far-gpu"),
    ),
    (
        "list_rollouts",
        "/v1/rollouts",
        Part("/pool", "gpu", "far-gpu"),
    ),
    ("list_agents", "/v1/sites/{}/agents", Of("lab", "far-site")),
    ("list_hardware_profiles", "/v1/hardware_profiles", All),
    ("list_network_profiles", "/v1/network_profiles", All),
    ("list_maintenance_windows", "/v1/maintenance_windows", All),
    ("list_monitors", "/v1/monitors", All),
    ("list_signing_keys", "/v1/signing_keys", All),
    ("list_images", "/v1/images", All),
    ("list_stacks", "/v1/stacks", All),
    ("list_suites", "/v1/suites", All),
    ("list_credentials", "/v1/credentials", All),
    ("list_role_bindings", "/v1/role_bindings", All),
    ("list_breakers", "/v1/breakers", Nothing),
    ("list_waivers", "/v1/waivers", Nothing),
    ("list_webhooks", "/v1/webhooks", Nothing),
    (
        "list_webhook_deliveries",
        "/v1/webhooks/x/deliveries",
        Nothing,
    ),
    ("list_tokens", "/v1/tokens", Own),
    ("list_users", "/v1/users", Nothing),
];

/// Every page, with words shown to a reader of `lab`. A page without words is refused. `{node}`,
/// `{operation}`, `{job}`, `{pool}` and `{rollout}` stand for objects of `lab`. `{stack}` is the
/// stack of both sites.
const PAGES: [(&str, &[&str]); 18] = [
    ("/", &["/nodes/n1", "lab-agent"]),
    ("/nodes", &["/nodes/n1", "/nodes/n2"]),
    ("/nodes/{node}", &["n1"]),
    ("/nodes/{node}/console", &["n1"]),
    ("/operations", &["n1", "n2"]),
    ("/operations/{operation}", &["n1"]),
    ("/jobs/{job}/log", &["n1"]),
    ("/racks", &["r1", "/nodes/n1"]),
    ("/claims", &["held", "gpu"]),
    ("/pools/{pool}", &["gpu", "muster pool run-pairs"]),
    ("/stacks", &["/stacks/base", "/pools/gpu"]),
    ("/stacks/{stack}", &["/pools/gpu", "stack-pools"]),
    ("/rollouts", &["/rollouts/gpu-1"]),
    ("/rollouts/{rollout}", &["gpu-1"]),
    ("/events", &["n1", "held"]),
    ("/agents", &["lab-agent"]),
    // Webhooks report events of the whole fleet.
    ("/webhooks", &[]),
    // Only administrators read users.
    ("/users", &[]),
];

/// Builds two sites with the same objects. Only names in the other site begin with `far-`.
async fn two_sites(server: &Server) -> Caller {
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let far = |mut body: Value, members: &[(&str, Value)]| {
        for (pointer, value) in members {
            *body
                .pointer_mut(pointer)
                .unwrap_or_else(|| panic!("{pointer}")) = value.clone();
        }
        body
    };
    let site = ("/spec/site", json!("far-site"));
    let network = [
        site.clone(),
        ("/spec/network", json!("10.79.0.0/24")),
        ("/spec/agent_address", json!("10.79.0.1")),
    ];
    for (path, body) in [
        (
            "/v1/sites/far-site",
            json!({ "spec": { "bmc_networks": ["10.80.0.0/24"] } }),
        ),
        (
            "/v1/racks/far-rack",
            far(fleet::rack(), std::slice::from_ref(&site)),
        ),
        ("/v1/subnets/far-net", far(fleet::subnet(), &network)),
        (
            "/v1/clusters/far-slurm",
            far(fleet::cluster(), std::slice::from_ref(&site)),
        ),
        (
            "/v1/pools/far-gpu",
            far(fleet::pool(), &[("/spec/cluster", json!("far-slurm"))]),
        ),
    ] {
        admin.put(path, &body).await.expect(201);
    }
    for number in 1..=2 {
        let members = [
            site.clone(),
            ("/spec/rack", json!("far-rack")),
            (
                "/spec/power/redfish/bmc/address",
                json!(format!("10.80.0.{number}")),
            ),
            (
                "/spec/macs/0/mac",
                json!(format!("52:54:00:00:01:0{number}")),
            ),
            ("/spec/macs/0/subnet", json!("far-net")),
            ("/spec/macs/0/address", json!(format!("10.79.0.1{number}"))),
        ];
        admin
            .put(
                &format!("/v1/nodes/far-{number}"),
                &far(fleet::node(number), &members),
            )
            .await
            .expect(201);
    }
    fleet::available(server, &admin, 2).await;
    sqlx::query(
        "INSERT INTO rollouts (id, name, pool_id, target_id, policy, state, digest, expires_at, planned, actor, created_at)
         SELECT gen_random_uuid(), pool.name || '-1', pool.id, r.id, '{}', 'planned', '', now(), 0, 'test', now()
         FROM pool_revisions r JOIN objects pool ON pool.id = r.pool_id",
    )
    .execute(&server.app.pool)
    .await
    .unwrap();
    for (claim, pool, node) in [("held", "gpu", "n2"), ("far-held", "far-gpu", "far-2")] {
        let body = json!({ "name": claim, "spec": { "pool": pool, "node": node } });
        admin.post("/v1/claims", &body).await.expect(201);
        admin
            .patch(
                &format!("/v1/pools/{pool}"),
                &json!({ "spec": { "releases_per_hour": 0 } }),
            )
            .await
            .expect(200);
        assert_eq!(
            admin
                .expecting(1)
                .delete(&format!("/v1/claims/{claim}"))
                .await
                .problem()
                .1,
            "second_person"
        );
    }
    for (site, name) in [("lab", "lab-agent"), ("far-site", "far-agent")] {
        admin
            .post(
                &format!("/v1/sites/{site}/agents"),
                &json!({ "name": name }),
            )
            .await
            .expect(201);
    }
    for statement in [
        "INSERT INTO components (node_id, kind, serial, first_seen, last_seen) SELECT id, 'disk', 'S-1', now(), now() FROM nodes",
        "UPDATE nodes SET state = 'in_service', in_cluster = true WHERE name IN ('n2', 'far-2')",
        "INSERT INTO jobs (id, node_id, site_id, operation_id, visit, step, kind, epoch, state, not_before, timeout_s, created_at)
         SELECT gen_random_uuid(), n.id, n.site_id, o.id, 1, 'inventory', 'inventory', 0, 'queued', now(), 60, now()
         FROM nodes n JOIN operations o ON o.node_id = n.id WHERE o.kind = 'accept'",
    ] {
        sqlx::query(statement).execute(&server.app.pool).await.unwrap();
    }
    admin
}

/// A source of readers, each with a scope.
struct Readers<'a> {
    server: &'a Server,
    admin: &'a Caller,
    made: usize,
}

impl Readers<'_> {
    async fn of(&mut self, scope: &Value) -> Caller {
        self.made += 1;
        let name = format!("reader-{}", self.made);
        let body =
            json!({ "name": name, "role": "operator", "scope": scope, "expires_in_s": 3600 });
        let made = self.admin.post("/v1/tokens", &body).await.expect(201);
        self.server
            .with(Some(made.body["secret"].as_str().unwrap().to_owned()))
    }
}

fn items(reply: &Reply) -> &Vec<Value> {
    reply
        .body
        .as_array()
        .or_else(|| reply.body["items"].as_array())
        .unwrap_or_else(|| panic!("{}", reply.text))
}

/// Returns the names of a list's items.
fn names(reply: &Reply, pointer: &str) -> BTreeSet<String> {
    items(reply)
        .iter()
        .filter_map(|item| item.pointer(pointer)?.as_str().map(str::to_owned))
        .collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Returns the ids of the objects in one of the two sites.
async fn ids(admin: &Caller, far: bool) -> Vec<String> {
    let mut ids = Vec::new();
    for kind in [
        "sites", "racks", "subnets", "clusters", "pools", "nodes", "claims",
    ] {
        for item in items(&admin.get(&format!("/v1/{kind}")).await.expect(200)) {
            if item["name"].as_str().unwrap().starts_with("far-") == far {
                ids.push(item["id"].as_str().unwrap().to_owned());
            }
        }
    }
    ids
}

#[tokio::test]
async fn every_list_holds_what_is_its_readers_and_nothing_of_anybody_else() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let mut readers = Readers {
        server: &server,
        admin: &admin,
        made: 0,
    };
    let here = readers.of(&json!({ "site": "lab" })).await;
    let there = readers.of(&json!({ "site": "far-site" })).await;
    let (own, foreign) = (ids(&admin, false).await, ids(&admin, true).await);
    let clean = |reply: &Reply, ids: &[String], what: &str| {
        let leaked: Vec<_> = ids.iter().filter(|id| reply.text.contains(*id)).collect();
        assert!(
            leaked.is_empty(),
            "{what} tells of {leaked:?}: {}",
            reply.text
        );
    };
    for (name, path, holds) in LISTS {
        match holds {
            Part(pointer, lab, far) => {
                let (mine, theirs) = (
                    here.get(path).await.expect(200),
                    there.get(path).await.expect(200),
                );
                assert_eq!(names(&mine, pointer), words(lab), "{name}: {}", mine.text);
                assert_eq!(
                    names(&theirs, pointer),
                    words(far),
                    "{name}: {}",
                    theirs.text
                );
                assert_eq!(
                    names(&admin.get(path).await, pointer),
                    &words(lab) | &words(far),
                    "{name}"
                );
                assert!(!mine.text.contains("far-"), "{name}: {}", mine.text);
                clean(&mine, &foreign, name);
                clean(&theirs, &own, name);
                let counted = here.get(&format!("{path}?count=exact&limit=1")).await;
                if counted.status == 200 && counted.body["count"].is_number() {
                    assert_eq!(
                        counted.body["count"],
                        items(&mine).len(),
                        "{name} counts what it lists"
                    );
                }
            }
            Of(lab, far) => {
                let mine = here.get(&path.replace("{}", lab)).await.expect(200);
                assert!(!mine.text.contains("far-"), "{name}: {}", mine.text);
                clean(&mine, &foreign, name);
                here.get(&path.replace("{}", far)).await.expect(404);
                there.get(&path.replace("{}", far)).await.expect(200);
            }
            All => assert_eq!(
                items(&here.get(path).await.expect(200)),
                items(&admin.get(path).await),
                "{name}"
            ),
            Nothing => drop(here.get(path).await.expect(403)),
            // Both readers' tokens were made by the same person.
            Own => assert_eq!(
                names(&here.get(path).await.expect(200), "/name"),
                words("reader-1 reader-2"),
                "{name}"
            ),
        }
    }
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    for (route, item) in description["paths"].as_object().unwrap() {
        let Some(id) = item["get"]["operationId"]
            .as_str()
            .filter(|id| id.starts_with("list_"))
        else {
            continue;
        };
        assert!(
            LISTS.iter().any(|(name, ..)| *name == id),
            "what does {id} ({route}) give to whom? say so in LISTS"
        );
    }
}

/// A list contains exactly the objects that the reader can read one by one. The server states the
/// rule twice, for one object and for many, and both must agree.
#[tokio::test]
async fn a_list_has_what_its_reader_may_read_one_by_one() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    admin
        .patch(
            "/v1/racks/far-rack",
            &json!({ "labels": { "parity": "even" } }),
        )
        .await
        .expect(200);
    let mut readers = Readers {
        server: &server,
        admin: &admin,
        made: 0,
    };
    let mut shown = 0;
    for scope in [
        json!({ "rack": "r1" }),
        json!({ "pool": "gpu" }),
        json!({ "labels": { "parity": "even" } }),
        json!({ "site": "far-site", "labels": { "parity": "odd" } }),
        json!({ "site": "lab", "rack": "r1", "pool": "gpu" }),
        json!({ "site": "lab", "pool": "far-gpu" }),
        json!({ "site": "nowhere" }),
    ] {
        let reader = readers.of(&scope).await;
        for kind in [
            "sites",
            "racks",
            "subnets",
            "clusters",
            "pools",
            "nodes",
            "claims",
            "operations",
        ] {
            let path = format!("/v1/{kind}");
            let mut readable = BTreeSet::new();
            for item in items(&admin.get(&path).await.expect(200)) {
                let id = item["id"].as_str().unwrap();
                let one = reader.get(&format!("{path}/{id}")).await;
                assert!(
                    [200, 404].contains(&one.status),
                    "{scope} {path}: {}",
                    one.text
                );
                if one.status == 200 {
                    readable.insert(id.to_owned());
                }
            }
            let listed = reader.get(&format!("{path}?count=exact")).await.expect(200);
            assert_eq!(names(&listed, "/id"), readable, "{scope} {path}");
            assert_eq!(listed.body["count"], readable.len(), "{scope} {path}");
            shown += readable.len();
        }
        // The same events of nodes, read node by node.
        let mut told = BTreeSet::new();
        for node in items(&reader.get("/v1/nodes").await.expect(200)) {
            let path = format!("/v1/nodes/{}/events", node["name"].as_str().unwrap());
            told.extend(
                items(&reader.get(&path).await.expect(200))
                    .iter()
                    .map(|event| event["seq"].as_i64().unwrap()),
            );
        }
        let events = reader.get("/v1/events?limit=1000").await.expect(200);
        let of_nodes = items(&events)
            .iter()
            .filter(|event| !event["node"].is_null());
        assert_eq!(
            of_nodes
                .map(|event| event["seq"].as_i64().unwrap())
                .collect::<BTreeSet<_>>(),
            told,
            "{scope}"
        );
        assert_eq!(
            events.body["last_seq"],
            admin.get("/v1/events?limit=1000").await.body["last_seq"],
            "{scope}"
        );
    }
    assert!(shown > 20, "{shown}: the scopes fit nothing");
    // A token made by a bounded token: an object must fit both scopes.
    let far = readers.of(&json!({ "site": "far-site" })).await;
    let body = json!({ "name": "of-far", "role": "viewer", "scope": { "site": "far-site", "labels": { "parity": "odd" } }, "expires_in_s": 3600 });
    let made = far.post("/v1/tokens", &body).await.expect(201);
    let odd = server.with(made.body["secret"].as_str().map(str::to_owned));
    assert_eq!(
        names(&odd.get("/v1/operations").await.expect(200), "/target/name"),
        words("far-1")
    );
}

#[tokio::test]
async fn the_history_is_read_on_through_what_is_not_the_readers() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let mut readers = Readers {
        server: &server,
        admin: &admin,
        made: 0,
    };
    let here = readers.of(&json!({ "site": "lab" })).await;
    let all = here.get("/v1/events?limit=1000").await.expect(200);
    // Pages of one event contain the same events as one large page.
    let (mut after, mut seqs) = (0, Vec::new());
    loop {
        let page = here
            .get(&format!("/v1/events?limit=1&after={after}"))
            .await
            .expect(200);
        let Some(event) = items(&page).first() else {
            assert_eq!(page.body["last_seq"], all.body["last_seq"]);
            break;
        };
        assert_eq!(event["seq"], page.body["last_seq"]);
        seqs.push(event["seq"].as_i64().unwrap());
        after = *seqs.last().unwrap();
    }
    assert_eq!(
        seqs,
        items(&all)
            .iter()
            .map(|event| event["seq"].as_i64().unwrap())
            .collect::<Vec<_>>()
    );
    // An event of the other site is not returned. `last_seq` moves past the event, so the next read
    // skips the event.
    let last = all.body["last_seq"].as_i64().unwrap();
    admin
        .post("/v1/nodes/far-1/actions/inspect", &json!({}))
        .await
        .expect(202);
    let page = here
        .get(&format!("/v1/events?after={last}"))
        .await
        .expect(200);
    assert_eq!(
        (
            items(&page).len(),
            page.body["last_seq"].as_i64() > Some(last)
        ),
        (0, true),
        "{}",
        page.text
    );
    // A filter by a node outside the scope is refused like a filter by an unknown node.
    for path in ["/v1/events?node=far-1", "/v1/operations?node=far-1"] {
        let (hidden, missing) = (
            here.get(path).await,
            here.get(&path.replace("far-1", "zz")).await,
        );
        let detail = |reply: &Reply| {
            reply.body["errors"][0]["detail"]
                .as_str()
                .unwrap()
                .replace("far-1", "zz")
        };
        assert_eq!(
            (hidden.status, detail(&hidden)),
            (422, detail(&missing)),
            "{path}"
        );
    }
    // An id is accepted, because the node may be deleted. Each event of the history is then checked
    // against the scope.
    let far = admin.get("/v1/nodes/far-1").await.expect(200).body["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for (caller, some) in [(&here, false), (&admin, true)] {
        let page = caller
            .get(&format!("/v1/events?node={far}"))
            .await
            .expect(200);
        assert_eq!(!items(&page).is_empty(), some, "{}", page.text);
    }
}

#[tokio::test]
async fn every_page_shows_what_is_its_readers() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let mut readers = Readers {
        server: &server,
        admin: &admin,
        made: 0,
    };
    let here = readers.of(&json!({ "site": "lab" })).await;
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src/ui/mod.rs");
    for part in std::fs::read_to_string(sources)
        .unwrap()
        .split(".route(")
        .skip(1)
    {
        // rustfmt may put the path of a long route on a separate line.
        let part = part.trim_start().strip_prefix('"').unwrap();
        let (route, rest) = part.split_once('"').unwrap();
        let page = rest.split(')').next().unwrap().contains("get(")
            && !route.starts_with("/sign")
            && !route.contains("assets");
        assert!(
            !page || route == "/ui/events" || PAGES.iter().any(|(known, _)| *known == route),
            "{route}: say so in PAGES"
        );
    }
    let ids = async |node: &str| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let page = admin
            .get(&format!(
                "/v1/operations?filter=node={node}%20AND%20kind=accept"
            ))
            .await
            .expect(200);
        [
            node.to_owned(),
            text(&page.body["items"][0]["id"]),
            text(&page.body["items"][0]["steps"][0]["job"]),
        ]
    };
    let fill = |route: &str, [node, operation, job]: &[String; 3]| {
        let pool = if node.starts_with("far-") {
            "far-gpu"
        } else {
            "gpu"
        };
        let route = route.replace("{rollout}", &format!("{pool}-1"));
        let route = route.replace("{stack}", "base");
        let route = route.replace("{node}", node).replace("{pool}", pool);
        route
            .replace("{operation}", operation)
            .replace("{job}", job)
    };
    let (own, far) = (ids("n1").await, ids("far-1").await);
    for (route, shown) in PAGES {
        let page = here.get(&fill(route, &own)).await;
        if shown.is_empty() {
            page.expect(403);
            continue;
        }
        let page = page.expect(200);
        for word in shown {
            assert!(
                page.text.contains(word),
                "{route} shows {word}: {}",
                page.text
            );
        }
        assert!(!page.text.contains("far-"), "{route}: {}", page.text);
        // A stack has no place, so the page is the same address for both sites.
        if route.contains('{') && !route.contains("{stack}") {
            here.get(&fill(route, &far)).await.expect(404);
            admin.get(&fill(route, &far)).await.expect(200);
        }
    }
    // A search for a serial or a MAC finds only nodes in the reader's scope.
    let looks = |caller: &Caller| {
        let caller = caller.clone();
        async move {
            caller
                .send(Method::GET, "/nodes?q=52:54:00:00:01:01", Vec::new())
                .await
        }
    };
    assert_eq!(
        looks(&admin).await.expect(303).header("location"),
        "/nodes/far-1"
    );
    assert!(!looks(&here).await.expect(200).text.contains("far-"));
}
