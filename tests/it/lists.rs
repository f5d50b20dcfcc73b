//! All lists share one grammar: filter, sort, fields, pages and a count. Lists refuse unknown
//! fields and parameters with the same status. A list missing from the tables here fails the test.

use std::collections::BTreeSet;

use muster_api::access::Scope;
use muster_server::db::filter::{Key, NODES, Order, Page, list_ids, parse};
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::support::fleet;
use crate::support::server::{Caller, Server};

/// Every list with the grammar: the name, the path, and a filter that fits exactly one item.
const LISTS: [(&str, &str, &str); 31] = [
    ("list_sites", "/v1/sites", "name=lab"),
    ("list_racks", "/v1/racks", "name=r1"),
    ("list_subnets", "/v1/subnets", "name=prov"),
    ("list_clusters", "/v1/clusters", "name=slurm"),
    ("list_pools", "/v1/pools", "name=gpu"),
    (
        "list_hardware_profiles",
        "/v1/hardware_profiles",
        "name=virtual",
    ),
    (
        "list_network_profiles",
        "/v1/network_profiles",
        "name=bonded",
    ),
    (
        "list_maintenance_windows",
        "/v1/maintenance_windows",
        "name=nights",
    ),
    ("list_monitors", "/v1/monitors", "name=errors"),
    ("list_signing_keys", "/v1/signing_keys", "name=release"),
    ("list_images", "/v1/images", "name=debian-12"),
    ("list_stacks", "/v1/stacks", "name=base"),
    ("list_suites", "/v1/suites", "name=smoke"),
    ("list_credentials", "/v1/credentials", "name=bmc"),
    ("list_role_bindings", "/v1/role_bindings", "name=infra"),
    ("list_webhooks", "/v1/webhooks", "name=ops"),
    (
        "list_nodes",
        "/v1/nodes",
        "state=available AND rack=r1 AND name=n1",
    ),
    ("list_claims", "/v1/claims", "pool=gpu AND node=n2"),
    (
        "list_operations",
        "/v1/operations",
        "kind=accept AND node=n1",
    ),
    (
        "list_approvals",
        "/v1/approvals",
        "node=n2 AND action=release",
    ),
    (
        "list_components",
        "/v1/components",
        "kind=disk AND node=n1 AND replaced=false",
    ),
    (
        "list_node_components",
        "/v1/nodes/n1/components",
        "serial=S-1",
    ),
    (
        "list_node_gate_runs",
        "/v1/nodes/n1/gate-runs",
        "verdict=fail AND voided=false",
    ),
    (
        "list_node_recoveries",
        "/v1/nodes/n1/recoveries",
        "ended=no",
    ),
    ("list_agents", "/v1/sites/lab/agents", "name=first"),
    ("list_tokens", "/v1/tokens", "state=revoked AND role=viewer"),
    ("list_users", "/v1/users", "name=ada AND disabled=false"),
    (
        "list_waivers",
        "/v1/waivers",
        "state=asked AND gate=node.disk AND covers=n1",
    ),
    (
        "list_breakers",
        "/v1/breakers",
        "state=open AND signature~\"gate:*\"",
    ),
    (
        "list_webhook_deliveries",
        "/v1/webhooks/ops/deliveries",
        "state=failed AND reason=event",
    ),
    // The filter applies within the waivers of one node.
    (
        "list_waivers",
        "/v1/waivers?node=n1",
        "gate~\"node.*\" AND requested_by~\"token:*\" AND gate!=node.profile",
    ),
];

/// Lists with another grammar, and the reason.
const OTHERS: [(&str, &str); 6] = [
    (
        "list_events",
        "a history that is read on from a number, and filtered by topics, as webhooks are",
    ),
    ("list_node_events", "the same of one node"),
    (
        "list_pair_runs",
        "the newest of one pool, which has one at a time",
    ),
    (
        "list_pool_revisions",
        "the newest of one pool, which changes a few times a month",
    ),
    (
        "list_rollouts",
        "the newest, of which a pool has a few in a month",
    ),
    (
        "list_prometheus_targets",
        "Prometheus says how it looks, and has no pages",
    ),
];

fn webhook(url: &str) -> Value {
    json!({ "spec": { "url": url, "topics": ["*"], "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" } })
}

