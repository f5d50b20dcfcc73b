//! Tests of the shipped gates for errors and partitions of RDMA ports. A tree of files stands for
//! the files of the kernel.

use std::fs;
use std::path::Path;

use muster_core::facts::Facts;
use muster_core::gates::{Gate, GateResult, Verdict};
use muster_core::profiles::{HardwareProfile, Word};

use super::bench::{plan, profile, run_in};
use super::dcgm::shipped;
use crate::gates::window::CHANGE;

/// Makes or changes a tree of files.
type Tree = fn(&Path);

const COUNTERS: [&str; 5] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
];

fn write(root: &Path, port: &str, file: &str, text: &str) {
    let (device, number) = port.split_once('/').expect("a port");
    let path = root
        .join("sys/class/infiniband")
        .join(device)
        .join("ports")
        .join(number)
        .join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, format!("{text}\n")).expect("a file");
}

/// Writes an active InfiniBand port. All counters of the port are 3.
fn port(root: &Path, name: &str) {
    write(root, name, "link_layer", "InfiniBand");
    write(root, name, "state", "4: ACTIVE");
    write(root, name, "pkeys/0", "0xffff");
    write(root, name, "pkeys/1", "0x0000");
    for counter in COUNTERS {
        write(root, name, &format!("counters/{counter}"), "3");
    }
}

/// Writes an active port of Soft-RoCE. The port has no error counters.
fn soft(root: &Path) {
    write(root, "rxe0/1", "link_layer", "Ethernet");
    write(root, "rxe0/1", "state", "4: ACTIVE");
    write(root, "rxe0/1", "pkeys/0", "0xffff");
}

fn rail(id: &str) -> Gate {
    let gate = shipped("sweep", id);
    Gate {
        window_s: gate.window_s.map(|_| 1),
        ..gate
    }
}

fn known(keys: &str) -> HardwareProfile {
    let mut profile = profile();
    for (name, value, unit) in [
        ("ib.symbol_errors", 2, "errors"),
        ("ib.link_recoveries", 2, "events"),
        ("ib.rails", 8, "ports"),
    ] {
        let threshold = format!(
            "value = {value}\nunit = \"{unit}\"\nprovenance = \"seed\"\nsource = \"a test\"\n"
        );
        profile.thresholds.insert(
            name.into(),
            toml::from_str(&threshold).expect("a threshold"),
        );
    }
    let word: Word = toml::from_str(&format!(
        "value = \"{keys}\"\nprovenance = \"seed\"\nsource = \"a test\"\n"
    ))
    .expect("a word");
    profile.words.insert("ib.pkeys".into(), word);
    profile
}

/// Runs the gate on a tree of files. The tree changes between the two readings of a window.
fn held(root: &Path, gate: Gate, meanwhile: Tree) -> GateResult {
    let mut plan = plan(vec![gate]);
    plan.profile = known("0x8001 0xffff");
    let tree = root.to_owned();
    CHANGE.set(Some(Box::new(move || meanwhile(&tree))));
    let results = run_in(root, &plan, &Facts::default());
    // A gate without a second reading does not use the change.
    CHANGE.set(None);
    results.expect("a run").remove(0)
}

#[test]
fn a_port_whose_errors_grow_is_named_and_what_they_stood_at_is_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    (0..8).for_each(|rail| port(root, &format!("mlx5_{rail}/1")));
    soft(root);
    let quiet = held(root, rail("ib.counters"), |_| ());
    assert_eq!(quiet.verdict, Verdict::Pass, "{}", quiet.reason);

    let noisy = held(root, rail("ib.counters"), |root| {
        write(root, "mlx5_2/1", "counters/symbol_error", "6");
        write(root, "mlx5_7/1", "counters/symbol_error", "5");
    });
    assert_eq!(noisy.verdict, Verdict::Fail, "{}", noisy.reason);
    assert!(
        noisy.reason.contains("grew from 3 to 6"),
        "{}",
        noisy.reason
    );
    let failed = noisy
        .measured
        .iter()
        .filter(|one| one.verdict == Verdict::Fail)
        .map(|one| one.entity.as_str());
    assert_eq!(
        failed.collect::<Vec<_>>(),
        ["mlx5_2/1"],
        "the other one's two are borne"
    );
    // The ninth port is no rail. The same limits apply to the port.
    port(root, "mlx5_8/1");
    let downed = held(root, rail("ib.counters"), |root| {
        write(root, "mlx5_8/1", "counters/link_downed", "4")
    });
    assert_eq!(downed.verdict, Verdict::Fail, "{}", downed.reason);
}

