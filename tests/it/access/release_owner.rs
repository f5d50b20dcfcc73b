//! The rights equal to root on nodes: held by release owners, and kept for one version by stored
//! roles.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_server::db::kept;
use serde_json::{Value, json};

use super::two_sites;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

const MIGRATION: &str = include_str!("../../../migrations/0065_release_owner.sql");

/// Marks stored roles, by the statements of the migration.
async fn mark_stored_roles(server: &Server) {
    let statements = MIGRATION.split(';').map(str::trim);
    let updates: Vec<_> = statements
        .filter(|statement| statement.starts_with("UPDATE"))
        .collect();
    assert_eq!(updates.len(), 3, "{MIGRATION}");
    for update in updates {
        sqlx::query(update).execute(&server.app.pool).await.unwrap();
    }
    server.seal_rows().await;
}

/// Documents of the kinds equal to root on nodes, with a new label.
fn releases(label: &str) -> Vec<(&'static str, Value)> {
    let documents = [
        ("/v1/suites/smoke", fleet::suite()),
        ("/v1/stacks/base", fleet::stack()),
        ("/v1/images/debian-12", fleet::image()),
        ("/v1/hardware_profiles/virtual", fleet::profile()),
    ];
    let with_label = |(path, mut document): (&'static str, Value)| {
        document["labels"] = json!({ "written": label });
        (path, document)
    };
    documents.into_iter().map(with_label).collect()
}

/// Changes of a pool's software, gates and recovery.
fn references() -> [Value; 6] {
    [
        json!({ "image": "other", "stack": "other" }),
        json!({ "stack": "next" }),
        json!({ "suite": "other" }),
        json!({ "profile": "virtual" }),
        json!({ "health": { "sweep": "other" } }),
        json!({ "health": { "recovery": { "rungs": ["reboot"] } } }),
    ]
}

async fn declare_others(admin: &Caller) {
    let mut image = fleet::image();
    image["spec"]["name"] = json!("other");
    let mut stack = fleet::stack();
    stack["spec"]["image"] = json!("other");
    let mut suite = fleet::suite();
    suite["spec"]["name"] = json!("other");
    for (path, document) in [
        ("/v1/images/other", image),
        ("/v1/stacks/other", stack),
        ("/v1/stacks/next", fleet::stack()),
        ("/v1/suites/other", suite),
    ] {
        admin.put(path, &document).await.expect(201);
    }
}

#[tokio::test]
async fn release_owners_alone_decide_what_runs_on_nodes() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    declare_others(&admin).await;
    let owner = server.caller(Role::ReleaseOwner).await;
    for (path, document) in releases("owner") {
        owner.put(path, &document).await.expect(200);
    }
    owner.put("/v1/pools/new", &fleet::pool()).await.expect(201);
    let secret = json!({ "spec": { "purpose": "stack", "secret": "nccl" } });
    admin.put("/v1/credentials/nccl", &secret).await.expect(201);
    let mut stack = fleet::stack();
    stack["spec"]["files"] =
        json!([{ "path": "/etc/a", "mode": "0600", "content": [{ "secret": "nccl" }] }]);
    owner.put("/v1/stacks/secret", &stack).await.expect(201);
    for change in references() {
        let change = json!({ "spec": change });
        let dry_run = "/v1/pools/gpu?dry_run=true";
        owner.patch(dry_run, &change).await.expect(200);
    }
    for role in [Role::Automation, Role::Operator] {
        let caller = server.caller(role).await;
        for (path, document) in releases(role.as_str()) {
            let refused = caller.put(path, &document).await.expect(403);
            assert!(refused.text.contains(".write"), "{}", refused.text);
        }
        for path in ["/v1/pools/new-too", "/v1/pools/gpu?dry_run=true"] {
            let mut pool = fleet::pool();
            pool["spec"]["suite"] = json!("other");
            let refused = caller.put(path, &pool).await.expect(403);
            assert!(
                refused.text.contains("pool.set-release"),
                "{}",
                refused.text
            );
        }
        for change in references() {
            let refused = caller
                .patch("/v1/pools/gpu", &json!({ "spec": change }))
                .await;
            assert_eq!(refused.status, 403, "{change}: {}", refused.text);
            assert!(
                refused.text.contains("pool.set-release"),
                "{}",
                refused.text
            );
        }
        // The other members of a pool are not a release.
        let window = json!({ "spec": { "undo_window_s": 86400 } });
        caller.patch("/v1/pools/gpu", &window).await.expect(200);
        // A plan is refused like the write.
        let mut suite = fleet::suite();
        suite["kind"] = json!("suite");
        suite["name"] = json!("smoke");
        suite["labels"] = json!({ "written": "plan" });
        let plan = json!({ "objects": [suite] });
        let planned = caller.post("/v1/plan", &plan).await;
        assert!(planned.text.contains("suite.write"), "{}", planned.text);
    }
    // A release owner changes no node and no claim.
    let path = "/v1/nodes/n1/actions/inspect";
    owner.post(path, &json!({})).await.expect(403);
    owner
        .expecting(1)
        .delete("/v1/claims/held")
        .await
        .expect(403);
}

