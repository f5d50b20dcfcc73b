//! Access rights: the matrix of endpoints and roles, tokens, sessions, other sites.

mod expected; // The callers allowed at every endpoint
mod matrix; // Every endpoint, every role, own and foreign objects
mod raw_text; // Consoles, logs and evidence of machines
mod references; // Both ends of every reference
mod release_owner; // Rights equal to root on nodes
mod vouching; // People who left, and bindings of unseen people

use jiff::SignedDuration;
use muster_server::auth::passwords::Lane;
use serde_json::json;

use crate::support::fleet;
use crate::support::server::{Caller, Server};

/// A token of a role, valid in a single site.
async fn only_in(server: &Server, admin: &Caller, role: &str, site: &str) -> Caller {
    let name = format!("{}-{site}", role.replace('_', "-"));
    let body =
        json!({ "name": name, "role": role, "scope": { "site": site }, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &body).await.expect(201);
    server.with(Some(made.body["secret"].as_str().unwrap().to_owned()))
}

/// A full site with a claim on the second node, and the site `far`.
async fn two_sites(server: &Server) -> Caller {
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    admin
        .put("/v1/sites/far", &json!({ "spec": {} }))
        .await
        .expect(201);
    let rack = json!({ "spec": { "site": "far", "units": 42, "power_budget_w": 1000 } });
    admin.put("/v1/racks/r9", &rack).await.expect(201);
    fleet::available(server, &admin, 2).await;
    let claim = json!({ "name": "held", "spec": { "pool": "gpu", "node": "n2" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    admin
}

#[tokio::test]
async fn a_list_of_nodes_holds_those_that_its_reader_may_see() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let manual = json!({ "manual": { "person": "ada" } });
    let far = json!({ "labels": { "parity": "odd" }, "spec": { "site": "far", "rack": "r9", "power": manual, "macs": [{ "mac": "52:54:00:00:00:05" }] } });
    admin.put("/v1/nodes/m1", &far).await.expect(201);
    let mut number = 0;
    let mut seen = async |scope: serde_json::Value, query: &str| {
        number += 1;
        let token = json!({ "name": format!("t{number}"), "role": "viewer", "scope": scope, "expires_in_s": 3600 });
        let made = admin.post("/v1/tokens", &token).await.expect(201);
        let reader = server.with(made.body["secret"].as_str().map(str::to_owned));
        let page = reader
            .get(&format!("/v1/nodes?count=exact&limit=1{query}"))
            .await
            .expect(200)
            .body;
        let mut names = vec![
            page["items"][0]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ];
        if let Some(token) = page["next_page_token"].as_str() {
            let next = reader
                .get(&format!("/v1/nodes?limit=1{query}&page_token={token}"))
                .await
                .expect(200)
                .body;
            names.push(next["items"][0]["name"].as_str().unwrap().to_owned());
            assert_eq!(next["next_page_token"], json!(null), "{scope}");
        }
        (names.join(" "), page["count"].as_i64().unwrap())
    };
    assert_eq!(
        seen(json!({ "site": "lab" }), "").await,
        ("n1 n2".into(), 2)
    );
    assert_eq!(seen(json!({ "site": "far" }), "").await, ("m1".into(), 1));
    assert_eq!(
        seen(json!({ "rack": "r1", "labels": { "parity": "even" } }), "").await,
        ("n2".into(), 1)
    );
    assert_eq!(
        seen(json!({ "labels": { "parity": "odd" } }), "").await,
        ("m1 n1".into(), 2)
    );
    assert_eq!(seen(json!({ "pool": "gpu" }), "").await, ("n2".into(), 1));
    assert_eq!(
        seen(json!({ "site": "lab", "pool": "other" }), "").await,
        (String::new(), 0)
    );
    assert_eq!(
        seen(json!({ "site": "far" }), "&filter=site%3Dlab").await,
        (String::new(), 0)
    );
}

#[tokio::test]
async fn both_ends_of_a_relation_must_be_ones_own() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let here = only_in(&server, &admin, "operator", "lab").await;
    let owner = only_in(&server, &admin, "release_owner", "lab").await;
    let far_cluster = {
        let mut body = fleet::cluster();
        body["spec"]["site"] = json!("far");
        admin.put("/v1/clusters/far", &body).await.expect(201);
        let mut pool = fleet::pool();
        pool["spec"]["cluster"] = json!("far");
        admin.put("/v1/pools/far", &pool).await.expect(201);
        pool
    };
    let far_node = json!({ "spec": { "site": "far", "rack": "r9" } });
    let manual = json!({ "manual": { "person": "ada" } });
    let node = json!({ "spec": { "site": "lab", "rack": "r1", "power": manual, "macs": [{ "mac": "52:54:00:00:00:05" }] } });
    here.put("/v1/nodes/n5", &node).await.expect(201);
    // A rack, a pool, a node, a claim: in the caller's site, and reaching into the other site.
    here.put("/v1/racks/r2", &fleet::rack()).await.expect(201);
    owner.put("/v1/pools/own", &fleet::pool()).await.expect(201);
    let refused = [
        here.put(
            "/v1/racks/r3",
            &json!({ "spec": { "site": "far", "units": 42, "power_budget_w": 1 } }),
        )
        .await,
        here.patch("/v1/racks/r2", &json!({ "spec": { "site": "far" } }))
            .await,
        owner.put("/v1/pools/mine", &far_cluster).await,
        owner
            .patch("/v1/pools/own", &json!({ "spec": { "cluster": "far" } }))
            .await,
        here.patch("/v1/nodes/n5", &far_node).await,
        here.post(
            "/v1/nodes/n5/actions/move",
            &json!({ "site": "far", "rack": "r9" }),
        )
        .await,
        here.post(
            "/v1/claims",
            &json!({ "spec": { "pool": "far", "node": "n1" } }),
        )
        .await,
    ];
    for (number, reply) in refused.iter().enumerate() {
        assert!(
            [403, 404, 422].contains(&reply.status),
            "{number}: {}",
            reply.text
        );
    }
    assert_eq!(admin.get("/v1/racks/r2").await.body["spec"]["site"], "lab");
    assert_eq!(admin.get("/v1/nodes/n5").await.body["spec"]["site"], "lab");
    // The same writes succeed with rights in both sites.
    admin.patch("/v1/nodes/n5", &far_node).await.expect(200);
    admin
        .patch("/v1/racks/r2", &json!({ "spec": { "site": "far" } }))
        .await
        .expect(200);
    admin
        .put("/v1/pools/theirs", &far_cluster)
        .await
        .expect(201);
    for path in ["/v1/racks/r3", "/v1/pools/mine"] {
        admin.get(path).await.expect(404);
    }
    let own = admin.get("/v1/pools/own").await.expect(200).body;
    assert_eq!(own["spec"]["cluster"], "slurm");
    here.post(
        "/v1/claims",
        &json!({ "spec": { "pool": "gpu", "node": "n1" } }),
    )
    .await
    .expect(201);
    // A hidden object reads as a missing object.
    let there = only_in(&server, &admin, "operator", "far").await;
    let (hidden, missing) = (
        there.get("/v1/nodes/n1").await,
        there.get("/v1/nodes/zz").await,
    );
    let detail = |body: &serde_json::Value| body["detail"].as_str().unwrap().replace("n1", "zz");
    assert_eq!(
        (hidden.status, detail(&hidden.body)),
        (404, detail(&missing.body))
    );
}

#[tokio::test]
async fn a_binding_gives_a_role_in_its_scope_and_a_token_at_most_its_owners() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let app = &server.app;
    let hash =
        muster_server::auth::passwords::hash(muster_core::values::Secret::new("open sesame"))
            .await
            .unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "bob", &hash, "guest", app.clock.now())
        .await
        .unwrap();
    server.seal_rows().await;
    let headers = reqwest::header::HeaderMap::new();
    let password = muster_core::values::Secret::new("open sesame");
    let cookie =
        muster_server::auth::sessions::sign_in(app, &headers, "bob", password, Lane::Stranger)
            .await
            .unwrap()
            .unwrap();
    let bob = server
        .nobody()
        .header("cookie", &format!("{}={}", cookie.name(), cookie.value()));
    bob.get("/v1/nodes/n1").await.expect(404);
    let binding = json!({ "spec": { "subject": "user:bob", "role": "operator", "scope": { "site": "lab", "labels": { "parity": "odd" } } } });
    admin
        .put("/v1/role_bindings/bob", &binding)
        .await
        .expect(201);
    bob.get("/v1/nodes/n1").await.expect(200);
    bob.get("/v1/nodes/n2").await.expect(404);
    bob.post("/v1/nodes/n1/actions/inspect", &json!({}))
        .await
        .expect(202);
    assert_eq!(
        bob.get("/v1/nodes").await.expect(200).body["items"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert!(!bob.get("/v1/events").await.expect(200).text.contains("n2"));
    assert_eq!(
        admin.expecting(1).delete("/v1/sites/lab").await.problem().1,
        "in_use"
    );

    // A token has at most the owner's rights, and loses rights together with the owner.
    let token = |role: &str, scope: serde_json::Value| json!({ "name": format!("{role}-of-bob"), "role": role, "scope": scope, "expires_in_s": 3600 });
    let odd = json!({ "site": "lab", "labels": { "parity": "odd" } });
    for wrong in [
        token("operator", json!({})),
        token("operator", json!({ "site": "lab" })),
        token("admin", odd.clone()),
    ] {
        bob.post("/v1/tokens", &wrong).await.expect(403);
    }
    let made = bob
        .post("/v1/tokens", &token("viewer", odd))
        .await
        .expect(201);
    let machine = server.with(Some(made.body["secret"].as_str().unwrap().to_owned()));
    machine.get("/v1/nodes/n1").await.expect(200);
    assert_eq!(
        machine
            .post("/v1/nodes/n1/actions/inspect", &json!({}))
            .await
            .status,
        403
    );
    let listed = bob.get("/v1/tokens").await.expect(200);
    assert_eq!(
        listed.body["items"].as_array().unwrap().len(),
        1,
        "{}",
        listed.text
    );
    assert!(
        admin.get("/v1/tokens").await.body["items"]
            .as_array()
            .unwrap()
            .len()
            > 1
    );
    admin
        .expecting(1)
        .delete("/v1/role_bindings/bob")
        .await
        .expect(204);
    machine.get("/v1/nodes/n1").await.expect(404);
    bob.get("/v1/nodes/n1").await.expect(404);
}

#[tokio::test]
async fn a_token_works_until_it_is_revoked_or_over() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let made = admin
        .post(
            "/v1/tokens",
            &json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 }),
        )
        .await
        .expect(201);
    let secret = made.body["secret"].as_str().unwrap().to_owned();
    let ci = server.with(Some(secret.clone()));
    ci.get("/v1/sites").await.expect(200);
    assert!(
        !admin
            .get("/v1/tokens")
            .await
            .expect(200)
            .text
            .contains(&secret[60..])
    );
    assert_eq!(
        admin
            .post(
                "/v1/tokens",
                &json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 })
            )
            .await
            .problem(),
        (409, "name_taken", "")
    );
    for bad in [
        secret[..secret.len() - 1].to_owned(),
        format!("{secret}0"),
        "mst_".into(),
        "x".repeat(10_000),
    ] {
        assert_eq!(server.with(Some(bad)).get("/v1/sites").await.status, 401);
    }
    server.app.clock.advance(SignedDuration::from_secs(3601));
    assert_eq!(ci.get("/v1/sites").await.status, 401, "over");
    let second = admin
        .post(
            "/v1/tokens",
            &json!({ "name": "ci2", "role": "viewer", "expires_in_s": 3600 }),
        )
        .await
        .expect(201);
    let ci2 = server.with(Some(second.body["secret"].as_str().unwrap().into()));
    ci2.get("/v1/sites").await.expect(200);
    admin
        .expecting(1)
        .delete(&format!(
            "/v1/tokens/{}",
            second.body["token"]["id"].as_str().unwrap()
        ))
        .await
        .expect(204);
    assert_eq!(ci2.get("/v1/sites").await.status, 401, "revoked");
    assert_eq!(
        admin
            .post(
                "/v1/tokens",
                &json!({ "name": "x", "role": "viewer", "expires_in_s": 1 })
            )
            .await
            .problem()
            .0,
        422
    );
}

