//! Sweeps of nodes in service. A gate with load runs only while the scheduler holds jobs back from
//! the node. The hold ends however the sweep ends.

use muster_core::gates::Verdict;
use muster_core::wire::job::{Job, JobSpec};
use serde_json::json;

use crate::simulated::World;

/// Nodes in service, in a pool with a sweep. The sweep has a gate that loads the processor.
async fn serving(nodes: u8) -> World {
    World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = json!({ "sweep": "smoke" });
            // The default: 1 of 10 nodes.
            body["spec"].as_object_mut().unwrap().remove("max_unavailable");
        }
        if path == "/v1/suites/smoke" {
            let gate = json!({
                "id": "host.cpu", "title": "It computes", "stage": "node", "timeout_s": 30, "parser": "stressapptest", "argv": ["stressapptest"],
                "needs": ["drained"], "effects": ["memory_load"], "finding": "It does not.",
                "criteria": [{ "metric": "memory.incidents", "op": "==", "limit": 0, "unit": "incidents" }],
            });
            body["spec"]["gates"].as_array_mut().unwrap().push(gate);
        }
        body
    })
    .await
}

/// Returns true if the sweep's order allows jobs on the node.
fn in_use(job: &Job) -> bool {
    let JobSpec::Gates { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec.kind())
    };
    plan.in_use
}

/// The ended steps since the node's last request for a sweep, in order.
async fn steps(world: &World, name: &str) -> Vec<String> {
    let all = world.history(name).await;
    let from = all
        .iter()
        .rposition(|line| line == "node.action_requested sweep")
        .expect("it was asked");
    let ended =
        |line: &&String| line.starts_with("step.succeeded ") || line.starts_with("step.failed ");
    all[from..]
        .iter()
        .filter(ended)
        .map(|line| line.trim_start_matches("step.").to_owned())
        .collect()
}

async fn held_back(world: &World, name: &str) -> bool {
    let query = sqlx::query_scalar("SELECT held_back FROM nodes WHERE name = $1").bind(name);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

#[tokio::test]
async fn an_idle_node_is_held_back_for_the_gates_that_load_it_and_given_back() {
    let mut world = serving(1).await;
    let asked = world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert!(!in_use(&job) && held_back(&world, "n1").await);
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(
        steps(&world, "n1").await,
        ["succeeded hold", "succeeded sweep", "succeeded admit"]
    );
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("in_service", "succeeded")
    );
    assert!(!held_back(&world, "n1").await);
    assert!(!world.states("n1").await.contains(&"draining".to_owned()));

    // A node that fails the sweep leaves service directly. No job starts on the node in between.
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert!(
        !steps(&world, "n1")
            .await
            .contains(&"succeeded admit".to_owned())
            && !held_back(&world, "n1").await
    );
    world.check().await;
}

#[tokio::test]
async fn a_node_with_jobs_or_of_which_nobody_knows_is_swept_beside_them() {
    let mut world = serving(1).await;
    // The scheduler still sees a job at the end of the time for the hold.
    world.fail("n1", "drain", true, 1);
    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert!(in_use(&job), "jobs may run there");
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(
        steps(&world, "n1").await,
        ["failed hold", "succeeded admit", "succeeded sweep"],
        "given back before"
    );
    assert!(!held_back(&world, "n1").await);

    // Another person drains the node in the scheduler. The drain stays.
    let out = "INSERT INTO scheduler_outs (node_id, state, reason, since, seen_at) SELECT id, 'drained', 'fans', now(), now() FROM nodes";
    sqlx::query(out)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    world.ask("n1", "sweep").await.expect(202);
    assert!(in_use(&world.until_leased("n1", "gates").await));
    assert_eq!(steps(&world, "n1").await, [] as [&str; 0]);
}

/// Returns whether the order bars gates for drained nodes, and gates that write.
fn guarded(job: &Job) -> (bool, bool) {
    let JobSpec::Gates { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec.kind())
    };
    (plan.in_use, plan.protected)
}

