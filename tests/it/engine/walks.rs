//! Whatever people ask, whatever fails, whoever dies and however much time passes: the promises hold at every moment, and a person can
//! always bring every node back.
//!
//! Each walk has a seed, which it names when it fails: `WALK_SEED=17` walks that one again, `WALKS=500` walks more of them.

use std::pin::pin;
use std::task::Poll;

use muster_core::gates::Verdict;
use muster_core::wire::orders::KINDS;
use muster_server::tasks::replicas::{self, FIRST};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::promises::Seen;
use crate::simulated::World;
use muster_lab::simulated::agent::{IMMORTAL, Stop};
use muster_lab::simulated::machine::{Disk, Running};

/// `n1` is accepted as it is declared, `n2` waits for a person, `n3` runs already and can be adopted.
const NODES: u8 = 3;
const RUNS_ALREADY: &str = "n3";
/// A world costs more than a step in it: few walks, long ones.
const WALKS: u64 = 6;
/// Longer than any lease.
const SILENCE_S: i64 = 3600;
/// Passes in which a node serves that nothing keeps from it.
const LIFE: u32 = 40;
const ACTIONS: [&str; 20] = [
    "accept",
    "sweep",
    "inspect",
    "retry",
    "quarantine",
    "recover",
    "wipe",
    "drain",
    "undrain",
    "resume",
    "retire",
    "reinstate",
    "reject",
    "power-on",
    "power-off",
    "power-cycle",
    "run-gates",
    "converge",
    "reinstall",
    "rotate-bmc",
];
#[derive(Clone, Debug)]
enum Happens {
    Claim(u8),
    Release(u8),
    Undo(u8),
    /// It is claimed, and everybody works on as long as it takes a node to serve.
    Serves(u8),
    /// Its claim is to get another node.
    Spare(u8),
    /// The pool is to claim so many nodes by itself.
    Replicas(Option<u8>),
    Asked(u8, &'static str),
    Adopted,
    /// Somebody stops what the node works on.
    Stopped(u8),
    Protected(u8, bool),
    /// A maintenance that ends after so many seconds.
    Maintained(u8, i64),
    /// A disk is swapped, and said to be.
    Replaced(u8),
    /// Another name, and back.
    Renamed(u8),
    /// Another rack or unit.
    Moved(u8, u8),
    /// Somebody pulls the plug.
    Unplugged(u8),
    Fails(u8, &'static str, bool, usize),
    Gated(u8, Verdict),
    /// The engine and the agent work, so many passes.
    Work(u8),
    /// The agent's process dies in its so-manieth step from here.
    Dies(u32),
    /// The agent dies there, and nobody takes over until its leases are over: what it did is unknown.
    Unheard(u32),
    /// Server and agent are killed in the middle of their work, at whatever they wait for then, and started again.
    Killed(u32),
    Time(i64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let node = 1..=NODES;
    let verdicts = [Verdict::Fail, Verdict::Error, Verdict::Skipped];
    let people = prop_oneof![
        4 => node.clone().prop_map(Happens::Claim),
        3 => node.clone().prop_map(Happens::Release),
        1 => node.clone().prop_map(Happens::Undo),
        3 => node.clone().prop_map(Happens::Serves),
        4 => node.clone().prop_map(Happens::Spare),
        2 => proptest::option::of(0..=NODES).prop_map(Happens::Replicas),
        6 => (node.clone(), proptest::sample::select(&ACTIONS[..])).prop_map(|(node, action)| Happens::Asked(node, action)),
        1 => Just(Happens::Adopted),
        1 => node.clone().prop_map(Happens::Stopped),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, protected)| Happens::Protected(node, protected)),
        1 => (node.clone(), 1..2000_i64).prop_map(|(node, seconds)| Happens::Maintained(node, seconds)),
        1 => node.clone().prop_map(Happens::Replaced),
        1 => node.clone().prop_map(Happens::Renamed),
        1 => (node.clone(), 1..9_u8).prop_map(|(node, unit)| Happens::Moved(node, unit)),
    ];
    let machines = prop_oneof![
        1 => node.clone().prop_map(Happens::Unplugged),
        3 => (node.clone(), proptest::sample::select(KINDS), any::<bool>(), 1..4_usize)
            .prop_map(|(node, kind, retryable, times)| Happens::Fails(node, kind, retryable, times)),
        1 => (node, proptest::sample::select(verdicts.to_vec())).prop_map(|(node, verdict)| Happens::Gated(node, verdict)),
        2 => (0..12_u32).prop_map(Happens::Dies),
        1 => (0..12_u32).prop_map(Happens::Unheard),
        2 => (0..400_u32).prop_map(Happens::Killed),
    ];
    prop_oneof![
        5 => people,
        3 => machines,
        4 => (1..12_u8).prop_map(Happens::Work),
        1 => (1..400_i64).prop_map(Happens::Time),
    ]
}

async fn happen(world: &mut World, what: Happens) {
    let name = |number: u8| format!("n{number}");
    match what {
        Happens::Claim(node) => drop(world.claim(&name(node)).await),
        Happens::Release(node) => drop(world.release(&name(node)).await),
        Happens::Undo(node) => drop(world.undo(&name(node)).await),
        Happens::Serves(node) => serves(world, &name(node)).await,
        Happens::Spare(node) => drop(world.replace(&name(node)).await),
        Happens::Replicas(count) => keep_replicas(world, count).await,
        Happens::Asked(node, action) => asked(world, &name(node), action).await,
        Happens::Adopted => drop(adopt(world).await),
        Happens::Stopped(node) => {
            if let Some(operation) = world.value(&name(node), "operation_id").await {
                world
                    .admin
                    .post(&format!("/v1/operations/{operation}/cancel"), &json!({}))
                    .await;
            }
        }
        Happens::Protected(node, protected) => world.protect(&name(node), protected).await,
        Happens::Maintained(node, seconds) => {
            let until = world.server.app.clock.now() + jiff::SignedDuration::from_secs(seconds);
            act(
                world,
                &name(node),
                "maintain",
                json!({ "reason": "a test", "until": until }),
            )
            .await;
        }
        Happens::Replaced(node) => replaced(world, &name(node)).await,
        Happens::Renamed(node) => {
            act(world, &name(node), "rename", json!({ "name": "another" })).await;
            act(world, "another", "rename", json!({ "name": name(node) })).await;
        }
        Happens::Moved(node, unit) => {
            let rack = if unit % 2 == 0 { "r1" } else { "r2" };
            act(
                world,
                &name(node),
                "move",
                json!({ "rack": rack, "rack_unit": unit }),
            )
            .await;
        }
        Happens::Unplugged(node) => {
            world.machine(&name(node), |machine| machine.running = Running::Off)
        }
        Happens::Fails(node, kind, retryable, times) => {
            world.fail(&name(node), kind, retryable, times)
        }
        Happens::Gated(node, verdict) => world.gates(&name(node), &[verdict]),
        Happens::Work(passes) => {
            for _ in 0..passes {
                world.pass().await;
                fill(world).await;
            }
        }
        Happens::Dies(steps) => world.agent.refuel(steps),
        Happens::Unheard(steps) => unheard(world, steps).await,
        Happens::Killed(polls) => killed(world, polls).await,
        Happens::Time(seconds) => {
            world.advance(seconds);
            world.expire_leases().await;
        }
    }
    // Wiped, the machine is ours as any other.
    world.machine(RUNS_ALREADY, |machine| machine.foreign &= !machine.empty());
}

async fn serves(world: &mut World, node: &str) {
    world.claim(node).await;
    for _ in 0..LIFE {
        if world.state(node).await == "in_service" {
            return;
        }
        if !world.pass().await {
            world.advance(30);
        }
    }
}

async fn act(world: &World, node: &str, action: &str, body: Value) -> u16 {
    world
        .admin
        .post(&format!("/v1/nodes/{node}/actions/{action}"), &body)
        .await
        .status
}

/// To accept or reject what runs already is to give up what is on it, which is not what these walks are about.
async fn asked(world: &World, node: &str, action: &'static str) {
    if !(node == RUNS_ALREADY && matches!(action, "accept" | "reject")) {
        world.ask(node, action).await;
    }
}

async fn adopt(world: &World) -> u16 {
    let body = json!({ "pool": "gpu", "credential": "once", "host_key": format!("SHA256:{}", "k".repeat(43)), "claim": "c-n3" });
    act(world, RUNS_ALREADY, "adopt", body).await
}

async fn keep_replicas(world: &World, count: Option<u8>) {
    world
        .admin
        .patch("/v1/pools/gpu", &json!({ "spec": { "replicas": count } }))
        .await
        .expect(200);
    fill(world).await;
}

/// What the server's task does every two seconds: it makes no claim beyond what is asked for, and ends none.
async fn fill(world: &World) {
    let own = "SELECT count(*) FROM claims WHERE replica AND state = 'bound'";
    let wanted = "SELECT COALESCE((spec ->> 'replicas')::bigint, 0) FROM objects WHERE kind = 'pool' AND name = 'gpu'";
    let count = async |query| {
        sqlx::query_scalar::<_, i64>(query)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap()
    };
    let before = count(own).await;
    replicas::round(&world.server.app, FIRST).await.unwrap();
    let (after, wanted) = (count(own).await, count(wanted).await);
    assert!(
        before <= after && after <= before.max(wanted),
        "{before} became {after}, and {wanted} are asked for"
    );
}

/// Every claim goes, whoever made it and whichever node it has by now.
async fn release_all(world: &World) {
    let claims = world
        .admin
        .get("/v1/claims?limit=1000&fields=name")
        .await
        .expect(200)
        .body;
    for claim in claims["items"].as_array().unwrap() {
        world
            .admin
            .expecting(1)
            .delete(&format!("/v1/claims/{}", claim["name"].as_str().unwrap()))
            .await;
    }
}

/// A disk without anything on it is swapped in front of everybody.
async fn replaced(world: &World, node: &str) {
    let spare = |serial: &&String| !serial.starts_with("ROOT");
    let old = world.machine(node, |machine| {
        machine
            .disks
            .keys()
            .find(spare)
            .cloned()
            .expect("three disks")
    });
    let new = format!("{}+", old.chars().take(100).collect::<String>());
    let parts =
        json!({ "reason": "a test", "parts": [{ "kind": "disk", "old": old, "new": new }] });
    if act(world, node, "replace-parts", parts).await == 202 {
        world.machine(node, |machine| {
            machine.disks.remove(&old);
            machine.disks.insert(new, Disk::default());
        });
    }
}

async fn unheard(world: &mut World, steps: u32) {
    world.agent.refuel(steps);
    world.engine().await;
    for job in world.agent.lease(100, 0).await.unwrap() {
        match world.agent.work(&job).await {
            Ok(_) => {}
            Err(Stop::Dead) => break,
            Err(stop) => panic!("{}: {stop:?}", job.spec.kind()),
        }
    }
    world.advance(SILENCE_S);
    world.expire_leases().await;
    world.engine().await;
    world.replace_agent(IMMORTAL).await;
}

/// A pass of everybody that is dropped after so many turns of its own, and a new process each.
async fn killed(world: &mut World, polls: u32) {
    {
        let mut pass = pin!(world.pass());
        let mut left = polls;
        std::future::poll_fn(|context| match (pass.as_mut().poll(context), left) {
            (Poll::Ready(_), _) | (_, 0) => Poll::Ready(()),
            _ => {
                left -= 1;
                Poll::Pending
            }
        })
        .await;
    }
    world.restart_server().await;
    world.replace_agent(IMMORTAL).await;
}

/// Does what a person would do until every node can be claimed again.
async fn bring_back(world: &mut World) {
    world.agent.refuel(IMMORTAL);
    keep_replicas(world, None).await;
    for number in 1..=NODES {
        world.machine(&format!("n{number}"), |machine| machine.turns.clear());
    }
    for _ in 0..10 {
        // One that was protected on its way out waits there; an adopted one is protected again.
        for number in 1..=NODES {
            world.protect(&format!("n{number}"), false).await;
        }
        world.settle().await;
        if all_available(world).await {
            break;
        }
        world.machine(RUNS_ALREADY, |machine| machine.foreign &= !machine.empty());
        release_all(world).await;
        for number in 1..=NODES {
            let name = format!("n{number}");
            let action = match world.state(&name).await.as_str() {
                "discovered" if name == RUNS_ALREADY => {
                    adopt(world).await;
                    continue;
                }
                "discovered" => "accept",
                "failed" => "retry",
                "quarantined" if world.value(&name, "unsanitised").await.unwrap() == "true" => {
                    "wipe"
                }
                "quarantined" => "recover",
                "maintenance" => "resume",
                "retired" => "reinstate",
                _ => continue,
            };
            world.ask(&name, action).await;
        }
    }
    for number in 1..=NODES {
        let name = format!("n{number}");
        assert_eq!(
            world.state(&name).await,
            "available",
            "{name} cannot be brought back: {:?}",
            world.history(&name).await
        );
        world.claim(&name).await.expect(201);
    }
    world.check().await;
}

async fn all_available(world: &World) -> bool {
    let others: i64 =
        sqlx::query_scalar("SELECT count(*) FROM nodes WHERE state <> 'available' OR protected")
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
    others == 0
}

/// Walks with an even seed begin with nodes as they come, those with an odd one where a node serves and another is to spare.
async fn start(seed: u64) -> World {
    let serving = seed % 2 == 1;
    let waiting = if serving {
        &["/v1/nodes/n3"][..]
    } else {
        &["/v1/nodes/n2", "/v1/nodes/n3"]
    };
    let mut world = World::declare(NODES, |path, mut body| {
        if waiting.contains(&path) {
            body["spec"]["accept"] = json!(false);
        }
        body
    })
    .await;
    let mut rack = crate::support::fleet::rack();
    rack["spec"]["power_budget_w"] = json!(350);
    world.admin.put("/v1/racks/r2", &rack).await.expect(201);
    let credential = json!({ "spec": { "purpose": "adopt", "secret": "one-time" } });
    world
        .admin
        .put("/v1/credentials/once", &credential)
        .await
        .expect(201);
    world.machine(RUNS_ALREADY, |machine| machine.install_by_somebody_else());
    world.settle().await;
    if serving {
        world.claim("n1").await.expect(201);
        world.settle().await;
    }
    world
}

async fn walk(seed: u64, steps: Vec<Happens>) {
    let mut world = start(seed).await;
    let mut seen = Seen::default();
    seen.look(&world).await;
    for what in steps {
        happen(&mut world, what).await;
        world.check().await;
        seen.look(&world).await;
    }
    bring_back(&mut world).await;
    seen.look(&world).await;
}

/// The same steps for the same seed, and the shortest that fail.
fn walk_of(seed: u64) {
    let config = Config {
        cases: 1,
        max_shrink_iters: 30,
        failure_persistence: None,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(&proptest::collection::vec(happens(), 15..50), |steps| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(walk(seed, steps));
        Ok(())
    });
    outcome
        .unwrap_or_else(|error| panic!("walk {seed}, which WALK_SEED={seed} walks again: {error}"));
}

#[test]
fn no_walk_breaks_a_promise() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    match number("WALK_SEED") {
        Some(seed) => walk_of(seed),
        None => (0..number("WALKS").unwrap_or(WALKS)).for_each(|seed| {
            println!("walk {seed}");
            walk_of(seed);
        }),
    }
}
