//! Programs of gates: refused where the suite is written, and suites stored before the rule go on.

use muster_core::wire::job::JobSpec;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::server::Server;

const SUITE: &str = "/v1/suites/checks";
const MIGRATION: &str = include_str!("../../migrations/0067_former_suites.sql");

/// A suite with a gate of the program.
fn suite(argv: &Value) -> Value {
    json!({ "spec": { "name": "checks", "version": "1", "gates": [{
        "id": "site.disk", "title": "A disk", "stage": "inventory", "timeout_s": 30, "parser": "fio", "argv": argv,
        "criteria": [{ "metric": "fio.error", "op": "==", "limit": 0, "unit": "errno" }], "finding": "The disk is broken.",
        "needs": ["drained"], "effects": ["writes_disk"],
    }]}})
}

/// The statement of the migration that marks the stored suites.
fn marking() -> &'static str {
    let at = MIGRATION.find("INSERT INTO").unwrap();
    &MIGRATION[at..]
}

#[tokio::test]
async fn a_suite_starts_programs_of_its_parsers_alone() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let allowed = [
        json!(["fio", "--name=a", "--filename=${scratch}/a"]),
        json!(["/usr/libexec/muster/gates/site-disk", "--any"]),
    ];
    admin.put(SUITE, &suite(&allowed[0])).await.expect(201);
    admin.put(SUITE, &suite(&allowed[1])).await.expect(200);
    for argv in [
        json!(["sh", "-c", "id"]),
        json!(["/usr/bin/env", "sh"]),
        json!(["python3", "-c", "import os"]),
        json!(["busybox", "sh", "-c", "x"]),
        json!(["setsid", "sh", "-c", "blkdiscard -f /dev/nvme0n1"]),
        json!(["blkdiscard", "-f", "/dev/nvme0n1"]),
        json!(["dd", "if=/dev/zero", "of=/dev/sda"]),
        json!(["perl", "-e", "x"]),
        json!(["systemd-run", "--pipe", "sh", "-c", "x"]),
        json!(["cat", "/etc/shadow"]),
        json!(["fio", "--name=a", "--filename=/dev/nvme0n1"]),
        json!(["fio", "--name=a", "--exec_prerun=id"]),
        json!(["/usr/libexec/muster/gates/../../../bin/sh"]),
    ] {
        let refused = admin.put(SUITE, &suite(&argv)).await;
        assert_eq!(
            refused.problem(),
            (422, "unprocessable", "/spec/gates"),
            "{argv}"
        );
        let new = admin.put("/v1/suites/new", &suite(&argv)).await;
        assert_eq!(new.problem(), (422, "unprocessable", "/spec/gates"));
    }
    // A gate without the effect of its program would run beside jobs.
    let mut silent = suite(&allowed[0]);
    silent["spec"]["gates"][0]["effects"] = json!([]);
    let refused = admin.put(SUITE, &silent).await.expect(422);
    assert!(
        refused.text.contains("fio needs the effect writes_disk"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn a_suite_from_before_the_rule_stays_as_stored_and_becomes_no_worse() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let pool = &server.app.pool;
    let old = suite(&json!(["setsid", "fio"]));
    let sound = suite(&json!(["fio"]));
    admin.put(SUITE, &sound).await.expect(201);
    let store = "UPDATE objects SET spec = $1 WHERE kind = 'suite' AND name = 'checks'";
    sqlx::query(store)
        .bind(&old["spec"])
        .execute(pool)
        .await
        .unwrap();
    // The same document, and labels beside the same spec.
    admin.put(SUITE, &old).await.expect(200);
    let mut labelled = old.clone();
    labelled["labels"] = json!({ "team": "a" });
    admin.put(SUITE, &labelled).await.expect(200);
    for worse in [json!(["setsid", "fio", "--x"]), json!(["dd"])] {
        let refused = admin.put(SUITE, &suite(&worse)).await;
        assert_eq!(refused.problem(), (422, "unprocessable", "/spec/gates"));
    }
    // After a change that follows the rule, the former spec is refused.
    admin.put(SUITE, &sound).await.expect(200);
    let refused = admin.put(SUITE, &old).await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/spec/gates"));
}

/// Runs the sweep of a suite stored before the rule. Returns the gates that the order excepts from
/// the rule.
async fn excepted(world: &mut World) -> Vec<String> {
    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    let JobSpec::Gates { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec.kind())
    };
    let former = plan
        .variables
        .get("former_gates")
        .expect("a server with the rule");
    let former = former.split(',').filter(|id| !id.is_empty());
    let former: Vec<String> = former.map(str::to_owned).collect();
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    former
}

#[tokio::test]
async fn an_order_excepts_the_gates_stored_before_the_migration_and_no_others() {
    let mut world = World::serving(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = json!({ "sweep": "smoke" });
        }
        body
    })
    .await;
    assert_eq!(excepted(&mut world).await, [""; 0]);
    let pool = world.server.app.pool.clone();
    let mut gates = json!([
        suite(&json!(["setsid", "fio"]))["spec"]["gates"][0],
        suite(&json!(["fio"]))["spec"]["gates"][0],
    ]);
    gates[1]["id"] = json!("site.other");
    let store = "UPDATE objects SET spec = jsonb_set(spec, '{gates}', (spec -> 'gates') || $1) WHERE kind = 'suite' AND name = 'smoke'";
    sqlx::query(store)
        .bind(&gates)
        .execute(&pool)
        .await
        .unwrap();
    // As written by a replica of the version before, after the migration.
    assert_eq!(excepted(&mut world).await, [""; 0]);
    sqlx::query(marking()).execute(&pool).await.unwrap();
    assert_eq!(excepted(&mut world).await, ["site.disk"]);
    let change = "UPDATE objects SET spec = jsonb_set(spec, '{gates,1,argv}', '[\"setsid\", \"dd\"]') WHERE name = 'smoke'";
    sqlx::query(change).execute(&pool).await.unwrap();
    assert_eq!(excepted(&mut world).await, [""; 0], "another gate");
}
