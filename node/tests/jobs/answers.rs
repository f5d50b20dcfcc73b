//! Answers to a challenge: replayed, late, or signed by a server with a restored database.

use std::fs;
use std::time::Instant;

use muster_core::ids::{ClaimId, NodeId, OperationId, PermitId};
use muster_core::permits::{self, PermitKind};
use muster_core::wire::node::{Answer, Challenge, Failure, FailureCode, Plan, RunReply};
use muster_node::disk::marker;

use crate::{DISK, Node, ended, json, waiting};

#[test]
fn an_answer_that_was_given_to_another_challenge_opens_nothing() {
    let node = Node::new();
    // A granted answer, never delivered: the job was stopped.
    let (former, old) = waiting(&node, 3);
    ended(&node, former);
    type Change = fn(&mut Challenge, &Challenge);
    let changes: [(&str, Change); 9] = [
        ("replayed as it was", |c, old| *c = old.clone()),
        ("replayed under this job's name", |c, old| {
            (c.nonce, c.permit) = (old.nonce.clone(), old.permit)
        }),
        ("of another permit", |c, _| c.permit = PermitId::new()),
        ("of another operation", |c, _| {
            c.operation = OperationId::new()
        }),
        ("of another node", |c, _| c.node = NodeId::new()),
        ("of a later epoch", |c, _| c.epoch += 1),
        ("of an earlier epoch", |c, _| c.epoch -= 1),
        ("of another disk", |c, _| c.disk_serials = vec!["S2".into()]),
        ("of another boot", |c, _| c.boot_id = "before".into()),
    ];
    for (what, change) in changes {
        let (job, challenge) = waiting(&node, 3);
        let mut other = challenge.clone();
        change(&mut other, &old);
        let signature = permits::sign(&node.key, PermitKind::Wipe, &other);
        node.answer(job, &Answer::Granted { signature });
        let failure = node.failure(job);
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            ("permit_refused", false),
            "{what}"
        );
    }
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

#[test]
fn a_yes_that_comes_after_the_jobs_time_is_too_late() {
    let node = Node::new();
    // The job needs time for its challenge, so a slow machine gives more time to the job.
    let started = Instant::now();
    let (former, _) = waiting(&node, 1);
    let slow_s = started.elapsed().as_millis() / 250;
    ended(&node, former);
    let plan = Plan {
        timeout_s: 1 + u64::try_from(slow_s).unwrap(),
        ..node.plan(1, 1)
    };
    node.run(&plan);
    let challenge = node.challenge(plan.job, 1);
    assert_eq!(node.failure(plan.job).code, FailureCode::Deadline);
    let signature = permits::sign(&node.key, PermitKind::Wipe, &challenge);
    let out = node.call(
        &["answer", &plan.job.to_string()],
        &json(&Answer::Granted { signature }),
    );
    assert_eq!(
        serde_json::from_slice::<Failure>(&out.stderr).unwrap().code,
        FailureCode::NoJob
    );
    // The late answer does not reach the next attempt.
    let again = Plan {
        attempt: 2,
        timeout_s: 60,
        ..plan.clone()
    };
    assert_eq!(
        node.run(&again),
        RunReply::Started {
            job: plan.job,
            attempt: 2
        }
    );
    assert_ne!(node.challenge(plan.job, 1).nonce, challenge.nonce);
    ended(&node, plan.job);
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

/// A restored database of the server: the server believes in an epoch behind the node's, or in a
/// claim without data. The key of the server still signs.
#[test]
fn a_server_that_was_put_back_is_refused_though_it_signs() {
    let node = Node::new();
    let (later, _) = waiting(&node, 7);
    ended(&node, later);
    assert_eq!(
        node.run(&node.plan(6, 9)),
        RunReply::Stale {
            epoch: 7,
            attempt: 1
        }
    );
    // A reboot forgets the fence. The marker on the disk still names the owner: a later claim, or
    // the same claim at a later epoch.
    fs::remove_file(node.path("var/lib/muster/fence.json")).unwrap();
    for (claim, epoch) in [(ClaimId::new(), 8), (node.claim, 8)] {
        node.mark(claim, epoch);
        let plan = node.plan(6, 1);
        assert_eq!(
            node.run(&plan),
            RunReply::Started {
                job: plan.job,
                attempt: 1
            }
        );
        assert_eq!(node.failure(plan.job).code, FailureCode::MarkedInUse);
    }
    let mut untouched = vec![0xa5; DISK];
    let sector = usize::try_from(marker::OFFSET).unwrap();
    let disk = fs::read(node.path("dev/vda")).unwrap();
    untouched[sector..sector + marker::LENGTH]
        .copy_from_slice(&disk[sector..sector + marker::LENGTH]);
    assert_eq!(disk, untouched);
}
