//! Permits are granted for the right job, node, disks and time. The server refuses every other
//! request with a reason, and records the refusal.

use muster_core::ids::{JobId, NodeId, OperationId, PermitId};
use muster_core::permits::{PermitKind, verify};
use muster_core::wire::PROTOCOL;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Answer, Challenge, Failure, WipeMethod, WipedDisk};
use muster_core::wire::result::{JobResult, Outcome};
use muster_server::keys::rings::encode_public;
use serde_json::json;

use crate::simulated::World;
use muster_lab::simulated::agent::Stop;

/// Returns the challenge that the job's node would send.
fn challenge(job: &Job) -> Challenge {
    let (permit, operation, disk_serials) = match &job.spec {
        JobSpec::WriteImage { plan, .. } => {
            (plan.permit, plan.operation, vec![plan.disk_serial.clone()])
        }
        JobSpec::Wipe { plan, .. } => (plan.permit, plan.operation, plan.disk_serials.clone()),
        other => panic!("{} writes no disk", other.kind()),
    };
    Challenge {
        protocol: PROTOCOL,
        permit,
        operation,
        job: job.id,
        attempt: job.attempt,
        node: job.node,
        epoch: job.epoch,
        boot_id: "boot".into(),
        chassis_serial: None,
        disk_serials,
        nonce: "00".repeat(32),
    }
}

impl World {
    /// Returns the reason of a refused permit.
    async fn refusal(&self, job: &Job, permit: PermitId, challenge: Option<Challenge>) -> String {
        match self.agent.redeem(job, permit, challenge).await.unwrap() {
            Answer::Refused { reason } => reason,
            Answer::Granted { .. } => panic!("granted"),
        }
    }

    async fn grant(&self, job: &Job, challenge: &Challenge) -> String {
        match self
            .agent
            .redeem(job, challenge.permit, Some(challenge.clone()))
            .await
            .unwrap()
        {
            Answer::Granted { signature } => signature,
            Answer::Refused { reason } => panic!("refused: {reason}"),
        }
    }

    /// Returns a world with `n1` claimed and the job `write_image` leased.
    async fn about_to_write() -> (Self, Job) {
        let mut world = Self::start(2).await;
        world.settle().await;
        world.claim("n1").await.expect(201);
        let job = world.until_leased("n1", "write_image").await;
        (world, job)
    }
}

async fn public_key(world: &World) -> String {
    let app = &world.server.app;
    let mut conn = app.pool.acquire().await.unwrap();
    encode_public(&app.keys.open_permits(&mut conn).await.unwrap().current)
}

