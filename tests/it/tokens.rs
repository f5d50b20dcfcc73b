//! Tokens in the database. A reader of the rows without the master key learns no token, and a
//! writer makes no valid one.

use muster_api::tokens::Role;
use muster_core::clock::Clock;
use muster_core::values::Digest;
use muster_server::keys::{self, Forget, Keys, MasterKey};
use serde_json::json;

use crate::support::server::{Caller, START, Server};

async fn made(server: &Server, admin: &Caller, name: &str) -> (String, Caller) {
    let body = json!({ "name": name, "role": "viewer", "expires_in_s": 86400 });
    let secret = admin.post("/v1/tokens", &body).await.expect(201).body["secret"]
        .as_str()
        .unwrap()
        .to_owned();
    (secret.clone(), server.with(Some(secret)))
}

async fn row(server: &Server, name: &str) -> (Vec<u8>, Option<String>) {
    sqlx::query_as("SELECT token_hash, key_id FROM tokens WHERE name = $1")
        .bind(name)
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

async fn run(server: &Server, statement: &'static str) {
    assert!(
        sqlx::query(statement)
            .execute(&server.app.pool)
            .await
            .unwrap()
            .rows_affected()
            > 0,
        "{statement}"
    );
}

#[tokio::test]
async fn a_dump_without_the_key_is_unreadable_and_cannot_be_forged() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (secret, ci) = made(&server, &admin, "ci").await;
    ci.get("/v1/sites").await.expect(200);
    let (stored, key) = row(&server, "ci").await;
    assert!(key.is_some());
    assert_ne!(
        stored,
        Digest::of(secret.as_bytes()).0,
        "it is no hash that anybody could make"
    );
    // A plain hash of the secret needs no key, and is no valid MAC under the name of any key.
    sqlx::query("UPDATE tokens SET token_hash = $1 WHERE name = 'ci'")
        .bind(Digest::of(secret.as_bytes()).0)
        .execute(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(ci.get("/v1/sites").await.status, 401);
    sqlx::query("UPDATE tokens SET token_hash = $1 WHERE name = 'ci'")
        .bind(stored)
        .execute(&server.app.pool)
        .await
        .unwrap();
    ci.get("/v1/sites").await.expect(200);
    run(
        &server,
        "UPDATE tokens SET key_id = 'of-somebody-else' WHERE name = 'ci'",
    )
    .await;
    assert_eq!(
        ci.get("/v1/sites").await.status,
        401,
        "made by a key that is not there"
    );
}

#[tokio::test]
async fn with_another_master_key_no_server_starts_and_no_token_is_compared() {
    let server = Server::start().await;
    let wrong = Keys::load(
        MasterKey::from_bytes(&[9; 32]),
        &server.app.pool,
        &Clock::System,
    )
    .await;
    assert!(
        wrong
            .err()
            .unwrap()
            .to_string()
            .contains("was sealed by key")
    );
}

#[tokio::test]
async fn a_token_of_before_goes_over_to_the_key_when_it_is_used() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (secret, ci) = made(&server, &admin, "ci").await;
    let (keyed, key) = row(&server, "ci").await;
    sqlx::query("UPDATE tokens SET token_hash = $1, key_id = NULL WHERE name = 'ci'")
        .bind(Digest::of(secret.as_bytes()).0)
        .execute(&server.app.pool)
        .await
        .unwrap();
    server.seal_rows().await;
    assert_eq!(
        server
            .with(Some(format!("{secret}0")))
            .get("/v1/sites")
            .await
            .status,
        401
    );
    assert_eq!(
        row(&server, "ci").await.1,
        None,
        "only its own token does that"
    );
    ci.get("/v1/sites").await.expect(200);
    assert_eq!(row(&server, "ci").await, (keyed, key));
    ci.get("/v1/sites").await.expect(200);
}

#[tokio::test]
async fn another_key_takes_over_while_servers_run_and_forgets_nobody_unasked() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (_, ci) = made(&server, &admin, "ci").await;
    let (_, idle) = made(&server, &admin, "idle").await;
    let first = row(&server, "ci").await;
    let now = START.parse().unwrap();
    let master = MasterKey::from_bytes(&[7; 32]);
    let rotate = async |forget| {
        let mut tx = server.app.pool.begin().await.unwrap();
        let rotated = keys::rotate(&master, &mut tx, forget, now).await;
        tx.commit().await.unwrap();
        rotated
    };
    assert_eq!(rotate(Forget::No).await.unwrap(), 0);
    // A server without news of the rotation keeps the former key, and reads the new key with the
    // first token under that key.
    ci.get("/v1/sites").await.expect(200);
    let second = Server::on(server.app.pool.clone(), server.app.clock.clone()).await;
    let there = second.with(ci.token.clone());
    there.get("/v1/sites").await.expect(200);
    assert_ne!(row(&server, "ci").await.1, first.1);
    ci.get("/v1/sites").await.expect(200);
    admin.get("/v1/sites").await.expect(200);

    // A second rotation would end tokens without a use since the first. The rotation is refused.
    let refused = rotate(Forget::No).await.unwrap_err().to_string();
    assert!(
        refused.contains("1 tokens were not used since the last rotation"),
        "{refused}"
    );
    assert_eq!(rotate(Forget::Yes).await.unwrap(), 1);
    let third = Server::on(server.app.pool.clone(), server.app.clock.clone()).await;
    assert_eq!(
        third.with(idle.token.clone()).get("/v1/sites").await.status,
        401
    );
    third
        .with(ci.token.clone())
        .get("/v1/sites")
        .await
        .expect(200);
}

