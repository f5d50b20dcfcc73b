//! Wipes: permits, named disks, markers.

use std::fs;

use ed25519_dalek::SigningKey;
use muster_core::ids::ClaimId;
use muster_core::permits::{self, PermitKind};
use muster_core::wire::node::{Answer, FailureCode, Line, Plan, RunReply, WipeMethod, WorkResult};

use crate::{DISK, Node, waiting};

#[test]
fn a_permitted_wipe_runs_detached_and_is_verified() {
    let node = Node::new();
    let plan = node.plan(7, 1);
    assert_eq!(
        node.run(&plan),
        RunReply::Started {
            job: plan.job,
            attempt: 1
        }
    );
    let challenge = node.challenge(plan.job, 1);
    assert_eq!(
        (challenge.node, challenge.epoch, &challenge.disk_serials),
        (node.id, 7, &vec!["S1".to_owned()])
    );
    assert_eq!(
        fs::read(node.path("dev/vda")).unwrap(),
        vec![0xa5; DISK],
        "nothing is written before the answer"
    );
    let before = fs::metadata(node.spool(plan.job, "lines")).unwrap().len();

    node.grant(&challenge);
    let (result, printed) = node.result(plan.job, usize::try_from(before).unwrap());
    let WorkResult::Wiped { disks } = result else {
        panic!("{result:?}")
    };
    assert_eq!(
        (disks[0].serial.as_str(), disks[0].method, disks[0].bytes),
        ("S1", WipeMethod::Overwrite, DISK as u64)
    );
    assert!(disks[0].verified_blocks >= 512);
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0; DISK]);
    let all = fs::read(node.spool(plan.job, "lines")).unwrap();
    assert_eq!(
        all[usize::try_from(before).unwrap()..],
        printed,
        "attach continues at any offset"
    );
    assert!(
        !node.path(&format!("run/muster/jobs/{}", plan.job)).exists(),
        "plans hold secrets"
    );

    assert_eq!(
        node.run(&plan),
        RunReply::Already {
            job: plan.job,
            attempt: 1
        }
    );
    assert_eq!(
        node.run(&Plan {
            attempt: 2,
            ..plan.clone()
        }),
        RunReply::Already {
            job: plan.job,
            attempt: 2
        }
    );
}

#[test]
fn a_disk_the_wipe_does_not_name_is_told_before_anything_is_written() {
    let node = Node::new();
    node.put("sys/block/vdb/size", (DISK / 512).to_string().as_bytes());
    node.put("sys/block/vdb/device/vendor", b"0x1af4\n");
    let plan = node.plan(1, 1);
    node.run(&plan);
    let failure = node.failure(plan.job);
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("unsanitised", false)
    );
    assert!(
        failure.message.contains("vdb (no serial)"),
        "{}",
        failure.message
    );
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

#[test]
fn no_permit_no_write() {
    let node = Node::new();
    let refused = node.plan(1, 1);
    node.run(&refused);
    node.challenge(refused.job, 1);
    node.answer(
        refused.job,
        &Answer::Refused {
            reason: "the node is protected".into(),
        },
    );
    let failure = node.failure(refused.job);
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("permit_refused", false)
    );
    assert!(failure.message.contains("the node is protected"));

    let forged = node.plan(1, 1);
    node.run(&forged);
    let challenge = node.challenge(forged.job, 1);
    let signature = permits::sign(
        &SigningKey::from_bytes(&[6; 32]),
        PermitKind::Wipe,
        &challenge,
    );
    node.answer(forged.job, &Answer::Granted { signature });
    assert_eq!(node.failure(forged.job).code, FailureCode::PermitRefused);

    let other_kind = node.plan(1, 1);
    node.run(&other_kind);
    let challenge = node.challenge(other_kind.job, 1);
    let signature = permits::sign(&node.key, PermitKind::Image, &challenge);
    node.answer(other_kind.job, &Answer::Granted { signature });
    assert_eq!(
        node.failure(other_kind.job).code,
        FailureCode::PermitRefused
    );
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

#[test]
fn a_disk_that_is_anothers_is_not_even_asked_for() {
    let node = Node::new();
    for (claim, epoch) in [(ClaimId::new(), 3), (node.claim, 9)] {
        node.mark(claim, epoch);
        let plan = node.plan(5, 1);
        node.run(&plan);
        assert_eq!(node.failure(plan.job).code, FailureCode::MarkedInUse);
        assert!(
            !node
                .lines(plan.job)
                .iter()
                .any(|line| matches!(line, Line::Challenge(_)))
        );
    }
    node.mark(node.claim, 4);
    let plan = node.plan(5, 1);
    node.run(&plan);
    node.grant(&node.challenge(plan.job, 1));
    assert!(matches!(
        node.result(plan.job, 0).0,
        WorkResult::Wiped { .. }
    ));
    assert_eq!(
        fs::read(node.path("dev/vda")).unwrap(),
        vec![0; DISK],
        "the marker goes with the data"
    );
}

#[test]
fn the_right_disk_is_looked_for_again_when_the_yes_comes() {
    let node = Node::new();
    let (job, challenge) = waiting(&node, 1);
    // A different disk in the place of a pulled disk.
    node.put("sys/block/vda/serial", b"S9\n");
    node.grant(&challenge);
    let failure = node.failure(job);
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("disk_missing", false)
    );
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}
