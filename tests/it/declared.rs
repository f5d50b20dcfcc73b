//! The shared contract of declared kinds, shown on racks and sites, and the rules of every kind.

use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::Server;

#[tokio::test]
async fn an_object_is_created_read_replaced_patched_and_removed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);

    let created = admin.put("/v1/racks/r1", &fleet::rack()).await.expect(201);
    assert_eq!(created.header("etag"), "\"1\"");
    assert_eq!(created.header("location"), "/v1/racks/r1");
    assert_eq!(created.body["self"], "/v1/racks/r1");
    let again = admin.put("/v1/racks/r1", &fleet::rack()).await.expect(200);
    assert_eq!(
        again.body, created.body,
        "the same document again changes nothing"
    );
    let by_id = admin
        .get(&format!(
            "/v1/racks/{}",
            created.body["id"].as_str().unwrap()
        ))
        .await
        .expect(200);
    assert_eq!(by_id.body, created.body);

    let patched = admin
        .patch(
            "/v1/racks/r1",
            &json!({ "labels": { "row": "a" }, "spec": { "units": 48 } }),
        )
        .await
        .expect(200);
    assert_eq!(
        (
            patched.body["generation"].as_i64(),
            patched.body["spec"]["units"].as_i64()
        ),
        (Some(2), Some(48))
    );
    assert_eq!(patched.body["spec"]["power_budget_w"], 20_000);

    assert_eq!(
        admin.delete("/v1/racks/r1").await.problem(),
        (428, "precondition_required", "")
    );
    let stale = admin.expecting(1).delete("/v1/racks/r1").await.expect(412);
    assert_eq!(stale.header("etag"), "\"2\"");
    admin.expecting(2).delete("/v1/racks/r1").await.expect(204);
    admin.get("/v1/racks/r1").await.expect(404);
    let events = admin.get("/v1/events").await.expect(200);
    let kinds: Vec<&str> = events.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "object.created",
            "object.created",
            "object.changed",
            "object.removed"
        ]
    );
}

#[tokio::test]
async fn preconditions_hold_writes() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let body = json!({ "spec": {} });
    let only_new = admin.header("if-none-match", "*");
    only_new.put("/v1/sites/a", &body).await.expect(201);
    assert_eq!(
        only_new.put("/v1/sites/a", &body).await.problem(),
        (412, "exists", "")
    );
    assert_eq!(
        admin.expecting(7).put("/v1/sites/a", &body).await.problem(),
        (412, "stale_generation", "")
    );
    assert_eq!(
        admin.expecting(1).put("/v1/sites/b", &body).await.problem(),
        (412, "stale_generation", "")
    );
    admin
        .expecting(1)
        .put(
            "/v1/sites/a",
            &json!({ "labels": { "x": "y" }, "spec": {} }),
        )
        .await
        .expect(200);
}

#[tokio::test]
async fn what_a_client_wrote_comes_back_value_for_value() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    let mut body = fleet::subnet();
    body["spec"]["gateway"] = json!(null);
    body["spec"]["dns"] = json!([]);
    let subnet = admin.put("/v1/subnets/prov", &body).await.expect(201);
    assert_eq!(
        subnet.body["spec"], body["spec"],
        "null, [] and absent are three things"
    );
}

