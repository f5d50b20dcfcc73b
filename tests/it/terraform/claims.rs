//! Claims over simulated machines: the waits of Terraform, the state after a timeout, and the
//! remains of a killed apply.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::{Child, Command};

use super::{Printed, Terraform};
use crate::simulated::World;
use crate::support::server::{Caller, Server};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

pub(super) fn claim(name: &str, node: &str, more: &str) -> String {
    format!(
        "resource \"muster_claim\" \"{name}\" {{\n  name = \"{name}\"\n  spec = {{ pool = \"gpu\", node = \"{node}\" }}\n{more}\n}}\n"
    )
}

/// The results of inspection, of the gates and of the operation.
pub(super) const OBSERVED: &str = r#"
data "muster_claim" "c1" {
  name       = muster_claim.c1.name
  depends_on = [muster_claim.c1]
}
data "muster_claims" "of_gpu" {
  filter     = "pool=gpu AND node=n1"
  depends_on = [muster_claim.c1]
}
data "muster_claims" "elsewhere" {
  filter     = "node=n2"
  depends_on = [muster_claim.c1]
}
data "muster_node_facts" "n1" {
  node       = "n1"
  depends_on = [muster_claim.c1]
}
data "muster_gate_runs" "n1" {
  node       = "n1"
  depends_on = [muster_claim.c1]
}
data "muster_operation" "claim" {
  id = muster_claim.c1.status.operation
}
output "node" {
  value = muster_claim.c1.status.node_state
}
output "claim" {
  value = "${data.muster_claim.c1.name} holds ${data.muster_claim.c1.spec.node}, ${data.muster_claim.c1.status.state}"
}
output "claims" {
  value = [for claim in concat(data.muster_claims.of_gpu.items, data.muster_claims.elsewhere.items) : claim.id == muster_claim.c1.id]
}
output "verdict" {
  value = data.muster_gate_runs.n1.items[0].verdict
}
output "disks" {
  value = length(data.muster_node_facts.n1.facts.disks) > 0 && data.muster_operation.claim.kind == "claim"
}
"#;

/// Runs Terraform beside the engine and the machines.
async fn alive(world: &mut World, terraform: &Terraform, args: &[&str]) -> Printed {
    let mut running = Box::pin(terraform.run(args));
    loop {
        world.settle().await;
        match tokio::time::timeout(POLL, &mut running).await {
            Ok(printed) => return printed,
            Err(_) => continue,
        }
    }
}

/// Repeats a request until the answer fits.
async fn until(admin: &Caller, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let body = admin.get(path).await.body;
        if fits(&body) {
            return body;
        }
        assert!(begun.elapsed() < PATIENCE, "{path}: {body}");
        tokio::time::sleep(POLL).await;
    }
}

/// The first child of a process, as soon as the child exists.
async fn child_of(parent: u32) -> u32 {
    let begun = Instant::now();
    loop {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
            .unwrap_or_default();
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let others =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        if let Some(pid) = others
            .chain([children])
            .find_map(|line| line.split_whitespace().next()?.parse().ok())
        {
            return pid;
        }
        assert!(begun.elapsed() < PATIENCE, "{parent} starts nothing");
        tokio::time::sleep(POLL).await;
    }
}

async fn signal(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .await
        .unwrap();
    assert!(status.success(), "{pid} was there");
}

