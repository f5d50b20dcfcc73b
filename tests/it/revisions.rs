//! Revisions of a pool: a published change affects no node until a person assigns the revision.

use serde_json::{Value, json};

use muster_core::wire::job::{Job, JobSpec};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

/// Returns the stack of the simulated fleet in another version, with another setting.
fn stack(version: &str) -> Value {
    let mut stack = fleet::stack();
    stack["spec"]["version"] = json!(version);
    stack["spec"]["bundle"] = json!(fleet::digest("bundle"));
    stack["spec"]["kernel_args"] = json!(["nouveau.modeset=0"]);
    stack["spec"]["sysctl"] = json!({ "vm.swappiness": version });
    stack
}

/// Present and newest revision of the pool.
async fn numbers(admin: &Caller) -> (i64, i64) {
    let pool = admin.get("/v1/pools/gpu").await.expect(200).body;
    let number = |name: &str| pool["status"][name].as_i64().unwrap_or_default();
    (number("present_revision"), number("newest_revision"))
}

/// Assigned and running revision of a node's claim.
async fn revisions(world: &World, node: &str) -> (Option<i64>, Option<i64>) {
    let path = format!("/v1/claims/c-{node}");
    let claim = world.admin.get(&path).await.expect(200).body;
    let number = |name: &str| claim["status"][name].as_i64();
    (number("revision"), number("running_revision"))
}

async fn assign(world: &World, node: &str, revision: i64) -> crate::support::server::Reply {
    let path = format!("/v1/claims/c-{node}/actions/assign-revision");
    let body = json!({ "revision": revision, "reason": "a test" });
    world.admin.post(&path, &body).await
}

async fn promote(world: &World, revision: i64) -> crate::support::server::Reply {
    let path = "/v1/pools/gpu/actions/promote-revision";
    world
        .admin
        .post(path, &json!({ "revision": revision }))
        .await
}

/// Publishes another image, and the stack locked against it.
async fn publish_image(world: &World) {
    let mut image = fleet::image();
    image["spec"]["digest"] = json!(fleet::digest("image 2"));
    image["spec"]["raw_digest"] = json!(fleet::digest("raw 2"));
    let mut newer = stack("2");
    newer["spec"]["lock"]["image_digest"] = image["spec"]["digest"].clone();
    world
        .admin
        .put("/v1/images/debian-12", &image)
        .await
        .expect(200);
    world.admin.put("/v1/stacks/base", &newer).await.expect(200);
}

async fn events(world: &World, kind: &str) -> usize {
    let path = format!("/v1/events?limit=1000&topics={kind}");
    let page = world.admin.get(&path).await.expect(200).body;
    page["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_published_stack_changes_no_node_until_it_is_assigned() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    assert_eq!(
        revisions(&world, "n1").await,
        (Some(1), None),
        "unknown on its way"
    );
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(1), Some(1)));

    world
        .admin
        .put("/v1/stacks/base", &stack("2"))
        .await
        .expect(200);
    assert_eq!(numbers(&world.admin).await, (1, 2));
    assert_eq!(events(&world, "pool.revision_proposed").await, 1);
    // Until a person assigns or promotes the new revision, converges and new claims use revision 1.
    world.ask("n1", "converge").await.expect(202);
    world.claim("n2").await.expect(201);
    world.settle().await;
    for node in ["n1", "n2"] {
        assert_eq!(revisions(&world, node).await, (Some(1), Some(1)), "{node}");
    }
    let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200).body;
    assert_eq!(
        drift["current"], true,
        "the comparison is with the assigned stack"
    );

    let claim = assign(&world, "n1", 2).await.expect(200).body;
    assert_eq!(claim["status"]["revision"], 2);
    assert_eq!(revisions(&world, "n1").await, (Some(2), Some(1)));
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(2), Some(2)));
    // A rollback does not require a healthy present revision.
    assign(&world, "n1", 1).await.expect(200);
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(1), Some(1)));
    assert_eq!(events(&world, "claim.revision_assigned").await, 2);
    world.check().await;
}