#[test]
fn what_does_not_count_is_never_a_pass() {
    let broken: [(&str, Tree); 5] = [
        ("no RDMA device", |_| ()),
        ("no RDMA port counts errors", soft),
        ("stands at its end", |root| {
            port(root, "mlx5_0/1");
            write(root, "mlx5_0/1", "counters/link_downed", "255");
        }),
        ("symbol_error is \"N/A\"", |root| {
            port(root, "mlx5_0/1");
            write(root, "mlx5_0/1", "counters/symbol_error", "N/A");
        }),
        ("does not tell link_downed", |root| {
            port(root, "mlx5_0/1");
            fs::remove_file(root.join("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"))
                .expect("gone");
        }),
    ];
    for (why, tree) in broken {
        let folder = tempfile::tempdir().expect("a folder");
        tree(folder.path());
        let result = held(folder.path(), rail("ib.counters"), |_| ());
        assert_eq!(result.verdict, Verdict::Error, "{why}: {}", result.reason);
        assert!(result.reason.contains(why), "{why} in {}", result.reason);
    }
    let folder = tempfile::tempdir().expect("a folder");
    (0..7).for_each(|rail| port(folder.path(), &format!("mlx5_{rail}/1")));
    let lacking = held(folder.path(), rail("ib.counters"), |_| ());
    assert_eq!(lacking.verdict, Verdict::Error, "{}", lacking.reason);
    assert!(
        lacking
            .reason
            .contains("measured 7 times, expected at least 8"),
        "{}",
        lacking.reason
    );
    // A port appears within the window.
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    (0..8).for_each(|rail| port(root, &format!("mlx5_{rail}/1")));
    let come = held(root, rail("ib.counters"), |root| port(root, "mlx5_8/1"));
    assert_eq!(come.verdict, Verdict::Error, "{}", come.reason);
    assert!(
        come.reason.contains("do not tell of the same"),
        "{}",
        come.reason
    );
}

#[test]
fn retries_count_where_a_driver_tells_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    port(root, "mlx5_0/1");
    port(root, "mlx5_1/1");
    assert_eq!(
        held(root, rail("ib.retries"), |_| ()).verdict,
        Verdict::Error,
        "no driver tells them"
    );
    write(root, "mlx5_0/1", "hw_counters/rnr_nak_retry_err", "7");
    assert_eq!(
        held(root, rail("ib.retries"), |_| ()).verdict,
        Verdict::Pass
    );
    let spent = held(root, rail("ib.retries"), |root| {
        write(root, "mlx5_0/1", "hw_counters/rnr_nak_retry_err", "8")
    });
    assert_eq!(spent.verdict, Verdict::Fail, "{}", spent.reason);
    assert!(
        spent.reason.contains("mlx5_0/1 grew from 7 to 8"),
        "{}",
        spent.reason
    );
}

#[test]
fn every_active_port_is_in_the_sites_partitions() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    soft(root);
    let verdict = || {
        let result = held(root, rail("ib.pkeys"), |_| ());
        (result.verdict, result.reason)
    };
    assert!(
        matches!(verdict(), (Verdict::Error, why) if why.contains("no InfiniBand port is active"))
    );
    for rail in ["mlx5_0/1", "mlx5_1/1"] {
        port(root, rail);
        write(root, rail, "pkeys/5", "0x8001");
    }
    assert_eq!(verdict().0, Verdict::Pass);
    // A port that is down lacks a partition of the site. The gate ignores the port.
    port(root, "mlx5_2/1");
    write(root, "mlx5_2/1", "state", "1: DOWN");
    assert_eq!(verdict().0, Verdict::Pass);
    write(root, "mlx5_2/1", "state", "4: ACTIVE");
    let (failed, why) = verdict();
    assert_eq!(failed, Verdict::Fail);
    assert!(
        why.contains("0x8001 0xffff (mlx5_0/1, mlx5_1/1); 0xffff (mlx5_2/1)"),
        "{why}"
    );
    for broken in ["65535", "0xfffff", ""] {
        write(root, "mlx5_2/1", "pkeys/0", broken);
        assert_eq!(verdict().0, Verdict::Error, "{broken:?}");
    }
    write(root, "mlx5_2/1", "pkeys/0", "0x0000");
    assert!(
        matches!(verdict(), (Verdict::Error, why) if why.contains("mlx5_2/1 is in no partition"))
    );
}

#[test]
fn a_site_that_names_no_partitions_asks_for_none() {
    let folder = tempfile::tempdir().expect("a folder");
    port(folder.path(), "mlx5_0/1");
    let result = run_in(
        folder.path(),
        &plan(vec![rail("ib.pkeys")]),
        &Facts::default(),
    )
    .expect("a run")
    .remove(0);
    assert_eq!(result.verdict, Verdict::Skipped, "{}", result.reason);
}