#[tokio::test]
async fn a_session_is_a_browsers_and_no_other_site_can_use_it() {
    let server = Server::start().await;
    let app = &server.app;
    let hash =
        muster_server::auth::passwords::hash(muster_core::values::Secret::new("open sesame"))
            .await
            .unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "alice", &hash, "admin", app.clock.now())
        .await
        .unwrap();
    server.seal_rows().await;
    let sign_in = async |password: &str, page: &str| {
        let headers = reqwest::header::HeaderMap::from_iter([(
            reqwest::header::ORIGIN,
            page.parse().unwrap(),
        )]);
        let password = muster_core::values::Secret::new(password);
        muster_server::auth::sessions::sign_in(app, &headers, "alice", password, Lane::Stranger)
            .await
            .unwrap()
    };
    assert!(sign_in("open barley", "http://m").await.is_none());
    let by_tls = sign_in("open sesame", "https://m").await.unwrap();
    assert!(by_tls.to_string().contains("; Secure"), "{by_tls}");
    let cookie = sign_in("open sesame", "http://m").await.unwrap();
    assert!(
        cookie.to_string().contains("HttpOnly; SameSite=Lax")
            && !cookie.to_string().contains("Secure"),
        "{cookie}"
    );
    let browser = server
        .nobody()
        .header("cookie", &format!("{}={}", cookie.name(), cookie.value()));
    browser.get("/v1/sites").await.expect(200);
    let body = json!({ "spec": {} });
    browser
        .header("sec-fetch-site", "same-origin")
        .put("/v1/sites/a", &body)
        .await
        .expect(201);
    assert_eq!(
        browser
            .header("sec-fetch-site", "cross-site")
            .put("/v1/sites/b", &body)
            .await
            .status,
        403
    );
    assert_eq!(
        browser
            .header("origin", "http://evil")
            .header("host", "m")
            .put("/v1/sites/b", &body)
            .await
            .status,
        403
    );
    app.clock.advance(SignedDuration::from_hours(13));
    assert_eq!(browser.get("/v1/sites").await.status, 401);
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let server = Server::start().await;
    for path in ["/v1/sites", "/healthz", "/nowhere"] {
        let reply = server.nobody().get(path).await;
        assert!(
            reply
                .header("content-security-policy")
                .starts_with("default-src 'none'"),
            "{path}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path}");
    }
}