#[tokio::test]
async fn refusals_point_at_what_is_wrong() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    for (path, body, problem) in [
        (
            "/v1/racks/r1",
            json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": 1, "colour": 1 } }),
            (400, "invalid_request", "/spec/colour"),
        ),
        (
            "/v1/racks/r1",
            json!({ "spec": { "site": "lab", "units": 42 } }),
            (400, "invalid_request", "/spec/power_budget_w"),
        ),
        (
            "/v1/racks/r1",
            json!({ "spec": { "site": "lab", "units": "x", "power_budget_w": 1 } }),
            (400, "invalid_request", "/spec/units"),
        ),
        (
            "/v1/racks/r1",
            json!({ "spec": fleet::rack()["spec"], "id": 1 }),
            (400, "invalid_request", "/id"),
        ),
        (
            "/v1/racks/r1",
            json!({ "spec": { "site": "lab\u{0}", "units": 42, "power_budget_w": 1 } }),
            (400, "invalid_request", "/spec/site"),
        ),
        (
            "/v1/racks/r1",
            json!({ "spec": { "site": "lab", "units": 0, "power_budget_w": 1 } }),
            (422, "unprocessable", "/spec/units"),
        ),
        (
            "/v1/racks/r1",
            json!({ "spec": { "site": "mars", "units": 1, "power_budget_w": 1 } }),
            (422, "unprocessable", "/spec/site"),
        ),
        (
            "/v1/racks/r1",
            json!({ "labels": { "a b": "c" }, "spec": fleet::rack()["spec"] }),
            (422, "unprocessable", "/labels/a b"),
        ),
        (
            "/v1/racks/R1",
            fleet::rack(),
            (400, "invalid_request", "name"),
        ),
        (
            "/v1/racks/-",
            fleet::rack(),
            (400, "invalid_request", "name"),
        ),
        (
            "/v1/racks/0197b0f2-9a3c-7000-8000-000000000000",
            fleet::rack(),
            (400, "invalid_request", "name"),
        ),
    ] {
        assert_eq!(
            admin.put(path, &body).await.problem(),
            problem,
            "{path} {body}"
        );
    }
    let page = admin.get("/v1/racks").await.expect(200);
    assert_eq!(page.body["items"], json!([]), "nothing is half-created");
}

#[tokio::test]
async fn bodies_that_are_no_documents_are_refused_alike() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let json = admin.header("content-type", "application/json");
    let put = |body: Vec<u8>| json.send(reqwest::Method::PUT, "/v1/sites/a", body);
    assert_eq!(
        put(b"{".to_vec()).await.problem(),
        (400, "invalid_request", "")
    );
    assert_eq!(
        put("[".repeat(100_000).into_bytes()).await.problem(),
        (400, "invalid_request", "")
    );
    assert_eq!(
        put(b"{\"spec\":{},\"labels\":{\"a\":\"\\u0000\"}}".to_vec())
            .await
            .problem(),
        (400, "invalid_request", "/labels/a")
    );
    assert_eq!(
        put(vec![0xff, 0xfe]).await.problem(),
        (400, "invalid_request", "")
    );
    assert_eq!(
        put(vec![b' '; (1 << 20) + 1]).await.problem(),
        (413, "too_large", "")
    );
    let plain = admin
        .header("content-type", "text/plain")
        .send(reqwest::Method::PUT, "/v1/sites/a", b"{}".to_vec())
        .await;
    assert_eq!(plain.problem(), (415, "unsupported_media_type", ""));
    let method = admin
        .send(reqwest::Method::POST, "/v1/sites/a", Vec::new())
        .await;
    assert_eq!(method.problem(), (405, "method_not_allowed", ""));
    assert!(
        method.header("allow").contains("PUT"),
        "{:?}",
        method.headers
    );
    let nowhere = admin.get("/v1/nowhere").await;
    assert_eq!(nowhere.problem(), (404, "not_found", ""));
    assert_eq!(nowhere.header("content-type"), "application/problem+json");
    assert_eq!(nowhere.body["request_id"], nowhere.header("x-request-id"));
    assert_eq!(
        admin
            .header("x-request-id", "mine-1")
            .get("/v1/sites")
            .await
            .header("x-request-id"),
        "mine-1"
    );
    assert_ne!(
        admin
            .header("x-request-id", "not mine!")
            .get("/v1/sites")
            .await
            .header("x-request-id"),
        "not mine!"
    );
}