/// Kills Terraform like a loss of power, and waits for the end of the provider.
async fn kill_terraform(mut running: Child) {
    let provider = child_of(running.id().unwrap()).await;
    running.kill().await.unwrap();
    let begun = Instant::now();
    while std::fs::exists(format!("/proc/{provider}")).unwrap() {
        assert!(
            begun.elapsed() < PATIENCE,
            "the provider outlives Terraform"
        );
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_claim_is_waited_for_and_so_is_its_end() {
    let mut world = World::start(2).await;
    world.settle().await;
    let terraform = Terraform::start(&world.server).await;
    terraform.write(&format!("{}{OBSERVED}", claim("c1", "n1", "")));
    let applied = alive(&mut world, &terraform, &["apply", "-auto-approve"])
        .await
        .expect(0);
    applied
        .says("Effect: reinstall")
        .says("node = \"in_service\"")
        .says("verdict = \"pass\"")
        .says("1 added")
        .says("claim = \"c1 holds n1, bound\"")
        .says("claims = [ true, ]");
    terraform.plan().await.expect(0).says("No changes.");

    let imported = terraform.beside();
    imported.write(&format!(
        "{}import {{\n  to = muster_claim.c1\n  id = \"c1\"\n}}\n",
        claim("c1", "n1", "")
    ));
    imported
        .apply()
        .await
        .expect(0)
        .says("1 imported, 0 added, 0 changed, 0 destroyed");
    imported.plan().await.expect(0).says("No changes.");

    // A different node needs a new claim: the old node is wiped, the new node written.
    terraform.write(&claim("c1", "n2", ""));
    terraform
        .plan()
        .await
        .expect(2)
        .says("Effect: wipe")
        .says("Effect: reinstall")
        .says("1 to add, 0 to change, 1 to destroy");
    alive(&mut world, &terraform, &["apply", "-auto-approve"])
        .await
        .expect(0);
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("available", "in_service")
    );

    let destroyed = alive(&mut world, &terraform, &["destroy", "-auto-approve"])
        .await
        .expect(0);
    destroyed
        .says("Effect: wipe")
        .says("wipes its disks when the pool's undo window is over")
        .says("1 destroyed");
    assert_eq!(world.state("n2").await, "available");
    let wiped = |name| {
        world.machine(name, |machine| {
            machine.log.iter().filter(|done| done.act == "wipe").count()
        })
    };
    assert_eq!((wiped("n1"), wiped("n2")), (1, 1));
    world.check().await;
}

#[tokio::test]
async fn a_claim_that_is_late_is_kept_and_the_next_apply_goes_on_with_it() {
    let mut world = World::start(1).await;
    world.settle().await;
    let terraform = Terraform::start(&world.server).await;
    terraform.write(&claim(
        "c1",
        "n1",
        "  timeouts = { create = \"1s\", update = \"1s\" }",
    ));
    // The machines stand still meanwhile.
    terraform
        .apply()
        .await
        .expect(0)
        .says("The claim is not ready yet")
        .says("1 added");
    let id = world.admin.get("/v1/claims/c1").await.expect(200).body["id"].clone();
    assert!(
        terraform.state().contains(id.as_str().unwrap()),
        "its id is kept"
    );
    terraform
        .apply()
        .await
        .expect(1)
        .says("The claim c1 is not ready yet");
    terraform
        .plan()
        .await
        .expect(2)
        .says("0 to add, 1 to change, 0 to destroy");

    terraform.write(&claim("c1", "n1", ""));
    terraform.run(&["plan", "-out=saved"]).await.expect(0);
    alive(&mut world, &terraform, &["apply", "saved"])
        .await
        .expect(0)
        .says("0 added, 1 changed, 0 destroyed");
    assert_eq!(world.admin.get("/v1/claims/c1").await.body["id"], id);
    terraform.plan().await.expect(0).says("No changes.");

    // A person releases the claim by hand.
    world
        .admin
        .expecting(1)
        .delete("/v1/claims/c1")
        .await
        .expect(202);
    terraform
        .plan()
        .await
        .expect(2)
        .says("1 to add, 0 to change, 0 to destroy");
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn a_hold_is_changed_in_place_and_another_node_is_no_change() {
    let mut world = World::start(2).await;
    world.settle().await;
    let terraform = Terraform::start(&world.server).await;
    let with = |more: &str| {
        let spec = format!("pool = \"gpu\", node = \"n1\", wait_for = \"bound\"{more}");
        terraform.write(&format!(
            "resource \"muster_claim\" \"c1\" {{\n  name = \"c1\"\n  spec = {{ {spec} }}\n}}\n"
        ));
    };
    with("");
    // The machines stand still meanwhile. Terraform waits only for the bound claim.
    terraform.apply().await.expect(0).says("1 added");
    world.settle().await;
    let made = world.admin.get("/v1/claims/c1").await.expect(200).body;
    let version = world.value("n1", "version").await;
    with(", hold = true");
    terraform
        .apply()
        .await
        .expect(0)
        .says("0 added, 1 changed, 0 destroyed");
    let held = world.admin.get("/v1/claims/c1").await.expect(200).body;
    assert_eq!(
        (&held["id"], &held["status"]["effective_hold"]),
        (&made["id"], &serde_json::json!(true))
    );
    assert_eq!(
        world.value("n1", "version").await,
        version,
        "its node did not notice"
    );
    terraform.plan().await.expect(0).says("No changes.");

    let replace = world.admin.expecting(held["generation"].as_i64().unwrap());
    replace
        .post("/v1/claims/c1/actions/replace", &serde_json::json!({}))
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(
        world.admin.get("/v1/claims/c1").await.body["status"]["node"],
        "n2"
    );
    terraform.plan().await.expect(0).says("No changes.");
    world.check().await;
}

#[tokio::test]
async fn an_apply_that_is_killed_is_taken_up_by_the_next_one() {
    let mut world = World::start(3).await;
    world.settle().await;
    let terraform = Terraform::start(&world.server).await;
    terraform.write(&claim("c1", "n1", ""));
    let running = terraform.spawn(&["apply", "-auto-approve"]);
    let killed = until(&world.admin, "/v1/claims/c1", |claim| {
        claim["id"].is_string()
    })
    .await;
    kill_terraform(running).await;
    assert!(
        !terraform.state().contains("muster_claim"),
        "Terraform could write nothing"
    );
    let applied = alive(&mut world, &terraform, &["apply", "-auto-approve"])
        .await
        .expect(0);
    applied.says("1 added, 0 changed, 0 destroyed");
    let claims = world.admin.get("/v1/claims").await.body;
    assert_eq!(
        (
            &claims["items"][0]["id"],
            claims["items"].as_array().unwrap().len()
        ),
        (&killed["id"], 1)
    );
    assert_eq!(world.state("n1").await, "in_service");

    // The provider alone is killed, and Terraform reports the loss.
    terraform.write(&format!(
        "{}{}",
        claim("c1", "n1", ""),
        claim("c2", "n2", "")
    ));
    let mut running = terraform.spawn(&["apply", "-auto-approve"]);
    let killed = until(&world.admin, "/v1/claims/c2", |claim| {
        claim["id"].is_string()
    })
    .await;
    signal("-KILL", child_of(running.id().unwrap()).await).await;
    assert!(!running.wait().await.unwrap().success());
    alive(&mut world, &terraform, &["apply", "-auto-approve"])
        .await
        .expect(0);
    assert_eq!(
        world.admin.get("/v1/claims/c2").await.body["id"],
        killed["id"]
    );

    // Ctrl-C, sent by a terminal to both: Terraform ends with the claim in the state.
    let all = [("c1", "n1"), ("c2", "n2"), ("c3", "n3")]
        .map(|(name, node)| claim(name, node, ""))
        .concat();
    terraform.write(&all);
    let mut running = terraform.spawn(&["apply", "-auto-approve"]);
    let interrupted = until(&world.admin, "/v1/claims/c3", |claim| {
        claim["id"].is_string()
    })
    .await;
    let provider = child_of(running.id().unwrap()).await;
    signal("-INT", provider).await;
    signal("-INT", running.id().unwrap()).await;
    assert!(!running.wait().await.unwrap().success());
    assert!(
        terraform
            .state()
            .contains(interrupted["id"].as_str().unwrap()),
        "its id is kept"
    );
    alive(&mut world, &terraform, &["apply", "-auto-approve"])
        .await
        .expect(0)
        .says("0 destroyed");
    assert_eq!(
        world.admin.get("/v1/claims/c3").await.body["id"],
        interrupted["id"]
    );
    terraform.plan().await.expect(0).says("No changes.");
    world.check().await;
}

#[tokio::test]
async fn two_hundred_nodes_are_one_apply_killed_or_not() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let terraform = Terraform::start(&server).await;
    terraform.write(
        r#"
resource "muster_site" "lab" {
  name = "lab"
}
resource "muster_node" "many" {
  count = 200
  name  = "n${count.index}"
  spec = {
    site   = muster_site.lab.name
    accept = false
    power  = { manual = { person = "alice" } }
    macs   = [{ mac = format("52:54:00:00:%02x:%02x", floor(count.index / 256), count.index % 256) }]
  }
}
"#,
    );
    let running = terraform.spawn(&["apply", "-auto-approve"]);
    until(&admin, "/v1/nodes?limit=1000", |page| {
        page["items"]
            .as_array()
            .is_some_and(|items| items.len() >= 20)
    })
    .await;
    kill_terraform(running).await;
    let begun = admin.get("/v1/nodes?limit=1000").await.body["items"]
        .as_array()
        .unwrap()
        .len();
    assert!(begun < 200, "killed in the middle");
    terraform.apply().await.expect(0);
    assert_eq!(
        admin.get("/v1/nodes?limit=1000").await.body["items"]
            .as_array()
            .unwrap()
            .len(),
        200
    );
    terraform.plan().await.expect(0).says("No changes.");
    terraform.destroy().await.expect(0).says("201 destroyed");
}