/// Fills every list of [`LISTS`] with at least two items, except subnets, clusters and images.
async fn fleet(server: &Server) -> Caller {
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    for (path, body) in [
        ("/v1/sites/other", json!({ "spec": {} })),
        ("/v1/webhooks/ops", webhook("https://hooks.example.org/")),
        (
            "/v1/webhooks/more",
            webhook("https://hooks.example.org/more"),
        ),
        (
            "/v1/role_bindings/infra",
            json!({ "spec": { "subject": "group:infra", "role": "operator" } }),
        ),
        (
            "/v1/role_bindings/more",
            json!({ "spec": { "subject": "group:more", "role": "viewer" } }),
        ),
        ("/v1/racks/r2", fleet::rack()),
        ("/v1/hardware_profiles/other", fleet::profile()),
        ("/v1/network_profiles/other", fleet::network_profile()),
        ("/v1/maintenance_windows/other", fleet::maintenance_window()),
        ("/v1/monitors/errors", fleet::monitor()),
        ("/v1/monitors/other", fleet::monitor()),
        ("/v1/signing_keys/release", fleet::signing_key()),
        ("/v1/signing_keys/other", fleet::signing_key()),
        ("/v1/suites/other", fleet::suite()),
        ("/v1/pools/other", fleet::pool()),
        ("/v1/stacks/other", fleet::stack()),
        (
            "/v1/credentials/other",
            json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "x" } }),
        ),
    ] {
        admin.put(path, &body).await.expect(201);
    }
    fleet::available(server, &admin, 3).await;
    for (node, pool) in [("n2", "gpu"), ("n3", "other")] {
        let name = format!("c-{node}");
        admin
            .post(
                "/v1/claims",
                &json!({ "name": name, "spec": { "pool": pool, "node": node } }),
            )
            .await
            .expect(201);
        admin
            .patch(
                &format!("/v1/pools/{pool}"),
                &json!({ "spec": { "releases_per_hour": 0 } }),
            )
            .await
            .expect(200);
        let held = admin
            .expecting(1)
            .delete(&format!("/v1/claims/{name}"))
            .await;
        assert_eq!(held.problem().1, "second_person");
    }
    for name in ["first", "second"] {
        admin
            .post("/v1/sites/lab/agents", &json!({ "name": name }))
            .await
            .expect(201);
        let body = json!({ "name": name, "role": "viewer", "expires_in_s": 3600 });
        let made = admin.post("/v1/tokens", &body).await.expect(201).body;
        if name == "second" {
            let path = format!("/v1/tokens/{}", made["token"]["id"].as_str().unwrap());
            admin.expecting(1).delete(&path).await.expect(204);
        }
    }
    let mut suite = fleet::suite();
    let mut disk = suite["spec"]["gates"][0].clone();
    disk["id"] = json!("node.disk");
    suite["spec"]["gates"].as_array_mut().unwrap().push(disk);
    admin.put("/v1/suites/smoke", &suite).await.expect(200);
    for (gate, node) in [
        ("node.disk", "n1"),
        ("node.profile", "n1"),
        ("node.disk", "n2"),
    ] {
        let until = server.app.clock.now() + jiff::SignedDuration::from_hours(24);
        let body = json!({ "node": node, "gate": gate, "reason": "a test", "until": until });
        admin.post("/v1/waivers", &body).await.expect(201);
    }
    for statement in [
        "INSERT INTO users (id, name, password_hash, role, created_at) VALUES (gen_random_uuid(), 'ada', 'x', 'viewer', now()),
         (gen_random_uuid(), 'bob', 'x', 'viewer', now())",
        "INSERT INTO components (node_id, kind, serial, first_seen, last_seen) SELECT n.id, part.kind, part.serial, now(), now()
         FROM nodes n, (VALUES ('disk', 'S-1'), ('gpu', 'S-2')) AS part (kind, serial)",
        "INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, not_before, timeout_s, created_at)
         SELECT gen_random_uuid(), id, site_id, 90, step, step, 0, 'queued', now(), 60, now()
         FROM nodes, (VALUES ('gates'), ('gates_after_reboot')) AS s (step) WHERE name = 'n1'",
        "INSERT INTO gate_runs (id, node_id, job_id, suite, verdict, fingerprint, finished_at)
         SELECT gen_random_uuid(), node_id, id, 'smoke', CASE step WHEN 'gates' THEN 'pass' ELSE 'fail' END, 'f', now() FROM jobs WHERE visit = 90",
        "INSERT INTO recoveries (id, node_id, signature, what, answers, asked, rungs, begun_at, ended_at, ended)
         SELECT gen_random_uuid(), id, 'asked', 'a test', true, true, '{reboot}', now(), at, word
         FROM nodes, (VALUES (now(), 'recovered'), (NULL::timestamptz, NULL)) AS e (at, word) WHERE name = 'n1'",
        "INSERT INTO breakers (id, signature, because, opened_at, closes_at)
         VALUES (gen_random_uuid(), 'gate:a', 'a test', '2000-01-01', NULL), (gen_random_uuid(), 'gate:b', 'a test', '2000-01-01', '2000-01-02')",
        "INSERT INTO webhook_deliveries (id, webhook_id, event_id, kind, reason, state, at)
         SELECT gen_random_uuid(), o.id, gen_random_uuid(), 'node.advanced', 'event', state, now()
         FROM objects o, (VALUES ('delivered'), ('failed')) AS s (state) WHERE o.kind = 'webhook' AND o.name = 'ops'",
    ] {
        sqlx::query(statement).execute(&server.app.pool).await.unwrap();
    }
    admin
}