/// A protected node in service is never measured by a gate with effects: neither where the sweep is asked after
/// the protection, nor where the node was held before.
#[tokio::test]
async fn a_protected_node_is_swept_without_its_loads() {
    let mut world = serving(1).await;
    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(
        guarded(&job),
        (false, false),
        "an unprotected node has loads"
    );
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;

    world.ask("n1", "sweep").await.expect(202);
    let hold = world.until_leased("n1", "drain").await;
    world.protect("n1", true).await;
    drop(world.agent.work(&hold).await.unwrap());
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(guarded(&job), (true, true));
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert!(!held_back(&world, "n1").await);

    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(guarded(&job), (true, true));
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

/// Without the loads, a protected node would never pass the suite, and never serve again.
#[tokio::test]
async fn a_protected_node_is_admitted_by_its_whole_suite() {
    let mut world = serving(1).await;
    world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "maintenance");
    world.protect("n1", true).await;
    world.ask("n1", "resume").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(guarded(&job), (false, false));
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn a_sweep_that_is_stopped_gives_its_node_back() {
    let mut world = serving(1).await;
    let asked = world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    world.cancel(&asked).await.expect(202);
    world.engine().await;
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert!(
        steps(&world, "n1")
            .await
            .ends_with(&["succeeded admit".to_owned()]),
        "{:?}",
        steps(&world, "n1").await
    );
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            held_back(&world, "n1").await
        ),
        ("in_service", false)
    );
    assert_eq!(world.operation(&asked).await, "cancelled");
    world.check().await;
}

/// The server refuses another look during a sweep: the finding is kept, and no job starts beside
/// the load. A drain of the node is still allowed.
#[tokio::test]
async fn a_sweep_is_overtaken_by_no_other_look() {
    let mut world = serving(1).await;
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    for look in ["inspect", "check-drift", "sweep", "rotate-bmc"] {
        assert_eq!(
            world.ask("n1", look).await.problem(),
            (409, "busy", ""),
            "{look}"
        );
    }
    assert!(held_back(&world, "n1").await);
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "quarantined",
        "its verdict was decided on"
    );
    world.ask("n1", "recover").await.expect(202);
    world.settle().await;

    world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    world.ask("n1", "drain").await.expect(202);
    world.engine().await;
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            held_back(&world, "n1").await
        ),
        ("maintenance", false)
    );
    world.check().await;
}

/// The node is the pool's only node out, still held for an earlier sweep that is gone. The new
/// sweep takes over the hold.
#[tokio::test]
async fn a_node_that_is_held_already_is_not_in_its_own_way() {
    let mut world = serving(1).await;
    sqlx::query("UPDATE nodes SET held_back = true")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    let asked = world.ask("n1", "sweep").await.expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert!(!in_use(&job), "it is held for this sweep now");
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("in_service", "succeeded")
    );
    assert!(!held_back(&world, "n1").await);
    world.check().await;
}

#[tokio::test]
async fn a_pool_spares_one_node_in_ten_and_none_while_others_are_out() {
    let mut world = serving(3).await;
    world.ask("n1", "sweep").await.expect(202);
    // Of two nodes due at the same time either may be first.
    world.engine().await;
    world.ask("n2", "sweep").await.expect(202);
    let first = world.until_leased("n1", "gates").await;
    assert!(!in_use(&first));
    let held = [held_back(&world, "n1").await, held_back(&world, "n2").await];
    assert_eq!(held, [true, false], "one after the other");
    let why = world.admin.get("/v1/nodes/n2/why").await.expect(200).text;
    assert!(why.contains("its turn to be swept"), "{why}");
    drop(world.agent.work(&first).await.unwrap());
    let second = world.until_leased("n2", "gates").await;
    assert!(!in_use(&second), "its turn came");
    drop(world.agent.work(&second).await.unwrap());
    world.settle().await;

    // `n3` is out for another reason, so a sweep holds back no further node.
    world.gates("n3", &[Verdict::Fail]);
    world.ask("n3", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n3").await, "quarantined");
    world.ask("n1", "sweep").await.expect(202);
    assert!(in_use(&world.until_leased("n1", "gates").await));
    assert!(!held_back(&world, "n1").await);
}