#[tokio::test]
async fn a_person_who_is_kept_out_has_no_session_and_no_token_from_that_moment() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let hash =
        muster_server::auth::passwords::hash(muster_core::values::Secret::new("a long password"))
            .await
            .unwrap();
    let now = server.app.clock.now();
    let mut conn = server.app.pool.acquire().await.unwrap();
    for (name, role) in [("ada", "operator"), ("root", "admin")] {
        muster_server::db::users::insert(&mut conn, name, &hash, role, now)
            .await
            .unwrap();
    }
    server.seal_rows().await;
    let sign_in = async |name: &str| {
        let form = format!("name={name}&password=a+long+password").into_bytes();
        let nobody = server
            .nobody()
            .header("content-type", "application/x-www-form-urlencoded");
        let reply = nobody.send(reqwest::Method::POST, "/sign-in", form).await;
        reply
            .header("set-cookie")
            .split(';')
            .next()
            .unwrap()
            .to_owned()
    };
    let cookie = sign_in("ada").await;
    assert!(cookie.starts_with("muster_session="), "{cookie}");
    let ada = server.nobody().header("cookie", &cookie);
    ada.get("/v1/sites").await.expect(200);
    let (_, ci) = made(&server, &admin, "ci").await;
    sqlx::query("UPDATE tokens SET person = 'user:ada' WHERE name = 'ci'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    server.seal_rows().await;
    ci.get("/v1/sites").await.expect(200);
    let listed = admin
        .get("/v1/users?filter=name%3Dada")
        .await
        .expect(200)
        .body["items"][0]
        .clone();
    assert!(
        listed["last_seen"].is_string() && listed["disabled_at"].is_null(),
        "{listed}"
    );

    let kept_out = admin
        .post("/v1/users/ada/actions/disable", &json!({}))
        .await
        .expect(200)
        .body;
    assert!(
        kept_out["disabled_at"].is_string() && kept_out["disabled_by"].is_string(),
        "{kept_out}"
    );
    assert_eq!(
        (
            ada.get("/v1/sites").await.status,
            ci.get("/v1/sites").await.status
        ),
        (401, 403)
    );
    assert!(!sign_in("ada").await.starts_with("muster_session="));
    admin
        .post("/v1/users/ada/actions/enable", &json!({}))
        .await
        .expect(200);
    assert_eq!(
        (
            ada.get("/v1/sites").await.status,
            ci.get("/v1/sites").await.status
        ),
        (401, 200),
        "the session is over"
    );
    assert!(sign_in("ada").await.starts_with("muster_session="));

    let root = server.nobody().header("cookie", &sign_in("root").await);
    let oneself = root
        .post("/v1/users/root/actions/disable", &json!({}))
        .await;
    assert_eq!(oneself.problem().1, "oneself", "{}", oneself.text);
}

