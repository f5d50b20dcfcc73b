//! Whatever people ask, whatever fails, whoever dies and however much time passes: the promises hold at every moment, and a person can
//! always bring every node back.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use serde_json::json;

use crate::simulated::World;
use muster_lab::simulated::agent::IMMORTAL;

const NODES: u8 = 3;
const ACTIONS: [&str; 12] = [
    "inspect",
    "retry",
    "quarantine",
    "recover",
    "wipe",
    "drain",
    "undrain",
    "maintain",
    "resume",
    "retire",
    "reinstate",
    "reject",
];
const KINDS: [&str; 11] = [
    "boot_live",
    "inventory",
    "power_off",
    "write_image",
    "boot_disk",
    "converge",
    "reboot",
    "slurm_admit",
    "slurm_drain",
    "slurm_remove",
    "wipe",
];

#[derive(Clone, Debug)]
enum Happens {
    Claim(u8),
    Release(u8),
    Undo(u8),
    Asked(u8, &'static str),
    /// Somebody stops what the node works on.
    Stopped(u8),
    Protected(u8, bool),
    /// A maintenance that ends after so many seconds.
    Maintained(u8, i64),
    Fails(u8, &'static str, bool, usize),
    /// The engine and the agent work, so many passes.
    Work(u8),
    /// The agent's process dies in its so-manieth step from here.
    Dies(u32),
    Time(i64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let node = 1..=NODES;
    prop_oneof![
        3 => node.clone().prop_map(Happens::Claim),
        2 => node.clone().prop_map(Happens::Release),
        1 => node.clone().prop_map(Happens::Undo),
        2 => (node.clone(), proptest::sample::select(&ACTIONS[..])).prop_map(|(node, action)| Happens::Asked(node, action)),
        1 => node.clone().prop_map(Happens::Stopped),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, protected)| Happens::Protected(node, protected)),
        1 => (node.clone(), 1..2000_i64).prop_map(|(node, seconds)| Happens::Maintained(node, seconds)),
        2 => (node, proptest::sample::select(&KINDS[..]), any::<bool>(), 1..4_usize)
            .prop_map(|(node, kind, retryable, times)| Happens::Fails(node, kind, retryable, times)),
        6 => (1..12_u8).prop_map(Happens::Work),
        2 => (0..12_u32).prop_map(Happens::Dies),
        2 => (1..400_i64).prop_map(Happens::Time),
    ]
}

async fn happen(world: &mut World, what: Happens) {
    let name = |number: u8| format!("n{number}");
    match what {
        Happens::Claim(node) => drop(world.claim(&name(node)).await),
        Happens::Release(node) => drop(world.release(&name(node)).await),
        Happens::Undo(node) => drop(world.undo(&name(node)).await),
        Happens::Asked(node, action) => drop(world.ask(&name(node), action).await),
        Happens::Stopped(node) => {
            if let Some(operation) = world.value(&name(node), "operation_id").await {
                world.admin.post(&format!("/v1/operations/{operation}/cancel"), &json!({})).await;
            }
        }
        Happens::Protected(node, protected) => world.protect(&name(node), protected).await,
        Happens::Maintained(node, seconds) => {
            let until = world.server.app.clock.now() + jiff::SignedDuration::from_secs(seconds);
            let body = json!({ "reason": "a test", "until": until });
            drop(world.admin.post(&format!("/v1/nodes/{}/actions/maintain", name(node)), &body).await);
        }
        Happens::Fails(node, kind, retryable, times) => world.fail(&name(node), kind, retryable, times),
        Happens::Work(passes) => {
            for _ in 0..passes {
                world.pass().await;
            }
        }
        Happens::Dies(steps) => world.agent.refuel(steps),
        Happens::Time(seconds) => {
            world.advance(seconds);
            world.expire_leases().await;
        }
    }
}

/// Does what a person would do until every node can be claimed again.
async fn bring_back(world: &mut World) {
    world.agent.refuel(IMMORTAL);
    for number in 1..=NODES {
        world.machine(&format!("n{number}"), |machine| machine.turns.clear());
        world.protect(&format!("n{number}"), false).await;
    }
    for _ in 0..8 {
        world.settle().await;
        for number in 1..=NODES {
            let name = format!("n{number}");
            world.release(&name).await;
            let action = match world.state(&name).await.as_str() {
                "discovered" => "accept",
                "failed" => "retry",
                "quarantined" if world.value(&name, "unsanitised").await.unwrap() == "true" => "wipe",
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

/// A world costs more than a step in it: few walks, long ones. `PROPTEST_CASES=100` walks on.
#[test]
fn no_walk_breaks_a_promise() {
    let cases = std::env::var("PROPTEST_CASES").map_or(8, |cases| cases.parse().unwrap());
    let config = Config { cases, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    let walk = proptest::collection::vec(happens(), 10..50);
    let outcome = TestRunner::new(config).run(&walk, |walk| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::start(NODES).await;
            world.settle().await;
            for what in walk {
                happen(&mut world, what).await;
                world.check().await;
            }
            bring_back(&mut world).await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