/// Adds a query parameter to a path.
fn with(path: &str, name: &str, value: &str) -> String {
    let value: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!(
        "{path}{}{name}={value}",
        if path.contains('?') { '&' } else { '?' }
    )
}

fn ids(body: &Value) -> Vec<String> {
    body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the ids of a whole list, read in pages of one item.
async fn walk(admin: &Caller, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let page = with(path, "limit", "1");
        let page = token
            .as_deref()
            .map_or(page.clone(), |token| with(&page, "page_token", token));
        let body = admin.get(&page).await.expect(200).body;
        all.extend(ids(&body));
        match body["next_page_token"].as_str() {
            Some(next) => token = Some(next.to_owned()),
            None => return all,
        }
    }
}

#[tokio::test]
async fn every_list_says_that_it_has_the_grammar_or_why_not() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut found = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        let Some(operation) = item.get("get") else {
            continue;
        };
        let name = operation["operationId"].as_str().unwrap();
        let answer = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let shape = answer["$ref"]
            .as_str()
            .and_then(|name| description.pointer(name.trim_start_matches('#')));
        let lists = name.starts_with("list_")
            || shape.unwrap_or(answer)["properties"]
                .get("next_page_token")
                .is_some();
        if !lists {
            continue;
        }
        found.insert(name.to_owned());
        let parameters = operation["parameters"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let taken: BTreeSet<&str> = parameters
            .iter()
            .filter(|one| one["in"] == "query")
            .filter_map(|one| one["name"].as_str())
            .collect();
        let wanted = ["count", "fields", "filter", "limit", "page_token", "sort"];
        let other = OTHERS.iter().find(|(known, _)| *known == name);
        assert_eq!(
            wanted.iter().all(|one| taken.contains(one)),
            other.is_none(),
            "{name} ({path}) takes {taken:?}"
        );
    }
    let named: BTreeSet<String> = LISTS
        .iter()
        .map(|(name, ..)| *name)
        .chain(OTHERS.iter().map(|(name, _)| *name))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        found, named,
        "a list that is not here, or not there any more"
    );
}

#[tokio::test]
async fn every_list_filters_sorts_cuts_counts_and_pages() {
    let server = Server::start().await;
    let admin = fleet(&server).await;
    for (name, path, filter) in LISTS {
        let all = admin
            .get(&with(path, "count", "exact"))
            .await
            .expect(200)
            .body;
        let mut whole = ids(&all);
        assert_eq!(all["count"].as_u64(), Some(whole.len() as u64), "{name}");
        assert_eq!(walk(&admin, path).await, whole, "{name}: one by one");

        let fits = admin.get(&with(path, "filter", filter)).await;
        assert_eq!(fits.status, 200, "{name}: {filter}: {}", fits.text);
        assert_eq!(ids(&fits.body).len(), 1, "{name}: {filter}: {}", fits.text);
        assert!(
            whole.len() > 1
                || name.starts_with("list_s")
                || name.starts_with("list_c")
                || name == "list_images",
            "{name}: too few to tell"
        );

        let mut sorts = 0;
        for sort in ["name", "created_at"] {
            let up = admin.get(&with(path, "sort", sort)).await;
            if up.status == 422 {
                continue;
            }
            sorts += 1;
            let mut down = ids(&admin
                .get(&with(path, "sort", &format!("-{sort}")))
                .await
                .expect(200)
                .body);
            down.reverse();
            assert_eq!(ids(&up.expect(200).body), down, "{name} by {sort}");
            assert_eq!(
                walk(&admin, &with(path, "sort", sort)).await,
                down,
                "{name} by {sort}, one by one"
            );
        }
        assert!(sorts > 0, "{name} is sorted by nothing");

        let cut = admin
            .get(&with(path, "fields", "id"))
            .await
            .expect(200)
            .body;
        for item in cut["items"].as_array().unwrap() {
            let kept = item
                .as_object()
                .unwrap()
                .keys()
                .all(|key| ["id", "name", "self"].contains(&key.as_str()));
            assert!(kept, "{name}: {item}");
        }
        whole.sort();
        let mut again = ids(&cut);
        again.sort();
        assert_eq!(again, whole, "{name}");
    }
}

