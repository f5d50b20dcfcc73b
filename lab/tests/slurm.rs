//! A real Slurm controller in the lab. The controller starts without nodes, gains a node, runs a
//! job on the node, and loses the node.

use std::time::Duration;

use muster_core::clusters::Member;
use muster_core::clusters::slurm::render_nodes;
use muster_lab::Rack;
use muster_lab::plan::{AccelPlan, GATEWAY, RackPlan};
use muster_lab::slurm::{Slurm, spawn_local_slurmd};

#[tokio::test]
async fn a_node_joins_runs_a_job_and_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let plan = RackPlan {
        accel: AccelPlan::Tcg,
        machines: RackPlan::reference().machines.split_off(2),
    };
    let rack = Rack::start(dir.path(), plan).await.unwrap();
    let slurm = Slurm::start(&rack).await.unwrap();
    assert_eq!(slurm.sinfo().await.unwrap(), "", "no node yet");

    let node = Member {
        name: "local".to_owned(),
        address: GATEWAY.into(),
        sockets: 1,
        cores_per_socket: 1,
        threads_per_core: 1,
        real_memory: 100,
        gpus: None,
        features: vec!["stack_a".to_owned()],
        switch: None,
        spine: None,
    };
    let nodes = slurm.include_dir.join("muster-nodes.conf");
    std::fs::write(&nodes, render_nodes(std::slice::from_ref(&node), "gpu")).unwrap();
    // A cluster driver applies changed nodes in the same way: a client shuts slurmctld down, and
    // the supervisor restarts slurmctld.
    slurm.scontrol(&["shutdown", "slurmctld"]).await.unwrap();
    wait_for(&slurm, "local").await;
    let mut slurmd = spawn_local_slurmd(&slurm, "local").unwrap();
    wait_for(&slurm, "local idle gpu*").await;
    let said = slurm
        .srun(&["-p", "gpu", "-t", "1", "echo", "passed muster"])
        .await
        .unwrap();
    assert_eq!(said, "passed muster\n");

    slurmd.kill().await.unwrap();
    std::fs::write(&nodes, "").unwrap();
    slurm.restart().await.unwrap();
    assert_eq!(slurm.sinfo().await.unwrap(), "");

    // The rack closes while the controller runs. The supervisor must not restart the controller in
    // the removed namespace.
    let namespace = std::path::Path::new("/run/netns").join(rack.netns.name());
    assert_eq!(
        rack.close().await.unwrap().netns.as_deref(),
        namespace.file_name().and_then(|name| name.to_str())
    );
    assert!(!namespace.exists());
    slurm.close().await;
    let lives = |pid: &str| std::path::Path::new("/proc").join(pid.trim()).exists();
    let pid = std::fs::read_to_string(dir.path().join("slurm/slurmctld.pid")).unwrap_or_default();
    assert!(
        pid.trim().is_empty() || !lives(&pid),
        "slurmctld {pid} still runs"
    );
}

async fn wait_for(slurm: &Slurm, text: &str) {
    let mut seen = String::new();
    for _ in 0..200 {
        seen = slurm
            .sinfo()
            .await
            .unwrap_or_else(|error| error.to_string());
        if seen.contains(text) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{text:?} did not appear in sinfo: {seen}");
}