#[tokio::test]
async fn new_claims_are_assigned_the_promoted_revision() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
        .admin
        .put("/v1/stacks/base", &stack("2"))
        .await
        .expect(200);
    assert_eq!(
        promote(&world, 3).await.problem(),
        (422, "unprocessable", "/revision")
    );
    assert_eq!(promote(&world, 2).await.expect(200).body["present"], true);
    promote(&world, 2).await.expect(200);
    assert_eq!(events(&world, "pool.revision_promoted").await, 1, "once");
    assert_eq!(numbers(&world.admin).await, (2, 2));
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(1), Some(1)));
    assert_eq!(revisions(&world, "n2").await, (Some(2), Some(2)));

    let list = world
        .admin
        .get("/v1/pools/gpu/revisions")
        .await
        .expect(200)
        .body;
    let told: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["number"].as_i64(),
                one["assigned"].as_i64(),
                one["running"].as_i64(),
                one["stack_version"].clone(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (Some(2), Some(1), Some(1), json!("2")),
            (Some(1), Some(1), Some(1), json!("1")),
        ]
    );
    let diff = world
        .admin
        .get("/v1/pools/gpu/revisions/2/diff?from=1")
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&diff["effect"], &diff["from"]),
        (&json!("in_place"), &json!(1))
    );
    assert!(
        diff["items"].to_string().contains("vm.swappiness"),
        "{diff}"
    );
    let effects: Vec<_> = diff["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["effect"].clone())
        .collect();
    assert_eq!(effects, [json!("in_place"), json!("none")]);
    world.check().await;
}

#[tokio::test]
async fn another_image_needs_a_reinstall_and_is_never_converged() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    publish_image(&world).await;
    assert_eq!(
        numbers(&world.admin).await,
        (1, 3),
        "each write is a revision"
    );
    let diff = world
        .admin
        .get("/v1/pools/gpu/revisions/3/diff")
        .await
        .expect(200)
        .body;
    assert_eq!(diff["nodes"][0]["effect"], "reinstall");

    assign(&world, "n1", 3).await.expect(200);
    let refused = world.ask("n1", "converge").await;
    assert_eq!(refused.problem().1, "incompatible");
    assert!(
        refused.text.contains("reinstall the node"),
        "{}",
        refused.text
    );
    // A comparison leaves the machine unchanged and still reports revision 1, because the image of
    // revision 3 is not installed.
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(3), Some(1)));
    world.ask("n1", "reinstall").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(3), Some(3)));
    world.check().await;
}

#[tokio::test]
async fn a_node_at_work_keeps_its_revision() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world
        .admin
        .put("/v1/stacks/base", &stack("2"))
        .await
        .expect(200);
    world.until("n1", "installing").await;
    assert_eq!(assign(&world, "n1", 2).await.problem().1, "busy");
    world.settle().await;
    assert_eq!(
        assign(&world, "n1", 7).await.problem(),
        (422, "unprocessable", "/revision")
    );
    world.ask("n1", "drain").await.expect(202);
    assert_eq!(
        assign(&world, "n1", 2).await.problem().1,
        "busy",
        "an action is pending"
    );
    world.settle().await;
    world.release("n1").await.expect(202);
    assert_eq!(assign(&world, "n1", 2).await.problem().1, "released");
}

#[tokio::test]
async fn only_a_changed_document_makes_a_revision() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    assert_eq!(numbers(&admin).await, (1, 1));
    let mut pool = fleet::pool();
    pool["spec"]["undo_window_s"] = json!(60);
    admin.put("/v1/pools/gpu", &pool).await.expect(200);
    let mut labelled = fleet::stack();
    labelled["labels"] = json!({ "team": "a" });
    admin.put("/v1/stacks/base", &labelled).await.expect(200);
    assert_eq!(numbers(&admin).await, (1, 1));
    admin.post("/v1/plan", &json!({ "objects": [{ "kind": "stack", "name": "base", "spec": stack("2")["spec"] }] })).await.expect(200);
    admin
        .put("/v1/stacks/base?dry_run=true", &stack("2"))
        .await
        .expect(200);
    assert_eq!(numbers(&admin).await, (1, 1), "a plan proposes nothing");
    pool["spec"]["network_profile"] = json!("bonded");
    admin.put("/v1/pools/gpu", &pool).await.expect(200);
    assert_eq!(
        numbers(&admin).await,
        (2, 2),
        "no claim depends on the first"
    );
    let of = admin
        .get("/v1/pools/gpu/revisions/2")
        .await
        .expect(200)
        .body;
    assert_eq!(
        of["documents"]["network_profile"]["vlans"]["storage"]["id"],
        120
    );
    assert_eq!(admin.get("/v1/pools/gpu/revisions/9").await.status, 404);

    let changed = sqlx::query("UPDATE pool_revisions SET stack_name = 'other'")
        .execute(&server.app.pool)
        .await;
    assert!(changed.unwrap_err().to_string().contains("never changes"));
}