#[tokio::test]
async fn every_list_refuses_what_it_has_not_in_the_same_words() {
    let server = Server::start().await;
    let admin = fleet(&server).await;
    for (name, path, _) in LISTS {
        for (parameter, value, status) in [
            ("sort", "colour", 422),
            ("fields", "colour", 422),
            ("count", "many", 422),
            ("filter", "colour=red", 422),
            ("filter", "colour", 400),
            ("page_token", "eA", 400),
            ("limit", "0", 400),
            ("limit", "1001", 400),
            ("colour", "red", 400),
        ] {
            let refused = admin.get(&with(path, parameter, value)).await;
            assert_eq!(
                refused.status, status,
                "{name}: {parameter}={value}: {}",
                refused.text
            );
        }
        // A page token is valid only for the same list, filter and sort order.
        let first = admin.get(&with(path, "limit", "1")).await.expect(200).body;
        if let Some(token) = first["next_page_token"].as_str() {
            let page = with(path, "page_token", token);
            admin.get(&page).await.expect(200);
            let sorted = ["name", "-name", "created_at", "-created_at"]
                .map(|sort| with(&page, "sort", sort));
            let mut led_on = 0;
            for other in sorted {
                led_on += usize::from(admin.get(&other).await.status == 200);
            }
            assert_eq!(led_on, 1, "{name}: in its own order alone");
        }
    }
}

#[tokio::test]
async fn a_field_of_few_words_takes_no_other() {
    let server = Server::start().await;
    let admin = fleet(&server).await;
    for (path, field) in [
        ("/v1/users", "disabled"),
        ("/v1/components", "replaced"),
        ("/v1/claims", "replica"),
    ] {
        let refused = admin
            .get(&with(path, "filter", &format!("{field}=perhaps")))
            .await
            .expect(422);
        assert!(
            refused.text.contains("unknown_value") && refused.text.contains("true, false"),
            "{}",
            refused.text
        );
        admin
            .get(&with(path, "filter", &format!("{field}=true")))
            .await
            .expect(200);
    }
}