#[tokio::test]
async fn stored_roles_keep_the_rights_with_one_warning_a_day() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let binding = |subject: &str| json!({ "spec": { "subject": subject, "role": "operator" } });
    let path = "/v1/role_bindings/infra";
    admin.put(path, &binding("group:infra")).await.expect(201);
    let now = server.app.clock.now();
    let mut conn = server.app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "ada", "no hash", "operator", now)
        .await
        .unwrap();
    let old = server.caller(Role::Automation).await;
    mark_stored_roles(&server).await;
    let new = server.caller(Role::Automation).await;

    let warnings = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'role.kept_verb_used'")
            .fetch_one(&server.app.pool)
            .await
            .unwrap()
    };
    for (path, document) in releases("old") {
        let dry_run = format!("{path}?dry_run=true");
        old.put(&dry_run, &document).await.expect(200);
        assert_eq!(warnings().await, 0, "a dry run uses nothing");
    }
    for (path, document) in releases("old") {
        old.put(path, &document).await.expect(200);
        new.put(path, &document).await.expect(403);
    }
    old.put("/v1/pools/new", &fleet::pool()).await.expect(201);
    assert_eq!(warnings().await, 1, "one a day");
    server.app.clock.advance(SignedDuration::from_hours(24));
    old.expecting(1).delete("/v1/pools/new").await.expect(204);
    assert_eq!(warnings().await, 1, "to delete a pool is no release");
    old.put("/v1/pools/new", &fleet::pool()).await.expect(201);
    assert_eq!(warnings().await, 2);
    // No other right comes with the mark.
    let site = json!({ "spec": {} });
    old.put("/v1/sites/other", &site).await.expect(403);

    let now = server.app.clock.now();
    let tokens = kept::list_tokens(&mut conn, now).await.unwrap();
    let people = kept::list_people(&mut conn).await.unwrap();
    let bindings = kept::list_bindings(&mut conn).await.unwrap();
    assert_eq!(
        (tokens.len(), tokens[0].role, people[0].name.as_str()),
        (1, Role::Automation, "ada")
    );
    assert!(tokens[0].lost_verbs_used_at.is_some());
    assert_eq!(bindings[0].subject, "group:infra");
    // A new spec of the binding ends the mark.
    admin.put(path, &binding("group:other")).await.expect(200);
    assert!(kept::list_bindings(&mut conn).await.unwrap().is_empty());
}

/// More written root disks need the right to reinstall, beside the right to write the pool.
#[tokio::test]
async fn a_ladder_that_erases_more_needs_the_right_to_reinstall() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let ladder = |rungs: &[&str], per_node: u32, within_h: u32| json!({ "spec": { "health": { "recovery": { "rungs": rungs, "per_node": per_node, "within_h": within_h } } } });
    let path = "/v1/pools/gpu";
    let both = ["reboot", "reimage"];
    let reboot = ["reboot"];
    let (owner, automation, operator) = (
        server.caller(Role::ReleaseOwner).await,
        server.caller(Role::Automation).await,
        server.caller(Role::Operator).await,
    );
    let refused = owner.patch(path, &ladder(&both, 2, 168)).await.expect(403);
    assert!(refused.text.contains("node.reinstall"), "{}", refused.text);
    let mut pool = fleet::pool();
    pool["spec"]["health"] = ladder(&both, 2, 168)["spec"]["health"].clone();
    let refused = owner.put("/v1/pools/new", &pool).await.expect(403);
    assert!(refused.text.contains("node.reinstall"), "{}", refused.text);
    admin.patch(path, &ladder(&both, 2, 168)).await.expect(200);
    admin.put("/v1/pools/new", &pool).await.expect(201);

    for (per_node, within_h) in [(3, 168), (2, 24)] {
        let more = ladder(&both, per_node, within_h);
        let refused = automation.patch(path, &more).await.expect(403);
        assert!(refused.text.contains("node.reinstall"), "{}", refused.text);
        operator.patch(path, &more).await.expect(200);
        operator
            .patch(path, &ladder(&both, 2, 168))
            .await
            .expect(200);
    }
    // Less is nobody's loss.
    for less in [ladder(&both, 1, 168), ladder(&reboot, 1, 168)] {
        automation.patch(path, &less).await.expect(200);
    }
}
