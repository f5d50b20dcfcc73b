//! `muster-node inventory` over a tree of files as the kernel has them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;

use muster_core::wire::node::Inventory;

fn nic(root: &Path, name: &str, files: &[(&str, &str)]) {
    let folder = root.join("sys/class/net").join(name);
    std::fs::create_dir_all(folder.join("device")).unwrap();
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }
}

/// While it runs, a bond gives its address to all of its members: by that, two cards would be one, and a replaced one would not show.
#[test]
fn members_of_a_bond_are_known_by_their_own_addresses() {
    let root = tempfile::tempdir().unwrap();
    let bonds = "52:54:00:00:00:01";
    for (name, own) in [("eno1", bonds), ("eno2", "52:54:00:00:00:02")] {
        nic(
            root.path(),
            name,
            &[
                ("address", bonds),
                ("bonding_slave/perm_hwaddr", own),
                ("carrier", "1"),
            ],
        );
    }
    nic(
        root.path(),
        "eno3",
        &[("address", "52:54:00:00:00:03"), ("carrier", "0")],
    );
    std::fs::create_dir_all(root.path().join("sys/class/net/bond0")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster-node"));
    let said = command
        .arg("inventory")
        .env("MUSTER_ROOT", root.path())
        .output()
        .unwrap();
    let Inventory { facts, .. } = serde_json::from_slice(&said.stdout).unwrap();
    let seen: Vec<_> = facts
        .nics
        .iter()
        .map(|nic| (nic.name.as_str(), nic.mac.to_string(), nic.link_up))
        .collect();
    let wanted = [
        ("eno1", bonds, true),
        ("eno2", "52:54:00:00:00:02", true),
        ("eno3", "52:54:00:00:00:03", false),
    ];
    assert_eq!(
        seen,
        wanted.map(|(name, mac, up)| (name, mac.to_owned(), up))
    );
}