#[tokio::test]
async fn what_is_referred_to_stays() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let refused = admin.expecting(1).delete("/v1/sites/lab").await;
    assert_eq!(refused.problem(), (409, "in_use", ""));
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let refused = admin.expecting(1).delete("/v1/racks/r1").await;
    assert_eq!(
        refused.body["detail"],
        "r1 is referred to by node n1; remove that first."
    );
    assert_eq!(
        admin
            .expecting(1)
            .delete("/v1/subnets/prov")
            .await
            .problem(),
        (409, "in_use", "")
    );
    assert_eq!(
        admin
            .expecting(1)
            .delete("/v1/credentials/bmc")
            .await
            .problem(),
        (409, "in_use", "")
    );
    assert_eq!(
        admin
            .expecting(1)
            .delete("/v1/images/debian-12")
            .await
            .problem(),
        (409, "in_use", "")
    );
}

#[tokio::test]
async fn lists_are_paged_by_name_and_filtered_by_label() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for name in ["a", "b", "c", "d", "e"] {
        let region = if name < "c" { "north" } else { "south" };
        admin
            .put(
                &format!("/v1/sites/{name}"),
                &json!({ "labels": { "region": region }, "spec": {} }),
            )
            .await
            .expect(201);
    }
    let mut seen = Vec::new();
    let mut path = "/v1/sites?limit=2".to_owned();
    loop {
        let page = admin.get(&path).await.expect(200);
        seen.extend(
            page.body["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned()),
        );
        match page.body["next_page_token"].as_str() {
            Some(token) => path = format!("/v1/sites?limit=2&page_token={token}"),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    let south = admin
        .get("/v1/sites?filter=label.region%3Dsouth")
        .await
        .expect(200);
    assert_eq!(south.body["items"].as_array().unwrap().len(), 3);
    assert_eq!(
        admin.get("/v1/sites?limit=0").await.problem(),
        (400, "invalid_request", "limit")
    );
    assert_eq!(admin.get("/v1/sites?colour=red").await.problem().0, 400);
    assert_eq!(
        admin.get("/v1/sites?filter=state%3Dx").await.problem(),
        (422, "unprocessable", "filter")
    );
    assert_eq!(
        admin.get("/v1/sites?page_token=AAAA").await.problem(),
        (400, "invalid_request", "page_token")
    );
}

#[tokio::test]
async fn a_secret_goes_in_and_never_comes_back() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let canary = "canary-7f3a";
    let body = json!({ "spec": { "purpose": "bmc", "user": "root", "secret": canary } });
    let created = admin.put("/v1/credentials/bmc", &body).await.expect(201);
    assert_eq!(created.body["status"]["set"], true);
    let hash = created.body["status"]["secret_hash"].clone();
    let same = admin.put("/v1/credentials/bmc", &body).await.expect(200);
    assert_eq!(same.body["generation"], 1);
    let patched = admin
        .patch(
            "/v1/credentials/bmc",
            &json!({ "spec": { "secret": "other" } }),
        )
        .await
        .expect(200);
    assert_ne!(patched.body["status"]["secret_hash"], hash);
    assert_eq!(patched.body["generation"], 2);
    let kept = admin
        .put(
            "/v1/credentials/bmc",
            &json!({ "spec": { "purpose": "bmc", "user": "admin" } }),
        )
        .await
        .expect(200);
    assert_eq!(
        kept.body["status"]["secret_hash"], patched.body["status"]["secret_hash"],
        "a PUT without a secret keeps it"
    );
    for reply in [
        created,
        same,
        patched,
        admin.get("/v1/credentials").await,
        admin.get("/v1/events").await,
    ] {
        assert!(!reply.text.contains(canary), "{}", reply.text);
    }
    let columns = "SELECT string_agg(o::text, '') || (SELECT string_agg(e::text, '') FROM events e) FROM objects o";
    let stored: String = sqlx::query_scalar(columns)
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert!(!stored.contains(canary), "{stored}");
}

#[tokio::test]
async fn a_pool_is_refused_when_its_parts_do_not_fit() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin
        .put("/v1/suites/smoke", &fleet::suite())
        .await
        .expect(201);
    let mut unlocked = fleet::stack();
    unlocked["spec"].as_object_mut().unwrap().remove("lock");
    admin
        .put("/v1/stacks/unlocked", &unlocked)
        .await
        .expect(201);
    let mut pool = fleet::pool();
    pool["spec"]["stack"] = json!("unlocked");
    assert_eq!(
        admin.put("/v1/pools/gpu", &pool).await.problem(),
        (422, "unprocessable", "/spec/stack")
    );
    let mut other = fleet::stack();
    other["spec"]["lock"]["image_digest"] = json!(fleet::digest("another"));
    assert_eq!(
        admin.put("/v1/stacks/other", &other).await.problem(),
        (422, "unprocessable", "/spec/lock/image_digest")
    );
    let mut changed = fleet::stack();
    changed["spec"]["packages"]["chrony"] = json!("4.4-1");
    assert_eq!(
        admin.put("/v1/stacks/base", &changed).await.problem(),
        (409, "immutable", "")
    );
    let once = changed.clone();
    changed["spec"]["version"] = json!("2");
    admin.put("/v1/stacks/base", &changed).await.expect(200);
    // A published version keeps the first content, also after a later version.
    let refused = admin.put("/v1/stacks/base", &once).await;
    assert_eq!(refused.problem(), (409, "immutable", ""));
    assert!(
        refused
            .text
            .contains("Version 1 was published before as sha256:"),
        "{}",
        refused.text
    );
    admin
        .put("/v1/stacks/base", &fleet::stack())
        .await
        .expect(200);
    admin.put("/v1/stacks/base", &changed).await.expect(200);
}

