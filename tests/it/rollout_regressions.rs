//! Rollouts and regressions: a value of a gate that is worse on a changed node than before halts the
//! rollout, although the gate passes.

use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollout_promotion::plan_like;
use crate::rollouts::{
    marks, plan, policy, publish, settle, show, start, steer, taken, until_one_changes,
};
use crate::simulated::World;

/// A suite with a gate that measures a bandwidth of at least 100 and a latency of at most 8.
fn suite(version: &str) -> Value {
    json!({ "spec": { "name": "smoke", "version": version, "gates": [{
        "id": "host.memory", "title": "Memory is fast", "stage": "node", "timeout_s": 30, "parser": "stressapptest", "argv": ["stressapptest"],
        "needs": ["drained"], "effects": ["memory_load"],
        "finding": "It is slow.", "after_reboot": true,
        "criteria": [
            { "metric": "memory.bandwidth", "op": ">=", "limit": 100, "unit": "MB/s" },
            { "metric": "memory.incidents", "op": "==", "limit": 0, "unit": "incidents" },
        ],
    }] } })
}

/// Nodes in service with results of the gate, and a revision 2.
async fn serving(nodes: u8) -> World {
    let world = World::serving(nodes, |path, body| match path {
        "/v1/suites/smoke" => suite("1"),
        _ => body,
    })
    .await;
    publish(&world, "2").await;
    world
}

/// Publishes a new version of the suite, of which no node has a result.
async fn change_suite(world: &World) {
    let path = "/v1/suites/smoke";
    world.admin.put(path, &suite("2")).await.expect(200);
}

fn limited(nodes: u32) -> Value {
    let mut policy = policy();
    policy["halt_when"] = json!([{ "regression": {
        "gate": "host.memory", "metric": "memory.bandwidth", "percent": 5, "nodes": nodes,
    } }]);
    policy
}

fn set_speed(world: &World, nodes: u8, speed: f64) {
    for number in 1..=nodes {
        world.machine(&format!("n{number}"), |machine| machine.speed = speed);
    }
}

fn signal(rollout: &Value) -> (&str, &str) {
    let signal = &rollout["now"]["signals"][0];
    let text = |member: &str| signal[member].as_str().unwrap();
    (text("state"), text("sentence"))
}

/// The canary passes every gate, and is slower than before.
#[tokio::test]
async fn a_slower_canary_halts_the_rollout_with_both_values() {
    let mut world = serving(3).await;
    let name = start(&world, 2, &limited(1)).await;
    let planned = show(&world, &name).await;
    let sentence = "host.memory: no node has changed, so memory.bandwidth is not compared yet";
    assert_eq!(signal(&planned), ("quiet", sentence));
    set_speed(&world, 3, 0.9);
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    let sentence = "host.memory: memory.bandwidth is worse by more than 5 % on 1 of 1 compared nodes; the largest loss is 10 %";
    assert_eq!(
        (&halted["state"], &halted["halt"]["code"], signal(&halted)),
        (&json!("halted"), &json!("signal"), ("firing", sentence)),
        "{halted:#}"
    );
    let canary = taken(&world).await;
    assert_eq!(canary.len(), 1, "{halted:#}");
    let nodes = halted["nodes"].as_array().unwrap();
    let one = nodes
        .iter()
        .find(|node| node["node"] == *canary[0])
        .unwrap();
    assert_eq!(one["mark"], "done");
    assert_eq!(
        one["compared"],
        json!([{
            "gate": "host.memory", "metric": "memory.bandwidth", "before": 200.0, "after": 180.0, "unit": "MB/s", "loss_percent": 10.0, "is_worse": true,
            "sentence": "host.memory: memory.bandwidth was 200 and is 180 MB/s (10 % worse)",
        }])
    );
    let page = world.admin.get("/rollouts/gpu-1").await.expect(200).text;
    assert!(
        page.contains("was 200 and is 180 MB/s (10 % worse)"),
        "{page}"
    );
    // A standing loss halts again, until a person tolerates it.
    let reason = json!({ "reason": "the loss is known" });
    steer(&world, &name, "resume", reason.clone())
        .await
        .expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "halted");
    let mut tolerant = limited(1)["halt_when"].clone();
    tolerant[0]["regression"]["percent"] = json!(10);
    let body = json!({ "policy": { "halt_when": tolerant }, "reason": "the loss is known" });
    steer(&world, &name, "adjust", body).await.expect(200);
    steer(&world, &name, "resume", reason).await.expect(200);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["done"; 3])
    );
    world.check().await;
}

#[tokio::test]
async fn one_slow_node_of_two_permitted_ones_halts_nothing() {
    let mut world = serving(3).await;
    set_speed(&world, 1, 0.5);
    let name = start(&world, 2, &limited(2)).await;
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(done["state"], "done", "{done:#}");
    let slower = done["nodes"][0]["compared"][0]["loss_percent"].as_f64();
    assert_eq!(slower, Some(50.0), "{done:#}");
    // The way back compares with the slow value, so the node is not worse.
    let back = start(&world, 1, &limited(1)).await;
    settle(&mut world).await;
    assert_eq!(show(&world, &back).await["state"], "done");
}

