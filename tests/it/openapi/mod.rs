//! The description of the contract is checked in: a change to it is seen in review.

pub(crate) mod examples; // What it shows is what a server takes and answers
mod schema; // A value against a schema

use std::path::Path;

/// `UPDATE_OPENAPI=1 cargo nextest run -p muster-tests openapi` writes it anew.
#[test]
fn the_checked_in_description_is_the_servers() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("{description:#}\n")).unwrap();
    }
    let stored: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(
        stored == description,
        "docs/openapi.json is not the server's: set UPDATE_OPENAPI=1 and run this test again"
    );
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_a_name() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let text = description.to_string();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("\"$ref\":\"#") {
        let (pointer, next) = after.split_once('"').unwrap();
        assert!(
            description.pointer(pointer).is_some(),
            "{pointer} leads nowhere"
        );
        rest = next;
    }
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap_or_default();
            assert!(
                name.contains('_') && names.insert(name.to_owned()),
                "{method} {path}: {name:?}"
            );
        }
    }
}

#[tokio::test]
async fn every_post_takes_an_idempotency_key_but_the_one_that_writes_nothing() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let posts = description["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(path, item)| Some((path, item.get("post")?)));
    let mut without = Vec::new();
    let mut count = 0;
    for (path, operation) in posts {
        count += 1;
        let takes =
            |one: &serde_json::Value| one["name"] == "Idempotency-Key" && one["in"] == "header";
        if !operation["parameters"]
            .as_array()
            .is_some_and(|all| all.iter().any(takes))
        {
            without.push(path.as_str());
        }
    }
    assert!(count > 10, "{count} routes");
    assert_eq!(without, ["/v1/plan"]);
}

/// What is shown once is shown again to the same request, and is nowhere readable meanwhile.
#[tokio::test]
async fn a_secret_is_answered_again_under_its_key_and_stored_sealed() {
    let server = crate::support::server::Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &serde_json::json!({ "spec": {} }))
        .await
        .expect(201);
    let token = serde_json::json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 });
    let agent = serde_json::json!({ "name": "a1" });
    // A token is one; an agent that has no certificate yet is the same one, with another token to enrol with.
    for (path, body, secret, another) in [
        ("/v1/tokens", token, "secret", 409),
        ("/v1/sites/lab/agents", agent, "token", 201),
    ] {
        let keyed = admin.header("idempotency-key", secret);
        let first = keyed.post(path, &body).await.expect(201);
        let again = keyed.post(path, &body).await.expect(201);
        assert_eq!(
            (&first.body, again.header("idempotency-replayed")),
            (&again.body, "true"),
            "{path}"
        );
        let other = admin.post(path, &body).await;
        assert_eq!(
            (other.status, other.body[secret] != first.body[secret]),
            (another, true),
            "{path}"
        );
        let shown = first.body[secret].as_str().unwrap();
        assert!(shown.len() > 60, "{shown}");
        let stored: String =
            sqlx::query_scalar("SELECT string_agg(k::text, ' ') FROM idempotency_keys k")
                .fetch_one(&server.app.pool)
                .await
                .unwrap();
        assert!(
            stored.contains("$sealed") && !stored.contains(shown),
            "{stored}"
        );
        // Under another actor or key it does not open.
        sqlx::query("UPDATE idempotency_keys SET key = 'moved-' || key WHERE key = $1")
            .bind(secret)
            .execute(&server.app.pool)
            .await
            .unwrap();
        let moved = format!("moved-{secret}");
        assert_eq!(
            admin
                .header("idempotency-key", &moved)
                .post(path, &body)
                .await
                .status,
            500
        );
    }
    assert_eq!(
        admin.get("/v1/sites/lab/agents").await.expect(200).body["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