/// Builds a fleet with nodes in runs: the first `run` nodes are in rack `r1`, the middle nodes are
/// in another rack, and the last `run` nodes are in `r1` again.
async fn in_runs(nodes: u32, run: u32) -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let far = json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": 1000 } });
    admin.put("/v1/racks/other", &far).await.expect(201);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let runs =
        "INSERT INTO nodes (id, name, labels, annotations, spec, site_id, rack_id, profile_id, power, power_person, created_at, updated_at, state, entered_at, epoch, in_cluster)
         SELECT (lpad(to_hex(1700000000000 + g), 12, '0') || '70008000000000000000')::uuid, 'm' || lpad(g::text, 5, '0'),
                jsonb_build_object('parity', CASE WHEN g % 2 = 0 THEN 'even' ELSE 'odd' END), '{}', n.spec, n.site_id,
                (SELECT id FROM objects WHERE kind = 'rack' AND name = CASE WHEN g > RUN AND g <= NODES - RUN THEN 'other' ELSE 'r1' END),
                n.profile_id, 'manual', 'ada', now(), now(), 'available', now(), 0, false
         FROM nodes n, generate_series(1, NODES) g WHERE n.name = 'n1'";
    let runs = runs
        .replace("NODES", &nodes.to_string())
        .replace("RUN", &run.to_string());
    sqlx::query(sqlx::AssertSqlSafe(runs))
        .execute(&server.app.pool)
        .await
        .unwrap();
    for statement in [
        "UPDATE nodes SET rack_id = (SELECT id FROM objects WHERE kind = 'rack' AND name = 'other') WHERE name = 'n1'",
        "ANALYZE nodes",
    ] {
        sqlx::query(statement)
            .execute(&server.app.pool)
            .await
            .unwrap();
    }
    // Postgres marks the pages of the table as visible to all only after every older transaction
    // has ended, possibly a transaction in another database.
    let begun = std::time::Instant::now();
    let seen = "SELECT relallvisible >= relpages - 1 FROM pg_class WHERE relname = 'nodes'";
    loop {
        sqlx::query("VACUUM nodes")
            .execute(&server.app.pool)
            .await
            .unwrap();
        if sqlx::query_scalar(seen)
            .fetch_one(&server.app.pool)
            .await
            .unwrap()
        {
            return (server, admin);
        }
        assert!(
            begun.elapsed().as_secs() < 60,
            "somebody began before and does not end"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Nodes that do not fit are skipped in an index: a page behind thousands of such nodes costs as
/// much as any other page.
#[tokio::test]
async fn what_does_not_fit_is_not_fetched() {
    let (server, _) = in_runs(20_000, 2000).await;
    let mut conn = server.app.pool.acquire().await.unwrap();
    let odd = Scope {
        labels: [("parity".to_owned(), "odd".to_owned())].into(),
        ..Scope::default()
    };
    for (filter, sight) in [
        ("rack~\"r1*\"", Vec::new()),
        ("rack~\"r1*\"", vec![vec![odd]]),
        ("rack~\"r1*\" AND label.parity=odd", Vec::new()),
        ("rack~\"r1*\" AND state=available", Vec::new()),
    ] {
        for sort in NODES.sorts {
            let terms = parse(filter).unwrap();
            // The page begins after the last node of the first run, in either sort order.
            let number = if sort.order == Order::Up {
                2000
            } else {
                18_001
            };
            let after = match sort.key {
                Key::Name => format!("m{number:05}"),
                Key::Id => format!(
                    "{:012x}70008000000000000000",
                    1_700_000_000_000_u64 + number
                ),
            };
            let mut tx = conn.begin().await.unwrap();
            let before = rows_read(&mut tx).await;
            let page = Page {
                sort: *sort,
                after: Some(&after),
                limit: 40,
            };
            let ids = list_ids(&mut tx, &NODES, &terms, &sight, page)
                .await
                .unwrap();
            let read = rows_read(&mut tx).await - before;
            tx.rollback().await.unwrap();
            assert_eq!(ids.len(), 40, "{filter} by {}, {sight:?}", sort.word());
            assert!(
                read < 200,
                "{filter} by {}, {sight:?}: {read} rows were fetched to pass 16,000",
                sort.word()
            );
        }
    }
}

/// Returns the number of rows of the table `nodes` fetched and not yet reported by the session. A
/// session reports the counts between transactions.
async fn rows_read(conn: &mut sqlx::PgConnection) -> i64 {
    let read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'nodes'";
    sqlx::query_scalar(read).fetch_one(conn).await.unwrap()
}

/// Shortcuts inside the server do not change the result: the pages together are the whole list.
#[tokio::test]
async fn pages_of_a_list_in_runs_are_the_list() {
    let (server, admin) = in_runs(5000, 50).await;
    let body = json!({ "name": "odd", "role": "viewer", "scope": { "labels": { "parity": "odd" } }, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &body).await.expect(201);
    let odd = server.with(made.body["secret"].as_str().map(str::to_owned));
    for (caller, filter, fits) in [
        (&admin, "rack~%22r*%22", 100),
        (&admin, "rack~%22r*%22 AND label.parity=odd", 50),
        (
            &admin,
            "rack~%22*%22 AND state=available AND name~%22m000*%22",
            99,
        ),
        (&odd, "rack~%22r*%22 AND state!=failed", 50),
        (&odd, "site~%22l*%22 AND profile~%22v*%22 AND rack=r1", 50),
        (&admin, "rack~%22none*%22 AND label.parity=odd", 0),
    ] {
        for sort in ["name", "-name", "created_at", "-created_at"] {
            let path = format!(
                "/v1/nodes?count=exact&limit=17&sort={sort}&filter={}",
                filter.replace(' ', "%20")
            );
            let (mut seen, mut token) = (Vec::new(), String::new());
            loop {
                let page = caller.get(&format!("{path}{token}")).await.expect(200).body;
                assert_eq!(page["count"], fits, "{filter}");
                seen.extend(
                    page["items"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|node| node["name"].to_string()),
                );
                match page["next_page_token"].as_str() {
                    Some(next) => token = format!("&page_token={next}"),
                    None => break,
                }
            }
            let distinct: BTreeSet<_> = seen.iter().cloned().collect();
            assert_eq!(
                (seen.len(), distinct.len()),
                (fits, fits),
                "{filter} by {sort}"
            );
            let mut sorted = seen.clone();
            sorted.sort();
            if sort.starts_with('-') {
                sorted.reverse();
            }
            assert_eq!(seen, sorted, "{filter} by {sort}");
        }
    }
}