/// The last node of the rollout is compared too, before the revision becomes the present one.
#[tokio::test]
async fn a_slower_last_node_halts_before_the_end() {
    let mut world = serving(1).await;
    let name = start(&world, 2, &limited(1)).await;
    set_speed(&world, 1, 0.9);
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(
        (&halted["state"], marks(&halted)),
        (&json!("halted"), vec!["done"])
    );
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body;
    assert_eq!(pool["status"]["present_revision"], 1);
}

/// Another suite version, other hardware and a void run are no values to compare with.
#[tokio::test]
async fn a_canary_without_an_earlier_value_holds_all_others() {
    let other_suite = "UPDATE gate_runs SET suite = 'smoke 0' WHERE node_id = NEW.node_id";
    let other_parts = "UPDATE gate_runs SET fingerprint = 'other' WHERE node_id = NEW.node_id";
    let void = "UPDATE gate_runs SET voided_at = now() WHERE node_id = NEW.node_id";
    let failed = "UPDATE gate_results SET verdict = 'fail' WHERE run_id IN (SELECT id FROM gate_runs WHERE node_id = NEW.node_id)";
    for statement in [other_suite, other_parts, void, failed] {
        let mut world = serving(3).await;
        let name = start(&world, 2, &limited(1)).await;
        crate::rollout_guards::at_first(&world, "changing", statement).await;
        settle(&mut world).await;
        let held = show(&world, &name).await;
        let sentence = "host.memory: memory.bandwidth cannot be compared on 1 of 1 changed nodes";
        assert_eq!(signal(&held), ("unknown", sentence), "{statement}");
        assert_eq!(
            (&held["state"], &held["now"]["binding"]["code"]),
            (&json!("running"), &json!("not_compared")),
            "{statement}: {held:#}"
        );
        assert_eq!(taken(&world).await.len(), 1, "{statement}");
        let compared = |node: &&Value| node["compared"].is_array();
        let node = held["nodes"].as_array().unwrap().iter().find(compared);
        assert_eq!(node.unwrap()["compared"][0]["problem"], "no_result_before");
        // A person goes on without the comparison.
        let body = json!({ "policy": { "halt_when": null }, "reason": "the gates are new" });
        steer(&world, &name, "adjust", body).await.expect(200);
        settle(&mut world).await;
        assert_eq!(show(&world, &name).await["state"], "done", "{statement}");
    }
}

/// A rollout that runs without a limit compares the changed nodes when it gets one.
#[tokio::test]
async fn nodes_changed_before_the_limit_are_compared_too() {
    let mut world = serving(3).await;
    let mut soaked = policy();
    soaked["canary"]["soak_s"] = json!(3600);
    let name = start(&world, 2, &soaked).await;
    set_speed(&world, 3, 0.9);
    settle(&mut world).await;
    assert_eq!(taken(&world).await.len(), 1);
    let body =
        json!({ "policy": { "halt_when": limited(1)["halt_when"] }, "reason": "speed matters" });
    let adjusted = steer(&world, &name, "adjust", body).await.expect(200).body;
    // Until the next tick, the changed node is unknown.
    assert_eq!(signal(&adjusted).0, "unknown", "{adjusted:#}");
    rollouts::round(&world.server.app).await.unwrap();
    let halted = show(&world, &name).await;
    assert_eq!(
        (&halted["state"], signal(&halted).0),
        (&json!("halted"), "firing")
    );
}