/// A profile may require an open gate of a suite. The profile adds no trust in the parser, and no
/// threshold.
#[tokio::test]
async fn a_suite_and_a_profile_of_one_pool_must_fit() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut suite = fleet::suite();
    let limit = |limit: Value| json!([{ "metric": "rdma.bandwidth", "op": ">=", "limit": limit, "unit": "Gb/s" }]);
    let open = json!({
        "id": "rdma.new", "title": "New", "stage": "node", "timeout_s": 30, "parser": "perftest-json", "argv": ["ib_write_bw"],
        "needs": ["drained"], "effects": ["network_load"],
        "shadow": true, "criteria": limit(json!(380)), "finding": "The port is slow.",
    });
    suite["spec"]["gates"].as_array_mut().unwrap().push(open);
    admin.put("/v1/suites/smoke", &suite).await.expect(201);
    let mut strict = fleet::profile();
    strict["spec"]["gates"] =
        json!({ "rdma.new": { "mode": "required", "because": "we want to know" } });
    admin
        .put("/v1/hardware_profiles/strict", &strict)
        .await
        .expect(201);
    let mut pool = fleet::pool();
    pool["spec"]["profile"] = json!("strict");
    let refused = admin.put("/v1/pools/gpu", &pool).await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/spec/suite"));
    assert!(
        refused.text.contains("perftest-json is experimental"),
        "{}",
        refused.text
    );

    // An unfit change of the suite or profile of a pool is refused alike.
    let mild = fleet::profile();
    admin
        .put("/v1/hardware_profiles/strict", &mild)
        .await
        .expect(200);
    admin.put("/v1/pools/gpu", &pool).await.expect(201);
    let refused = admin.put("/v1/hardware_profiles/strict", &strict).await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/spec"));
    assert!(
        refused.text.contains("The pool gpu uses it."),
        "{}",
        refused.text
    );
    suite["spec"]["gates"][1] = json!({
        "id": "rdma.new", "title": "New", "stage": "node", "timeout_s": 30, "parser": "perftest", "argv": ["ib_write_bw"],
        "needs": ["drained"], "effects": ["network_load"],
        "criteria": limit(json!("profile:rdma.bandwidth")), "finding": "The port is slow.",
    });
    let refused = admin.put("/v1/suites/smoke", &suite).await;
    assert!(
        refused.text.contains("no threshold rdma.bandwidth"),
        "{}",
        refused.text
    );
    assert_eq!(refused.problem(), (422, "unprocessable", "/spec"));
}

