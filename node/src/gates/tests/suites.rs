//! What the repository ships must be usable as it is.

use muster_core::facts::Facts;
use muster_core::gates::{Limit, lint};
use muster_core::profiles::HardwareProfile;

use super::bench::{nvme, profile, shipped};
use crate::gates::command::{self, Wanted};

#[test]
fn shipped_suites_pass_the_linter_and_find_their_thresholds() {
    assert_eq!(lint(&shipped()), Vec::<String>::new());
    let own = ["sockets", "cores_per_socket", "memory_mib", "nics", "disks"];
    let known = |profile: &HardwareProfile, name: &str| {
        own.contains(&name) || profile.thresholds.contains_key(name)
    };
    for gate in &shipped().gates {
        let limits = gate
            .criteria
            .iter()
            .filter_map(|criterion| match &criterion.limit {
                Limit::Text(text) => text.strip_prefix("profile:"),
                Limit::Number(_) => None,
            });
        let count = gate
            .count
            .as_deref()
            .and_then(|count| count.strip_prefix("profile:"));
        for name in limits.chain(count) {
            assert!(
                known(&profile(), name),
                "{}: the shipped profile lacks {name}",
                gate.id
            );
        }
    }
    let again: Vec<String> = shipped()
        .gates
        .into_iter()
        .filter(|gate| gate.after_reboot)
        .map(|gate| gate.id)
        .collect();
    assert_eq!(
        again,
        [
            "inventory.facts",
            "disk.smart",
            "disk.sata",
            "software.packages",
            "software.kernel",
            "software.services",
            "software.dkms",
            "storage.mounts"
        ]
    );
}

#[test]
fn the_shipped_profile_picks_the_root_disk_of_the_virtual_rack() {
    let disk = |serial| nvme("nvme", Some(serial));
    let facts = Facts {
        disks: vec![disk("MUSTER-NVME-B01"), disk("MUSTER-NVME-A01")],
        ..Facts::default()
    };
    assert_eq!(profile().root_disk(&facts), Ok("MUSTER-NVME-A01"));
}

/// Without what it was locked to, nothing of stage software can be told by hand, and no later stage is run.
#[test]
fn a_locked_stack_can_be_given_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("stack.toml");
    let digest = muster_core::values::Digest::of(b"image");
    let bare = "version = \"1\"\nimage = \"debian-12\"\nkernel_args = [\"quiet\"]\n[packages]\nchrony = \"4.3-2\"\n";
    let locked = format!(
        "{bare}[lock]\nimage_digest = \"{digest}\"\narch = \"amd64\"\n[[lock.packages]]\nname = \"chrony\"\nversion = \"4.3-2\"\n\
         arch = \"amd64\"\nsize = 9\nsha256 = \"{digest}\"\nfilename = \"chrony.deb\"\n"
    );
    let asked = || {
        let place = path.display().to_string();
        let words = [
            "--suite",
            "admit-cpu",
            "--profile",
            "virtual-node",
            "--stack",
            &place,
        ]
        .map(String::from);
        command::parse(&words)
    };
    std::fs::write(&path, bare).expect("written");
    let refused = asked().err().expect("no lock");
    assert!(
        refused.message.contains("muster stack lock"),
        "{}",
        refused.message
    );
    std::fs::write(&path, &locked).expect("written");
    let Ok(Wanted::Run { plan, .. }) = asked() else {
        panic!("it is a locked stack")
    };
    let stack = plan.stack.expect("a stack");
    assert_eq!(
        (
            stack.packages[0].name.as_str(),
            stack.kernel_args.as_slice()
        ),
        ("chrony", &["quiet".to_owned()][..])
    );
}