#[tokio::test]
async fn changes_at_once_number_revisions_without_gaps() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let mut other = fleet::pool();
    other["spec"]["network_profile"] = json!("bonded");
    admin.put("/v1/pools/other", &other).await.expect(201);
    let mut writers = tokio::task::JoinSet::new();
    for round in 0..6 {
        let (stacks, pools, profiles) = (admin.clone(), admin.clone(), admin.clone());
        // Stack and profile of the other pool share no row: only the lock on revisions keeps their
        // writers apart.
        writers.spawn(async move {
            let mut profile = fleet::network_profile();
            profile["spec"]["vlans"]["storage"]["id"] = json!(200 + round);
            profiles
                .put("/v1/network_profiles/bonded", &profile)
                .await
                .status
        });
        writers.spawn(async move {
            stacks
                .put("/v1/stacks/base", &stack(&format!("2.{round}")))
                .await
                .status
        });
        writers.spawn(async move {
            let mut pool = fleet::pool();
            pool["spec"]["network_profile"] = if round % 2 == 0 {
                json!("bonded")
            } else {
                Value::Null
            };
            pools.put("/v1/pools/gpu", &pool).await.status
        });
    }
    let statuses = writers.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    for pool in ["gpu", "other"] {
        let path = format!("/v1/pools/{pool}/revisions");
        let list = admin.get(&path).await.expect(200).body;
        let found: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["number"].as_i64().unwrap())
            .collect();
        let newest = found[0];
        assert_eq!(found, (1..=newest).rev().collect::<Vec<_>>(), "{pool}");
        // The newest revision equals the present declaration.
        let now = admin.get("/v1/stacks/base").await.expect(200).body["spec"]["version"].clone();
        assert_eq!(list["items"][0]["stack_version"], now, "{pool}");
    }
}

#[tokio::test]
async fn a_replaced_node_brings_its_revision() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
        .admin
        .put("/v1/stacks/base", &stack("2"))
        .await
        .expect(200);
    let body = json!({ "revision": 2 });
    world
        .admin
        .post("/v1/pools/gpu/actions/promote-revision", &body)
        .await
        .expect(200);
    world.replace("n1").await.expect(202);
    world.settle().await;
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert_eq!(claim["status"]["node"], "n2");
    assert_eq!(revisions(&world, "n1").await, (Some(2), Some(2)));
    world.check().await;
}

/// The version before writes claims and changes stacks without revisions.
#[tokio::test]
async fn rows_of_the_version_before_are_read_and_caught_up() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let pool = &world.server.app.pool;
    for statement in [
        "UPDATE claims SET assigned_id = NULL",
        "UPDATE objects SET spec = jsonb_set(spec, '{version}', '\"0.9\"') WHERE kind = 'stack'",
    ] {
        sqlx::query(statement).execute(pool).await.unwrap();
    }
    muster_server::intents::revisions::catch_up(&world.server.app)
        .await
        .unwrap();
    muster_server::intents::revisions::catch_up(&world.server.app)
        .await
        .unwrap();
    assert_eq!(numbers(&world.admin).await, (1, 2));
    assert_eq!(revisions(&world, "n1").await, (Some(1), None));
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(1), Some(1)));
    // A later promotion affects only later claims, also for a claim row without an assigned
    // revision.
    sqlx::query("UPDATE claims SET assigned_id = NULL")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    promote(&world, 2).await.expect(200);
    assert_eq!(revisions(&world, "n1").await, (Some(1), Some(1)));
    world.check().await;
}

