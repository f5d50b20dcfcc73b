//! Images: the disks beside the root disk.

use std::fs;

use muster_core::ids::{ClaimId, OperationId, PermitId};
use muster_core::values::{Digest, Mac};
use muster_core::wire::node::{FailureCode, Line, Plan, StaticNetwork, Work, WriteImage};

use crate::{DISK, Node, ended};

/// A node with the data disk `vdb`.
fn node_with_data() -> Node {
    let node = Node::new();
    node.put("sys/block/vdb/size", (DISK / 512).to_string().as_bytes());
    node.put("sys/block/vdb/serial", b"S2\n");
    node.put("sys/block/vdb/device/vendor", b"0x1af4\n");
    node.put("dev/vdb", &vec![0x5a; DISK]);
    node
}

fn image(node: &Node, epoch: i64) -> Plan {
    let image = WriteImage {
        permit: PermitId::new(),
        operation: OperationId::new(),
        claim: node.claim,
        disk_serial: "S1".into(),
        url: "http://127.0.0.1:1/boot/v1/blob/sha256/x".into(),
        digest: Digest::of(b"blob"),
        size: 4,
        raw_digest: Digest::of(b"raw"),
        raw_size: 1 << 20,
        esp_partition: 2,
        root_partition: 3,
        hostname: "n".into(),
        network: StaticNetwork {
            mac: Mac([0; 6]),
            address: "10.77.0.11/24".into(),
            gateway: None,
            dns: vec![],
            hosts: vec![],
            files: vec![],
        },
        user_ca: "ssh-ed25519 AAAA".into(),
        principal: "muster:n:1".into(),
    };
    Plan {
        work: Work::WriteImage(image),
        ..node.plan(epoch, 1)
    }
}

#[test]
fn no_image_is_written_beside_a_disk_of_another_claim() {
    let node = node_with_data();
    // The claim's own disk of an earlier installation, and a disk without a marker.
    node.mark_disk("vdb", node.claim, 4);
    let allowed = image(&node, 5);
    node.run(&allowed);
    node.challenge(allowed.job, 1);
    ended(&node, allowed.job);

    for (claim, epoch) in [(ClaimId::new(), 3), (node.claim, 9)] {
        node.mark_disk("vdb", claim, epoch);
        let before = fs::read(node.path("dev/vdb")).unwrap();
        let refused = image(&node, 5);
        node.run(&refused);
        let failure = node.failure(refused.job);
        assert_eq!(failure.code, FailureCode::MarkedInUse);
        assert!(failure.message.contains("S2"), "{}", failure.message);
        let asked = |line: &Line| matches!(line, Line::Challenge(_));
        assert!(!node.lines(refused.job).iter().any(asked));
        assert_eq!(fs::read(node.path("dev/vdb")).unwrap(), before);
    }
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

#[test]
fn a_data_disk_that_cannot_be_read_is_logged_and_not_written() {
    let node = node_with_data();
    fs::remove_file(node.path("dev/vdb")).unwrap();
    let plan = image(&node, 5);
    node.run(&plan);
    node.challenge(plan.job, 1);
    let told =
        |line: &Line| matches!(line, Line::Log { text, .. } if text.contains("marker of disk S2"));
    assert!(node.lines(plan.job).iter().any(told));
    ended(&node, plan.job);
}
