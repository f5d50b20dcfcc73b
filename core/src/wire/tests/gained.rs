//! Fields added to existing kinds of orders, with a golden file for every field. Fields missing in
//! an agent's list are removed for the agent.

use serde_json::json;

use super::{cluster, converge, golden, id, job, login, permit, power, write_image};
use crate::clusters::DrainReason;
use crate::ids::OperationId;
use crate::stacks::ConvergePlan;
use crate::wire::bmc::Power;
use crate::wire::job::{Job, JobSpec, Origin};
use crate::wire::login::RevokedKeys;
use crate::wire::node::{SignedImage, WriteImage};

#[test]
fn members_that_came_later() {
    let lifts = Some(DrainReason::Measurement);
    let back = JobSpec::Admit {
        cluster: cluster(),
        revision: 7,
        name: "n1".into(),
        login: login(),
        lifts,
    };
    golden("job-admit-back", &job(back));
    let requeuing = JobSpec::Drain {
        cluster: cluster(),
        name: "n1".into(),
        reason: DrainReason::Leaving,
        requeue: true,
    };
    golden("job-drain-requeue", &job(requeuing));
    let plan = json!({
        "suite": { "name": "smoke", "version": "1", "gates": [] },
        "profile": {
            "model": "virtual", "sockets": 1, "cores_per_socket": 2, "memory_mib": 1800, "schedulable_memory_mib": 1500,
            "root_disk": { "serial_prefix": "ROOT" }, "power_max_w": 300,
        },
        "only": [], "stack": null, "variables": {},
        "waived": ["disk.smart"], "waived_until": { "disk.smart": "2026-11-30T08:00:00Z" },
    });
    let of_gates = |plan: serde_json::Value| {
        job(JobSpec::Gates {
            login: login(),
            plan: serde_json::from_value(plan).unwrap(),
        })
    };
    golden("job-gates-waived", &of_gates(plan.clone()));
    let mut protected = plan;
    protected["in_use"] = json!(true);
    protected["protected"] = json!(true);
    protected["variables"] = json!({ "former_gates": "site.fans" });
    golden("job-gates-protected", &of_gates(protected));
    let power = Power::Manual {
        person: "the lab".into(),
    };
    let origin = Some(Origin {
        operation: OperationId(id(4)),
        request_id: Some("ticket-4711".into()),
    });
    let permit = permit();
    golden(
        "job-origin",
        &Job {
            origin,
            ..job(JobSpec::PowerOn { power, permit })
        },
    );
    let plan = ConvergePlan {
        cdi: true,
        ..converge()
    };
    let login = login();
    golden("job-converge-cdi", &job(JobSpec::Converge { login, plan }));
}

#[test]
fn signatures_of_images_came_later() {
    let plan = WriteImage {
        signed_image: Some(SignedImage {
            statement: "{\"statement\":\"muster image v1\"}".into(),
            signature: "RWQ=".into(),
            keys: vec!["RWQ=".into()],
        }),
        ..write_image()
    };
    let login = login();
    golden(
        "job-write-image-signed",
        &job(JobSpec::WriteImage { login, plan }),
    );
}

#[test]
fn networks_of_bmcs_came_later() {
    let Power::Redfish(mut target) = power() else {
        unreachable!()
    };
    target.bmc_networks = vec![
        "10.77.1.0/24".parse().unwrap(),
        "fd00:77::/64".parse().unwrap(),
    ];
    let power = Power::Redfish(target);
    let permit = permit();
    golden(
        "job-power-on-networks",
        &job(JobSpec::PowerOn { power, permit }),
    );
}

#[test]
fn revoked_keys_came_later() {
    let revoked_keys = Some(RevokedKeys {
        installed: Some("ssh-ed25519 AAAA".into()),
        live: None,
        serials: vec![7, i64::MAX.unsigned_abs()],
    });
    let power = Power::Manual {
        person: "the lab".into(),
    };
    let permit = permit();
    golden(
        "job-revoked-keys",
        &Job {
            revoked_keys,
            ..job(JobSpec::PowerOn { power, permit })
        },
    );
}
