//! Images: the disks beside the root disk.

use std::fs;

use muster_core::ids::{ClaimId, OperationId, PermitId};
use muster_core::signatures::{SecretKey, describe_image};
use muster_core::values::{Digest, Mac};
use muster_core::wire::node::{
    FailureCode, Line, Plan, SignedImage, StaticNetwork, Work, WriteImage,
};

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
        signed_image: None,
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

/// The order with a changed image.
fn changed(plan: Plan, change: impl FnOnce(&mut WriteImage)) -> Plan {
    let Work::WriteImage(mut image) = plan.work else {
        panic!("the order writes no image");
    };
    change(&mut image);
    Plan {
        work: Work::WriteImage(image),
        ..plan
    }
}

/// The order with a signature of the key over the image, and the key as a trusted key.
fn signed(plan: Plan, key: &SecretKey) -> Plan {
    changed(plan, |image| {
        let manifest = serde_json::json!({
            "name": "debian-13", "version": "1", "os": "debian", "os_version": "13", "arch": "amd64",
            "digest": image.digest, "size": image.size, "raw_digest": image.raw_digest, "raw_size": image.raw_size,
            "kernel": "6.12.0-1-amd64", "packages": [],
            "partitions": { "esp": image.esp_partition, "root": image.root_partition },
        });
        let statement = describe_image(&serde_json::from_value(manifest).unwrap());
        image.signed_image = Some(SignedImage {
            signature: key.sign(&statement),
            statement,
            keys: vec![key.public().to_string()],
        });
    })
}

/// Runs the job until the node asks for the permit.
fn asks_for_permit(node: &Node, plan: &Plan) {
    node.run(plan);
    node.challenge(plan.job, 1);
    ended(node, plan.job);
}

/// Runs the job, which ends without a question and without a written byte.
fn refuses_image(node: &Node, plan: &Plan) {
    node.run(plan);
    let failure = node.failure(plan.job);
    assert_eq!(
        failure.code,
        FailureCode::ImageUnsigned,
        "{}",
        failure.message
    );
    let asked = |line: &Line| matches!(line, Line::Challenge(_));
    assert!(!node.lines(plan.job).iter().any(asked));
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

#[test]
fn another_image_than_the_signed_one_is_refused_before_the_permit() {
    let node = Node::new();
    let (key, stranger) = (
        SecretKey::from_seed(&[7; 32]),
        SecretKey::from_seed(&[8; 32]),
    );
    asks_for_permit(&node, &image(&node, 5));
    asks_for_permit(&node, &signed(image(&node, 5), &key));

    let other = changed(signed(image(&node, 5), &key), |image| {
        image.digest = Digest::of(b"other");
    });
    refuses_image(&node, &other);
    let untrusted = changed(signed(image(&node, 5), &stranger), |image| {
        let signed = image.signed_image.as_mut().unwrap();
        signed.keys = vec![key.public().to_string()];
    });
    refuses_image(&node, &untrusted);
}

#[test]
fn a_live_image_with_keys_trusts_no_other_key() {
    let node = Node::new();
    let (key, stranger) = (
        SecretKey::from_seed(&[7; 32]),
        SecretKey::from_seed(&[8; 32]),
    );
    let keys = key.public().render_file();
    node.put("etc/muster/image-keys", keys.as_bytes());
    asks_for_permit(&node, &signed(image(&node, 5), &key));

    refuses_image(&node, &image(&node, 5));
    refuses_image(&node, &signed(image(&node, 5), &stranger));
}