/// A pool older than a rule stays writable, like the pool's suite and profile. Only new faults are
/// refused.
#[tokio::test]
async fn what_did_not_fit_before_keeps_nobody_from_changing_something_else() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut suite = fleet::suite();
    let gate = |id: &str, metric: &str| {
        json!({
            "id": id, "title": id, "stage": "node", "timeout_s": 30, "parser": "fio", "argv": ["fio"], "finding": "The disk is slow.",
            "needs": ["drained"], "effects": ["writes_disk"],
            "criteria": [{ "metric": metric, "op": ">=", "limit": format!("profile:{id}"), "unit": "MB/s" }],
        })
    };
    let more = [
        gate("disk.read", "fio.read_bandwidth"),
        gate("disk.write", "fio.write_bandwidth"),
    ];
    suite["spec"]["gates"].as_array_mut().unwrap().extend(more);
    let with = |thresholds: Value| {
        let mut profile = fleet::profile();
        profile["spec"]["thresholds"] = thresholds;
        profile
    };
    let mb = |value: u32| json!({ "value": value, "unit": "MB/s", "provenance": "pinned", "source": "the one who pinned it" });
    admin
        .put("/v1/suites/smoke", &fleet::suite())
        .await
        .expect(201);
    let mut pool = fleet::pool();
    pool["spec"]["profile"] = json!("virtual");
    admin.put("/v1/pools/gpu", &pool).await.expect(201);
    admin
        .put(
            "/v1/hardware_profiles/virtual",
            &with(json!({ "disk.read": mb(900) })),
        )
        .await
        .expect(200);
    let refused = admin.put("/v1/suites/smoke", &suite).await;
    assert!(
        refused.text.contains("no threshold disk.write"),
        "{}",
        refused.text
    );
    // The row of an older version, without the check.
    let before = "UPDATE objects SET spec = $1 WHERE kind = 'suite' AND name = 'smoke'";
    sqlx::query(before)
        .bind(&suite["spec"])
        .execute(&server.app.pool)
        .await
        .unwrap();

    admin.put("/v1/pools/gpu", &pool).await.expect(200);
    pool["spec"]["replicas"] = json!(0);
    assert_eq!(
        admin.put("/v1/pools/gpu", &pool).await.expect(200).body["generation"],
        2
    );
    admin
        .put(
            "/v1/hardware_profiles/virtual",
            &with(json!({ "disk.read": mb(800) })),
        )
        .await
        .expect(200);
    suite["spec"]["version"] = json!("2");
    admin.put("/v1/suites/smoke", &suite).await.expect(200);
    // A write with a new fault is refused, for the new fault alone.
    let refused = admin
        .put("/v1/hardware_profiles/virtual", &with(json!({})))
        .await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/spec"));
    assert!(
        refused.text.contains("no threshold disk.read") && !refused.text.contains("disk.write"),
        "{}",
        refused.text
    );
    pool["spec"]["health"] = json!({ "sweep": "smoke" });
    assert_eq!(
        admin.put("/v1/pools/gpu", &pool).await.problem(),
        (422, "unprocessable", "/spec/health/sweep")
    );
    suite["spec"]["gates"]
        .as_array_mut()
        .unwrap()
        .push(gate("disk.third", "fio.read_bandwidth"));
    let refused = admin.put("/v1/suites/smoke", &suite).await;
    assert!(
        refused.text.contains("no threshold disk.third") && !refused.text.contains("disk.write"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn kinds_that_list_packages_may_be_larger() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut image = fleet::image();
    let package = json!({ "name": "p".repeat(40), "version": "1".repeat(40), "arch": "amd64" });
    image["spec"]["packages"] = vec![package; 20_000].into();
    let size = image.to_string().len();
    assert!((2 << 20..8 << 20).contains(&size), "{size}");
    admin.put("/v1/images/large", &image).await.expect(201);
    let mut rack = fleet::rack();
    rack["annotations"] = json!({ "note": "x".repeat(2 << 20) });
    assert_eq!(
        admin.put("/v1/racks/large", &rack).await.problem(),
        (413, "too_large", "")
    );
}