#[tokio::test]
async fn a_limit_that_cannot_be_measured_is_refused_with_its_place() {
    let world = serving(1).await;
    let refused = async |limit: Value| {
        let mut policy = policy();
        policy["halt_when"] = json!([{ "alert": "A" }, { "regression": limit }]);
        let refused = plan(&world, 2, &policy).await.expect(422);
        let first = &refused.body["errors"][0];
        let text = |member: &str| first[member].as_str().unwrap().to_owned();
        let pointer = text("pointer");
        let pointer = pointer
            .strip_prefix("/policy/halt_when/1/regression/")
            .unwrap()
            .to_owned();
        (pointer, text("code"), text("detail"))
    };
    let gate = "host.memory";
    let table = [
        (
            json!({ "gate": "none", "metric": "memory.bandwidth", "percent": 5 }),
            ("gate", "not_found", "The suite smoke has no gate \"none\"."),
        ),
        (
            json!({ "gate": gate, "metric": "memory.incidents", "percent": 5 }),
            (
                "metric",
                "not_found",
                "The gate host.memory has limits for: memory.bandwidth.",
            ),
        ),
        (
            json!({ "gate": gate, "metric": "memory.bandwidth", "percent": 0 }),
            ("percent", "out_of_range", "1 to 1000 percent."),
        ),
        (
            json!({ "gate": gate, "metric": "memory.bandwidth", "percent": 100 }),
            (
                "percent",
                "out_of_range",
                "A value with a limit >= can lose at most 100 percent: write less than 100.",
            ),
        ),
        (
            json!({ "gate": gate, "metric": "memory.bandwidth", "percent": 5, "nodes": 0 }),
            ("nodes", "out_of_range", "At least 1 node."),
        ),
        (
            json!({ "gate": "", "metric": "memory.bandwidth", "percent": 5 }),
            ("gate", "out_of_range", "1 to 200 characters."),
        ),
    ];
    for (limit, (pointer, code, detail)) in table {
        let found = refused(limit.clone()).await;
        assert_eq!(
            (&*found.0, &*found.1, &*found.2),
            (pointer, code, detail),
            "{limit}"
        );
    }
    // The suite has changed since the last gates.
    change_suite(&world).await;
    let limit = json!({ "gate": gate, "metric": "memory.bandwidth", "percent": 5 });
    let found = refused(limit).await;
    assert_eq!((&*found.0, &*found.1), ("gate", "no_result"));
    assert!(found.2.contains("with the suite smoke 2"), "{}", found.2);
}

/// The halted revision made the nodes slow. The next revision is compared with the value from before both.
#[tokio::test]
async fn the_next_revision_is_compared_with_the_value_before_the_halted_one() {
    let mut world = serving(2).await;
    let name = start(&world, 2, &limited(1)).await;
    set_speed(&world, 2, 0.9);
    until_one_changes(&mut world, &name).await;
    world.advance(60);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "halted");
    // A person tries again, in vain.
    let canary = taken(&world).await[0].clone();
    world.ask(&canary, "converge").await.expect(202);
    settle(&mut world).await;
    publish(&world, "3").await;
    let planned = plan(&world, 3, &limited(1)).await.expect(201).body;
    let body = json!({ "plan": planned["plan"], "supersede": true });
    steer(&world, "gpu-2", "start", body).await.expect(200);
    settle(&mut world).await;
    let halted = show(&world, "gpu-2").await;
    assert_eq!(halted["state"], "halted", "{halted:#}");
    let nodes = halted["nodes"].as_array().unwrap();
    let one = nodes.iter().find(|node| node["node"] == *canary).unwrap();
    assert_eq!(one["compared"][0]["before"], 200.0, "{one:#}");
}

/// A person repairs the slow node and runs its gates again.
#[tokio::test]
async fn a_new_result_of_the_node_replaces_the_loss() {
    let mut world = serving(2).await;
    let name = start(&world, 2, &limited(1)).await;
    set_speed(&world, 2, 0.9);
    settle(&mut world).await;
    let canary = taken(&world).await[0].clone();
    set_speed(&world, 2, 1.0);
    world.advance(60);
    world.ask(&canary, "converge").await.expect(202);
    settle(&mut world).await;
    assert_eq!(signal(&show(&world, &name).await).0, "quiet");
    let reason = json!({ "reason": "the node was too warm" });
    steer(&world, &name, "resume", reason).await.expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
}

/// The way out of a halt is open after a change of the suite too.
#[tokio::test]
async fn a_known_loss_is_tolerated_after_a_change_of_the_suite() {
    let mut world = serving(2).await;
    let name = start(&world, 2, &limited(1)).await;
    set_speed(&world, 2, 0.9);
    settle(&mut world).await;
    change_suite(&world).await;
    let mut signals = limited(1)["halt_when"].clone();
    signals[0]["regression"]["percent"] = json!(10);
    let body = json!({ "policy": { "halt_when": signals }, "reason": "the loss is known" });
    let adjusted = steer(&world, &name, "adjust", body).await.expect(200).body;
    assert_eq!(signal(&adjusted).0, "quiet", "{adjusted:#}");
    signals[0]["regression"]["percent"] = json!(100);
    let body = json!({ "policy": { "halt_when": signals }, "reason": "every loss is known" });
    let refused = steer(&world, &name, "adjust", body).await.expect(422);
    assert_eq!(refused.body["errors"][0]["code"], "out_of_range");
}

/// After a change of the suite no node has a result. The way back is planned without the signal.
#[tokio::test]
async fn the_way_back_leaves_out_a_signal_without_results() {
    let mut world = serving(1).await;
    start(&world, 2, &limited(1)).await;
    settle(&mut world).await;
    change_suite(&world).await;
    plan(&world, 1, &limited(1)).await.expect(422);
    let status = plan_like(&world.admin, "revision=1&like=gpu-1").await;
    assert_eq!(status, 303);
    let back = show(&world, "gpu-2").await;
    assert!(back["policy"]["halt_when"].is_null(), "{back:#}");
}
