//! The smoke suite before and after each job needs a single command per node. The order contains
//! all input, and the results return on the same channel.

use std::time::Duration;

use muster_core::values::Digest;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{GatePlan, Line, Plan, Work, WorkResult};
use muster_core::wire::result::JobResult;

use super::server::FakeServer;
use super::{agent, log_lines, node, plan, wipe};
use crate::ssh::sshd::PRINCIPAL;
use crate::work::context::JobContext;
use crate::work::jobs;

fn smoke() -> GatePlan {
    let gate = |id: &str| {
        serde_json::json!({
            "id": id, "title": id, "stage": "inventory", "timeout_s": 30, "parser": "facts", "finding": "It is not what was bought.",
            "criteria": [{ "metric": "profile.misses", "op": "==", "limit": 0, "unit": "misses" }],
        })
    };
    let plan = serde_json::json!({
        "suite": { "name": "smoke", "version": "1", "gates": [gate("kernel.new"), gate("gpu.inventory"), gate("ib.ports")] },
        "profile": { "model": "m", "sockets": 1, "cores_per_socket": 1, "memory_mib": 1, "schedulable_memory_mib": 1,
                     "root_disk": { "serial_prefix": "R" }, "power_max_w": 300 },
        "only": [], "stack": null, "variables": {}, "in_use": true,
    });
    serde_json::from_value(plan).unwrap()
}

#[tokio::test]
async fn a_smoke_run_is_one_command_over_one_connection() {
    let server = FakeServer::start().await;
    let gated = WorkResult::Gated {
        results: Vec::new(),
        fingerprint: Digest::of(b"hardware"),
    };
    let line = Line::Result {
        at: "2026-01-01T00:00:00Z".parse().unwrap(),
        result: Box::new(gated),
    };
    let sshd = node(&format!(
        "{}{}\n",
        log_lines(6),
        serde_json::to_string(&line).unwrap()
    ));
    let (agent, _dir) = agent(&server, Duration::from_secs(60)).await;
    let like = wipe(&agent, sshd.login(PRINCIPAL), plan());
    for run in 1..=2 {
        let spec = JobSpec::Gates {
            login: sshd.login(PRINCIPAL),
            plan: smoke(),
        };
        let job = Job {
            id: muster_core::ids::JobId::new(),
            spec,
            ..like.job.clone()
        };
        let done = jobs::execute(&JobContext::new(job, std::sync::Arc::clone(&agent)))
            .await
            .unwrap();
        assert!(matches!(done, JobResult::Gated { .. }), "{done:?}");
        // The forced command of a real sshd runs for each command on each channel.
        let asked = sshd.file("asked");
        assert_eq!(asked.lines().count(), run, "{asked}");
        let connections: std::collections::BTreeSet<String> = sshd
            .file("connections")
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(connections.len(), 1, "the second run logs in no more");
        let sent: Plan = serde_json::from_str(&sshd.file("plan")).unwrap();
        assert!(matches!(sent.work, Work::Gate(plan) if plan.suite.name == "smoke"));
    }
}