#[tokio::test]
async fn the_page_of_people_keeps_one_out_once_their_name_was_typed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut conn = server.app.pool.acquire().await.unwrap();
    let now = server.app.clock.now();
    for name in ["ada", "<b>bob</b>"] {
        muster_server::db::users::insert(&mut conn, name, "-", "operator", now)
            .await
            .unwrap();
    }
    let page = async || admin.get("/users").await.expect(200).text;
    let shown = page().await;
    assert!(
        shown.contains("&#60;b&#62;bob") && !shown.contains("<b>bob"),
        "{shown}"
    );
    assert!(
        admin
            .get("/agents")
            .await
            .expect(200)
            .text
            .contains("href=\"/users\"")
    );
    let id = admin.get("/v1/users?filter=name%3Dada").await.body["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        shown.contains(&format!("action=\"/ui/users/{id}/disable\"")),
        "{shown}"
    );

    let form = admin.header("content-type", "application/x-www-form-urlencoded");
    let post = async |word: &str, body: &str| {
        form.send(
            reqwest::Method::POST,
            &format!("/ui/users/{id}/{word}"),
            body.into(),
        )
        .await
    };
    assert!(
        post("disable", "")
            .await
            .expect(200)
            .text
            .contains("Type <code>ada</code> to confirm")
    );
    assert!(
        post("disable", "typed=adam")
            .await
            .expect(422)
            .text
            .contains("Type ada to confirm.")
    );
    assert!(!page().await.contains("/enable"), "nothing was done yet");
    post("disable", "typed=ada").await.expect(303);
    let shown = page().await;
    assert!(
        shown.contains(&format!("/ui/users/{id}/enable")) && shown.contains("by token:admin-"),
        "{shown}"
    );
    let user = admin.get("/v1/users?filter=name%3Dada").await.body["items"][0].clone();
    assert!(user["disabled_at"].is_string(), "{user}");
    post("enable", "typed=ada").await.expect(303);
    assert!(page().await.contains(&format!("/ui/users/{id}/disable")));
    post("forget", "typed=ada").await.expect(404);

    let operator = server.caller(Role::Operator).await;
    operator.get("/users").await.expect(403);
    assert!(
        !operator
            .get("/agents")
            .await
            .expect(200)
            .text
            .contains("/users")
    );
    let form = operator.header("content-type", "application/x-www-form-urlencoded");
    let refused = form
        .send(
            reqwest::Method::POST,
            &format!("/ui/users/{id}/disable"),
            "typed=ada".into(),
        )
        .await;
    assert_eq!(refused.status, 403);
}

/// Makes a token by `maker`. Returns the caller with the secret, and the id.
async fn made_by(
    server: &Server,
    maker: &Caller,
    name: &str,
    expires_in_s: u32,
) -> (Caller, String) {
    let body = json!({ "name": name, "role": "operator", "expires_in_s": expires_in_s });
    let made = maker.post("/v1/tokens", &body).await.expect(201).body;
    let id = made["token"]["id"].as_str().unwrap().to_owned();
    (server.with(made["secret"].as_str().map(str::to_owned)), id)
}

#[tokio::test]
async fn what_a_token_made_ends_with_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (a, a_id) = made_by(&server, &admin, "a", 3600).await;
    server
        .app
        .clock
        .advance(jiff::SignedDuration::from_mins(10));
    // A token ends at the latest with its maker.
    let longer = json!({ "name": "b", "role": "operator", "expires_in_s": 3001 });
    let refused = a.post("/v1/tokens", &longer).await.expect(422);
    assert_eq!(
        refused.body["errors"][0]["code"], "outlives_maker",
        "{}",
        refused.text
    );
    assert!(refused.text.contains("3000 s left"), "{}", refused.text);
    let (b, b_id) = made_by(&server, &a, "b", 3000).await;
    let (c, c_id) = made_by(&server, &b, "c", 600).await;
    let (beside, _) = made_by(&server, &admin, "beside", 3000).await;
    let listed = admin
        .get("/v1/tokens?filter=name%3Dc&fields=made_by")
        .await
        .expect(200)
        .body;
    assert_eq!(listed["items"][0]["made_by"], b_id.as_str(), "{listed}");

    admin
        .expecting(1)
        .delete(&format!("/v1/tokens/{a_id}"))
        .await
        .expect(204);
    for (caller, status) in [(&a, 401), (&b, 401), (&c, 401), (&beside, 200)] {
        assert_eq!(caller.get("/v1/sites").await.status, status);
    }
    // One event for each act, with the author.
    let events = admin.get("/v1/events?limit=1000").await.expect(200).body;
    let ended: Vec<&str> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| {
            event["kind"] == "token.revoked"
                && event["actor"].as_str().unwrap().starts_with("token:admin")
        })
        .map(|event| event["detail"]["token"].as_str().unwrap())
        .collect();
    assert_eq!(
        ended.iter().collect::<std::collections::BTreeSet<_>>(),
        [&*a_id, &b_id, &c_id].iter().collect()
    );
    assert_eq!(ended.len(), 3, "once each");
    assert!(
        events
            .to_string()
            .contains("token c revoked together with token a")
    );
    admin
        .expecting(1)
        .delete(&format!("/v1/tokens/{a_id}"))
        .await
        .expect(204);
    let again = admin.get("/v1/events?limit=1000").await.expect(200).text;
    assert_eq!(
        again.matches("\"token.revoked\"").count(),
        3,
        "it was ended before"
    );
}