#[tokio::test]
async fn a_fitting_permit_is_granted_until_its_operation_ends() {
    let (mut world, job) = World::about_to_write().await;
    let asked = challenge(&job);
    for _ in 0..2 {
        let signature = world.grant(&job, &asked).await;
        let key = public_key(&world).await;
        verify(&key, PermitKind::Image, &asked, &signature).unwrap();
        assert!(verify(&key, PermitKind::Wipe, &asked, &signature).is_err());
    }
    // The node's challenge with a single changed field.
    type Change = fn(&mut Challenge);
    let changed: [(Change, &str); 8] = [
        (|c| c.permit = PermitId::new(), "another permit"),
        (|c| c.job = JobId::new(), "another permit"),
        (|c| c.node = NodeId::new(), "another permit"),
        (|c| c.operation = OperationId::new(), "another permit"),
        (|c| c.epoch += 1, "another permit"),
        (
            |c| c.disk_serials = vec!["DATA-n1".into()],
            "the node would write",
        ),
        (
            |c| c.disk_serials.push("DATA-n1".into()),
            "the node would write",
        ),
        (|c| c.disk_serials.clear(), "the node would write"),
    ];
    for (change, why) in changed {
        let mut other = asked.clone();
        change(&mut other);
        let reason = world.refusal(&job, asked.permit, Some(other)).await;
        assert!(reason.contains(why), "{reason}");
    }
    assert_eq!(
        world.refusal(&job, asked.permit, None).await,
        "the node's challenge is missing"
    );
    assert_eq!(
        world
            .refusal(&job, PermitId::new(), Some(asked.clone()))
            .await,
        "the permit does not exist"
    );
    let stale = Job {
        attempt: job.attempt + 1,
        ..job.clone()
    };
    let refused = world
        .agent
        .redeem(&stale, asked.permit, Some(asked.clone()))
        .await;
    assert_eq!(refused, Err(Stop::Refused(409, "stale_attempt".into())));
    let history = world.history("n1").await;
    assert_eq!(
        history
            .iter()
            .filter(|line| *line == "permit.refused")
            .count(),
        10,
        "every refusal is written down"
    );
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn another_chassis_than_the_nodes_is_refused() {
    let (world, job) = World::about_to_write().await;
    let asked = challenge(&job);
    let serial = "UPDATE facts SET facts = jsonb_set(facts, '{smbios,chassis_serial}', '\"CH-1\"') WHERE node_id = $1";
    sqlx::query(serial)
        .bind(job.node.0)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    for (other, told) in [(None, "none"), (Some("CH-2".to_owned()), "CH-2")] {
        let elsewhere = Challenge {
            chassis_serial: other,
            ..asked.clone()
        };
        let reason = world.refusal(&job, asked.permit, Some(elsewhere)).await;
        assert_eq!(
            reason,
            format!(
                "the requesting machine is in the chassis {told}, the node was last seen in CH-1"
            )
        );
    }
    world
        .grant(
            &job,
            &Challenge {
                chassis_serial: Some("CH-1".into()),
                ..asked
            },
        )
        .await;
}

#[tokio::test]
async fn a_permit_is_for_one_job_and_one_round_of_it() {
    let (mut world, job) = World::about_to_write().await;
    let first = challenge(&job);
    world.claim("n2").await.expect(201);
    let other = world.until_leased("n2", "write_image").await;
    let reason = world
        .refusal(&other, first.permit, Some(first.clone()))
        .await;
    assert_eq!(reason, "the permit was minted for another job or round");
    let failure = Failure {
        code: "net".into(),
        message: "the stream broke".into(),
        retryable: true,
    };
    world
        .agent
        .report(job.id, job.attempt, Outcome::Failed { failure })
        .await
        .unwrap();
    let again = world.until_leased("n1", "write_image").await;
    let reason = world.refusal(&again, first.permit, Some(first)).await;
    assert_eq!(reason, "the permit was minted for another job or round");
    world.grant(&again, &challenge(&again)).await;
}

#[tokio::test]
async fn nothing_is_granted_after_its_time_its_operation_or_its_assignment() {
    // Time: the permit expires after the step's hour and a minute.
    let (world, job) = World::about_to_write().await;
    let asked = challenge(&job);
    world.advance(3600);
    world.grant(&job, &asked).await;
    world.advance(61);
    assert!(
        world
            .refusal(&job, asked.permit, Some(asked.clone()))
            .await
            .starts_with("the permit expired at")
    );

    // Operation: a person's quarantine cancels the operation.
    let (mut world, job) = World::about_to_write().await;
    let asked = challenge(&job);
    world.ask("n1", "quarantine").await.expect(202);
    assert_eq!(
        world.refusal(&job, asked.permit, Some(asked.clone())).await,
        "the operation is cancelled"
    );
    world.agent.work(&job).await.unwrap();
    world.engine().await;
    // Operation: a person cancels the operation, and the agent has not received the cancellation.
    let (stopped, running) = World::about_to_write().await;
    let wanted = challenge(&running);
    let path = format!("/v1/operations/{}/cancel", wanted.operation);
    stopped.admin.post(&path, &json!({})).await.expect(202);
    assert_eq!(
        stopped
            .refusal(&running, wanted.permit, Some(wanted.clone()))
            .await,
        "the job is being cancelled"
    );
    let forced = "UPDATE permits SET redemptions = redemptions + 1 WHERE id = $1";
    let forced = sqlx::query(forced)
        .bind(wanted.permit)
        .execute(&stopped.server.app.pool)
        .await
        .unwrap_err();
    assert!(
        forced
            .to_string()
            .contains("is not of work that is under way"),
        "{forced}"
    );

    // Job: the ended job has no current attempt.
    let refused = world.agent.redeem(&job, asked.permit, Some(asked)).await;
    assert_eq!(refused, Err(Stop::Refused(409, "stale_attempt".into())));
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert!(world.machine("n1", |machine| machine.empty()));
    world.check().await;

    // Assignment: the release raises the node's epoch.
    let (world, job) = World::about_to_write().await;
    let asked = challenge(&job);
    world.release("n1").await.expect(202);
    let reason = world.refusal(&job, asked.permit, Some(asked)).await;
    assert_eq!(reason, "the permit has assignment epoch 1, the node has 2");
}

#[tokio::test]
async fn a_release_stops_a_write_that_has_not_begun() {
    let (mut world, job) = World::about_to_write().await;
    world.release("n1").await.expect(202);
    // The agent misses the cancellation and continues on the node. The node gets no permit and
    // writes no disk.
    world.agent.refuse_to_stop();
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    let written = world.machine("n1", |machine| {
        machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()
    });
    assert_eq!(written, 0);
    assert!(
        world
            .history("n1")
            .await
            .contains(&"permit.refused".to_owned())
    );
    world.check().await;
}

#[tokio::test]
async fn a_power_permit_takes_no_challenge_and_a_wipe_names_every_disk() {
    let mut world = World::start(1).await;
    let boot = world.until_leased("n1", "boot_live").await;
    let JobSpec::BootLive(spec) = &boot.spec else {
        panic!("{boot:?}")
    };
    let some = Challenge {
        protocol: PROTOCOL,
        permit: spec.permit,
        operation: OperationId::new(),
        job: boot.id,
        attempt: 1,
        node: boot.node,
        epoch: boot.epoch,
        boot_id: String::new(),
        chassis_serial: None,
        disk_serials: Vec::new(),
        nonce: String::new(),
    };
    assert_eq!(
        world.refusal(&boot, spec.permit, Some(some)).await,
        "a power permit accepts no challenge"
    );
    assert_eq!(
        world.agent.redeem(&boot, spec.permit, None).await.unwrap(),
        Answer::Granted {
            signature: String::new()
        }
    );
    world.agent.work(&boot).await.unwrap();
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.release("n1").await.expect(202);
    let wipe = world.until_leased("n1", "wipe").await;
    let asked = challenge(&wipe);
    assert_eq!(asked.disk_serials, ["DATA-n1", "DECOY-n1", "ROOT-n1"]);
    let fewer = Challenge {
        disk_serials: vec!["ROOT-n1".into()],
        ..asked.clone()
    };
    assert!(
        world
            .refusal(&wipe, asked.permit, Some(fewer))
            .await
            .starts_with("the node would write")
    );
    world.grant(&wipe, &asked).await;
    world.agent.work(&wipe).await.unwrap();
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn a_wipe_that_leaves_a_disk_out_is_none() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.release("n1").await.expect(202);
    let wipe = world.until_leased("n1", "wipe").await;
    let wiped = |serial: &str, verified_blocks| WipedDisk {
        serial: serial.into(),
        method: WipeMethod::Discard,
        bytes: 1,
        verified_blocks,
    };
    let disks = vec![
        wiped("ROOT-n1", 64),
        wiped("DATA-n1", 0),
        wiped("OTHER", 64),
    ];
    world
        .agent
        .report(
            wipe.id,
            wipe.attempt,
            Outcome::Succeeded {
                result: JobResult::Wiped { disks },
            },
        )
        .await
        .unwrap();
    world.engine().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "unsanitised: no block was read back of DATA-n1, DECOY-n1"
    );
}