/// The running revision of an older claim is unknown until the first comparison of the node.
#[tokio::test]
async fn the_migration_gives_each_pool_a_first_revision() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let before = "DROP TABLE due_rollouts; DROP TABLE rollout_comparisons; DROP TABLE rollout_nodes; DROP TABLE rollouts;
                  ALTER TABLE claims DROP COLUMN assigned_id, DROP COLUMN imaged_id, DROP COLUMN running_id;
                  DROP TABLE present_revisions; DROP TABLE pool_revisions; DROP FUNCTION refuse_change_of_revision";
    let upgrade = include_str!("../../migrations/0046_revisions.sql");
    let later = include_str!("../../migrations/0048_rollouts.sql");
    let due = include_str!("../../migrations/0057_due_rollouts.sql");
    let comparisons = include_str!("../../migrations/0060_rollout_comparisons.sql");
    let units = include_str!("../../migrations/0061_units_of_rollouts.sql");
    for statements in [before, upgrade, later, due, comparisons, units] {
        sqlx::raw_sql(statements)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
    world.restart_server().await;
    assert_eq!(numbers(&world.admin).await, (1, 1));
    assert_eq!(revisions(&world, "n1").await, (Some(1), None));
    // The first comparison makes the running revision known. The server can then refuse a converge
    // to another image.
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(page.contains("unknown until a comparison"), "{page}");
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(1), Some(1)));
    publish_image(&world).await;
    assign(&world, "n1", 3).await.expect(200);
    assert_eq!(
        world.ask("n1", "converge").await.problem().1,
        "incompatible"
    );
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(3), Some(1)));
}

/// Gates of a node in service measure the installed revision, even if another revision is assigned.
#[tokio::test]
async fn an_assignment_fails_no_sweep() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = json!({ "sweep": "smoke" });
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let mut newer = stack("2");
    newer["spec"]["lock"]["packages"] = json!([{
        "name": "chrony", "version": "4.3-2", "arch": "amd64", "size": 1, "sha256": fleet::digest("x"), "filename": "chrony.deb",
    }]);
    world.admin.put("/v1/stacks/base", &newer).await.expect(200);
    assign(&world, "n1", 2).await.expect(200);
    let packages = |job: &Job| {
        let JobSpec::Gates { plan, .. } = &job.spec else {
            panic!("{:?}", job.spec.kind())
        };
        plan.stack.as_ref().unwrap().packages.len()
    };
    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(packages(&job), 0, "the running revision");
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    world.ask("n1", "converge").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(packages(&job), 1, "after the converge");
}

/// A stored copy may be unreadable for a later version. The server then refuses the orders that
/// need the copy, and no other order.
#[tokio::test]
async fn a_node_leaves_a_revision_that_cannot_be_read() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    for statement in [
        "ALTER TABLE pool_revisions DISABLE TRIGGER pool_revisions_immutable",
        "UPDATE pool_revisions SET stack = stack || '{\"from\": \"another version\"}'",
    ] {
        sqlx::query(statement)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
    world
        .admin
        .put("/v1/stacks/base", &stack("2"))
        .await
        .expect(200);
    world.ask("n1", "converge").await;
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(reason.contains("revision 1 cannot be read"), "{reason}");
    assign(&world, "n1", 2).await.expect(200);
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(revisions(&world, "n1").await, (Some(2), Some(2)));
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
}

/// A rollback needs the credentials named by the earlier revision.
#[tokio::test]
async fn a_credential_named_by_an_assigned_revision_stays() {
    let mut world = World::start(1).await;
    let secret = json!({ "spec": { "purpose": "stack", "secret": "nccl" } });
    world
        .admin
        .put("/v1/credentials/nccl", &secret)
        .await
        .expect(201);
    let mut with = stack("2");
    with["spec"]["files"] =
        json!([{ "path": "/etc/a", "mode": "0600", "content": [{ "secret": "nccl" }] }]);
    world.admin.put("/v1/stacks/base", &with).await.expect(200);
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
        .admin
        .put("/v1/stacks/base", &stack("3"))
        .await
        .expect(200);
    let kept = world
        .admin
        .header("if-match", "*")
        .delete("/v1/credentials/nccl")
        .await;
    assert!(
        kept.text.contains("revision 2 of pool gpu"),
        "{}",
        kept.text
    );
    promote(&world, 3).await.expect(200);
    assign(&world, "n1", 3).await.expect(200);
    world
        .admin
        .header("if-match", "*")
        .delete("/v1/credentials/nccl")
        .await
        .expect(204);
}