#[tokio::test]
async fn what_is_being_made_with_a_token_ends_with_it_too() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (_, maker) = made_by(&server, &admin, "maker", 3600).await;
    let (child, id) = made_by(&server, &admin, "child", 3600).await;
    // A creation has found a valid maker, and is not yet committed.
    let mut making = server.app.pool.begin().await.unwrap();
    let now = server.app.clock.now();
    let parsed = maker.parse().unwrap();
    assert!(
        muster_server::db::tokens::hold(&mut making, parsed, now)
            .await
            .unwrap()
            .is_some()
    );
    sqlx::query("UPDATE tokens SET made_by = $1::uuid WHERE id = $2::uuid")
        .bind(&maker)
        .bind(&id)
        .execute(&mut *making)
        .await
        .unwrap();
    let path = format!("/v1/tokens/{maker}");
    let revoking = tokio::spawn(async move { admin.expecting(1).delete(&path).await.status });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while sqlx::query_scalar::<_, i64>(waiting)
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
        == 0
    {
        assert!(
            std::time::Instant::now() < deadline,
            "the revocation does not wait for the creation"
        );
    }
    making.commit().await.unwrap();
    assert_eq!(revoking.await.unwrap(), 204);
    assert_eq!(child.get("/v1/sites").await.status, 401);
    let mut conn = server.app.pool.acquire().await.unwrap();
    let stored = muster_server::db::tokens::find(&mut conn, id.parse().unwrap());
    assert!(stored.await.unwrap().unwrap().revoked_at.is_some());
    assert_eq!(
        muster_server::db::tokens::hold(&mut conn, parsed, now)
            .await
            .unwrap(),
        None,
        "it makes none any more"
    );
}

#[tokio::test]
async fn one_token_is_shown_to_its_own_and_to_who_may_see_all() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (a, id) = made_by(&server, &admin, "a", 3600).await;
    let (b, b_id) = made_by(&server, &a, "b", 60).await;
    let path = format!("/v1/tokens/{b_id}");
    for (caller, key) in [
        (&admin, &b_id),
        (&admin, &"b".to_owned()),
        (&a, &b_id),
        (&b, &b_id),
        (&b, &id),
    ] {
        let shown = caller.get(&format!("/v1/tokens/{key}")).await.expect(200);
        assert_eq!(shown.header("etag"), "\"1\"");
        assert!(
            !shown.text.contains("mst_") && shown.body.get("secret").is_none(),
            "{}",
            shown.text
        );
    }
    let shown = a.get(&path).await.expect(200).body;
    assert_eq!(
        (shown["name"].as_str(), shown["made_by"].as_str()),
        (Some("b"), Some(&*id)),
        "{shown}"
    );
    // A caller without a view of the token gets the answer for a missing one.
    let stranger = server.caller(Role::Operator).await;
    let (theirs, none) = (
        stranger.get("/v1/tokens/b").await.expect(404),
        stranger.get("/v1/tokens/c").await,
    );
    assert_eq!(
        theirs.body["detail"]
            .as_str()
            .unwrap()
            .replace("\"b\"", "\"c\""),
        none.expect(404).body["detail"]
    );
    assert_eq!(
        server.caller(Role::Viewer).await.get(&path).await.status,
        403
    );
    admin.expecting(1).delete("/v1/tokens/b").await.expect(204);
    assert!(a.get(&path).await.expect(200).body["revoked_at"].is_string());
}

#[tokio::test]
async fn one_person_is_shown_by_name_and_by_id() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let mut conn = server.app.pool.acquire().await.unwrap();
    let now = server.app.clock.now();
    muster_server::db::users::insert(&mut conn, "ada", "-", "operator", now)
        .await
        .unwrap();
    let shown = admin.get("/v1/users/ada").await.expect(200).body;
    assert_eq!(
        (shown["name"].as_str(), shown["role"].as_str()),
        (Some("ada"), Some("operator")),
        "{shown}"
    );
    assert_eq!(
        admin
            .get(shown["self"].as_str().unwrap())
            .await
            .expect(200)
            .body,
        shown
    );
    assert_eq!(admin.get("/v1/users/eve").await.status, 404);
    assert_eq!(
        server
            .caller(Role::Operator)
            .await
            .get("/v1/users/ada")
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn a_token_grants_no_role_and_no_limit_of_releases_beyond_its_own() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let wanted = |name: &str, role: &str, releases: u32| json!({ "name": name, "role": role, "expires_in_s": 3600, "releases_per_hour": releases });
    let path = "/v1/tokens";
    let made = admin.post(path, &wanted("ops", "operator", 5)).await;
    let made = made.expect(201).body["secret"].as_str().map(str::to_owned);
    let ops = server.with(made);
    for granted in [wanted("same", "operator", 5), wanted("less", "viewer", 0)] {
        ops.post(path, &granted).await.expect(201);
    }
    for (refused, told) in [
        (wanted("more", "operator", 6), "cannot grant a higher limit"),
        (wanted("root", "admin", 5), "the role admin"),
        (
            wanted("owner", "release_owner", 5),
            "the role release_owner",
        ),
    ] {
        let refused = ops.post(path, &refused).await.expect(403);
        assert!(refused.text.contains(told), "{}", refused.text);
    }
}
