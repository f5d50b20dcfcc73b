//! Who may do what: every documented route as nobody and as a viewer, tokens, sessions, other sites.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use reqwest::Method;
use serde_json::json;

use crate::support::server::Server;

/// Every documented operation: method, and path with its parameters filled in.
fn operations() -> Vec<(Method, String)> {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        let mut filled = path.replace("{action}", "inspect").replace("{hex}", &"0".repeat(64));
        while let Some((before, rest)) = filled.split_once('{') {
            filled = format!("{before}x{}", rest.split_once('}').unwrap().1);
        }
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            operations.push((method.to_uppercase().parse().unwrap(), filled.clone()));
        }
    }
    operations
}

#[tokio::test]
async fn nobody_gets_in_anywhere_and_a_viewer_writes_nothing() {
    let server = Server::start().await;
    let (nobody, viewer) = (server.nobody(), server.caller(Role::Viewer).await);
    let operations = operations();
    assert!(operations.len() > 60, "{}", operations.len());
    for (method, path) in operations {
        let reads = method == Method::GET || method == Method::HEAD;
        let body = if reads { Vec::new() } else { b"{}".to_vec() };
        let send = async |caller: &crate::support::server::Caller| {
            caller.header("content-type", "application/json").send(method.clone(), &path, body.clone()).await.status
        };
        assert_eq!(send(&nobody).await, 401, "{method} {path} as nobody");
        let seen = send(&viewer).await;
        match reads && path != "/v1/tokens" {
            // A plan writes nothing.
            false if path == "/v1/plan" => assert_eq!(seen, 400, "{path} as a viewer"),
            true => assert!(seen != 401 && seen != 403, "{method} {path} as a viewer: {seen}"),
            false => assert_eq!(seen, 403, "{method} {path} as a viewer"),
        }
    }
    for path in ["/metrics", "/v1/prometheus/targets"] {
        assert_eq!(nobody.get(path).await.status, 401, "{path}");
        viewer.get(path).await.expect(200);
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        nobody.get(path).await.expect(200);
    }
}

#[tokio::test]
async fn a_token_works_until_it_is_revoked_or_over() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let made =
        admin.post("/v1/tokens", &json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 })).await.expect(201);
    let secret = made.body["secret"].as_str().unwrap().to_owned();
    let ci = server.with(Some(secret.clone()));
    ci.get("/v1/sites").await.expect(200);
    assert!(!admin.get("/v1/tokens").await.expect(200).text.contains(&secret[60..]));
    assert_eq!(
        admin.post("/v1/tokens", &json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 })).await.problem(),
        (409, "name_taken", "")
    );
    for bad in [secret[..secret.len() - 1].to_owned(), format!("{secret}0"), "mst_".into(), "x".repeat(10_000)] {
        assert_eq!(server.with(Some(bad)).get("/v1/sites").await.status, 401);
    }
    server.app.clock.advance(SignedDuration::from_secs(3601));
    assert_eq!(ci.get("/v1/sites").await.status, 401, "over");
    let second =
        admin.post("/v1/tokens", &json!({ "name": "ci2", "role": "viewer", "expires_in_s": 3600 })).await.expect(201);
    let ci2 = server.with(Some(second.body["secret"].as_str().unwrap().into()));
    ci2.get("/v1/sites").await.expect(200);
    admin.delete(&format!("/v1/tokens/{}", second.body["token"]["id"].as_str().unwrap())).await.expect(204);
    assert_eq!(ci2.get("/v1/sites").await.status, 401, "revoked");
    assert_eq!(
        admin.post("/v1/tokens", &json!({ "name": "x", "role": "viewer", "expires_in_s": 1 })).await.problem().0,
        422
    );
}

#[tokio::test]
async fn a_session_is_a_browsers_and_no_other_site_can_use_it() {
    let server = Server::start().await;
    let app = &server.app;
    let hash = muster_server::auth::passwords::hash(muster_core::values::Secret::new("open sesame")).await.unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "alice", &hash, "admin", app.clock.now()).await.unwrap();
    let sign_in = async |password: &str, page: &str| {
        let headers = reqwest::header::HeaderMap::from_iter([(reqwest::header::ORIGIN, page.parse().unwrap())]);
        let password = muster_core::values::Secret::new(password);
        muster_server::auth::sessions::sign_in(app, &headers, "alice", password).await.unwrap()
    };
    assert!(sign_in("open barley", "http://m").await.is_none());
    let by_tls = sign_in("open sesame", "https://m").await.unwrap();
    assert!(by_tls.to_string().contains("; Secure"), "{by_tls}");
    let cookie = sign_in("open sesame", "http://m").await.unwrap();
    assert!(
        cookie.to_string().contains("HttpOnly; SameSite=Lax") && !cookie.to_string().contains("Secure"),
        "{cookie}"
    );
    let browser = server.nobody().header("cookie", &format!("{}={}", cookie.name(), cookie.value()));
    browser.get("/v1/sites").await.expect(200);
    let body = json!({ "spec": {} });
    browser.header("sec-fetch-site", "same-origin").put("/v1/sites/a", &body).await.expect(201);
    assert_eq!(browser.header("sec-fetch-site", "cross-site").put("/v1/sites/b", &body).await.status, 403);
    assert_eq!(browser.header("origin", "http://evil").header("host", "m").put("/v1/sites/b", &body).await.status, 403);
    app.clock.advance(SignedDuration::from_hours(13));
    assert_eq!(browser.get("/v1/sites").await.status, 401);
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let server = Server::start().await;
    for path in ["/v1/sites", "/healthz", "/nowhere"] {
        let reply = server.nobody().get(path).await;
        assert!(reply.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path}");
    }
}
