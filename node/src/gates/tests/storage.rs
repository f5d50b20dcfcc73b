//! Shared file systems: what the stack mounts must be there, of its type, and every one of them is asked; modules that are built on the node.

use std::path::Path;

use muster_core::facts::Facts;
use muster_core::gates::{Gate, GateResult, Suite, Verdict};
use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::GatePlan;

use super::bench::{plan, run_in};

const SUITE: &str = include_str!("../../../../suites/storage.toml");

fn shipped(id: &str) -> Gate {
    let suite: Suite = toml::from_str(SUITE).expect("the shipped suite");
    suite
        .gates
        .into_iter()
        .find(|gate| gate.id == id)
        .expect("a shipped gate")
}

/// A stack that mounts by these units.
fn stack(units: &[&str]) -> ConvergePlan {
    let (digest, node) = (
        format!("sha256:{}", "a".repeat(64)),
        "0198c0de-0000-7000-8000-000000000001",
    );
    let service =
        |unit: &&str| serde_json::json!({ "name": unit, "enabled": true, "running": true });
    let services: Vec<_> = units.iter().map(service).collect();
    serde_json::from_value(serde_json::json!({
        "lock": digest, "repository": "http://a/b", "absent": [], "files": [], "sysctl": {}, "modules_load": [], "packages": [],
        "modules_blacklist": [], "kernel_args": [], "limits": [], "services": services, "principal": "muster:a:1", "user_ca": "a b",
        "marker": { "protocol": 1, "node": node, "claim": node, "epoch": 1, "image": digest },
    }))
    .expect("a stack")
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

fn one(root: &Path, gate: Gate, units: &[&str]) -> GateResult {
    let plan = GatePlan {
        stack: Some(stack(units)),
        ..plan(vec![gate])
    };
    run_in(root, &plan, &Facts::default())
        .expect("results")
        .remove(0)
}

/// Lines of /proc/self/mounts as they were posted publicly, from nodes with each file system; only the directory is ours.
const MOUNTS: [(&str, &str); 4] = [
    (
        "nfs",
        "20.20.20.43:/data/k8s /shared nfs4 rw,relatime,vers=4.1,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=20.20.20.27,local_lock=none,addr=20.20.20.43 0 0",
    ),
    (
        "lustre",
        "192.168.255.3@o2ib:192.168.255.4@o2ib:/bwlfs1 /shared lustre rw,checksum,flock,nouser_xattr,lruresize,lazystatfs,nouser_fid2path,verbose,encrypt 0 0",
    ),
    (
        "wekafs",
        "new_fs /shared wekafs rw,relatime,writecache,inode_bits=64,dentry_max_age_positive=1000,dentry_max_age_negative=0 0 0",
    ),
    ("gpfs", "store04 /shared gpfs rw,relatime 0 0"),
];
const ROOT: &str = "/dev/vda2 / ext4 rw,relatime 0 0\n";

#[test]
fn what_the_stack_mounts_must_be_there_of_its_type_and_writable() {
    for (kind, line) in MOUNTS {
        let root = tempfile::tempdir().expect("a folder");
        let verdict = |table: &str, unit: &str| {
            write(root.path(), "proc/self/mounts", &format!("{ROOT}{table}\n"));
            write(root.path(), "etc/systemd/system/shared.mount", unit);
            let result = one(
                root.path(),
                shipped("storage.mounts"),
                &["chrony", "shared.mount"],
            );
            (result.verdict, result.reason)
        };
        let unit = format!(
            "[Unit]\nDescription=x\n[Mount]\nWhat=a\nWhere=/shared\nType={kind}\nOptions=_netdev\n"
        );
        assert_eq!(
            verdict(line, &unit).0,
            Verdict::Pass,
            "{kind}: {}",
            verdict(line, &unit).1
        );
        let wrong: [(&str, String, String); 5] = [
            (
                "/shared is not mounted",
                line.replace("/shared", "/other"),
                unit.clone(),
            ),
            (
                "cannot be written",
                line.replace(" rw,", " ro,"),
                unit.clone(),
            ),
            ("wanted ceph", line.into(), unit.replace(kind, "ceph")),
            (
                "/shared is tmpfs",
                format!("{line}\ntmpfs /shared tmpfs rw 0 0"),
                unit.clone(),
            ),
            (
                "/shared is ext4",
                "/dev/vda3 /shared ext4 rw,relatime 0 0".into(),
                unit.clone(),
            ),
        ];
        for (says, table, unit) in wrong {
            let (verdict, reason) = verdict(&table, &unit);
            assert_eq!(verdict, Verdict::Fail, "{kind}: {says}: {reason}");
            assert!(reason.contains(says), "{kind}: {says}: {reason}");
        }
        let readonly = unit.replace("_netdev", "_netdev,ro");
        assert_eq!(
            verdict(&line.replace(" rw,", " ro,"), &readonly).0,
            Verdict::Pass,
            "{kind}: it is meant so"
        );
        for (table, unit) in [(line, "[Mount]\nWhat=a\n"), ("half a line", unit.as_str())] {
            assert_eq!(
                verdict(table, unit).0,
                Verdict::Error,
                "{kind}: {table} {unit}"
            );
        }
    }
}

#[test]
fn a_stack_that_mounts_nothing_is_no_pass() {
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), "proc/self/mounts", ROOT);
    for id in ["storage.mounts", "storage.readback", "storage.bandwidth"] {
        let optional = Gate {
            required: false,
            ..shipped(id)
        };
        let result = one(root.path(), optional, &["chrony"]);
        assert_eq!(result.verdict, Verdict::Skipped, "{id}: {}", result.reason);
        let required = one(
            root.path(),
            Gate {
                required: true,
                ..shipped(id)
            },
            &["chrony"],
        );
        assert_eq!(
            required.verdict,
            Verdict::Error,
            "{id}: {}",
            required.reason
        );
    }
    // Two units, of which one has no file that says its type.
    write(
        root.path(),
        "proc/self/mounts",
        &format!("{ROOT}a /mnt/my\\040data nfs4 rw 0 0\n"),
    );
    let unit = "mnt-my\\x20data.mount";
    assert_eq!(
        one(root.path(), shipped("storage.mounts"), &[unit]).verdict,
        Verdict::Error
    );
    write(
        root.path(),
        &format!("run/systemd/generator/{unit}"),
        "[Mount]\nType=nfs\n",
    );
    assert_eq!(
        one(root.path(), shipped("storage.mounts"), &[unit]).verdict,
        Verdict::Pass
    );
}

#[test]
fn every_mount_of_the_stack_is_written_and_read_back() {
    let root = tempfile::tempdir().expect("a folder");
    let answer = include_str!("../../../fixtures/fio-3.33-write-verify.json");
    let written: serde_json::Value = serde_json::from_str(answer).expect("JSON");
    let bytes = written["jobs"][0]["write"]["io_bytes"]
        .as_u64()
        .expect("bytes")
        .to_string();
    let mut gate = shipped("storage.readback");
    // Answers wherever it is asked to write, without a file system to write to.
    assert!(
        gate.argv
            .iter()
            .any(|argument| argument == "--filename=${each}/.muster-${hostname}")
    );
    gate.argv = vec![
        "printf".into(),
        "%.0s%s".into(),
        "${each}/.muster".into(),
        answer.replace("${", ""),
    ];
    gate.output = None;
    gate.criteria
        .iter_mut()
        .filter(|criterion| criterion.metric == "fio.written")
        .for_each(|criterion| {
            criterion.limit = muster_core::gates::Limit::Number(bytes.parse().expect("a number"));
        });
    let result = one(
        root.path(),
        gate.clone(),
        &["shared.mount", "mnt-scratch.mount"],
    );
    assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
    let mut asked: Vec<&str> = result
        .measured
        .iter()
        .map(|measured| measured.entity.as_str())
        .collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked, ["/mnt/scratch", "/shared"]);
    let busy = GatePlan {
        stack: Some(stack(&["shared.mount"])),
        in_use: true,
        ..plan(vec![gate.clone()])
    };
    let skipped = run_in(root.path(), &busy, &Facts::default())
        .expect("results")
        .remove(0);
    assert!(
        skipped.verdict == Verdict::Skipped && skipped.reason.contains("drained"),
        "{}",
        skipped.reason
    );
    // A server that hangs is the fault itself.
    gate.timeout_s = 1;
    gate.argv = ["tail", "--follow", "--retry", "${each}/nothing"]
        .map(String::from)
        .to_vec();
    assert_eq!(
        one(root.path(), gate, &["shared.mount"]).verdict,
        Verdict::Fail
    );
}

#[test]
fn without_a_module_to_build_there_is_nothing_to_hold() {
    let root = tempfile::tempdir().expect("a folder");
    let result = one(root.path(), shipped("software.dkms"), &[]);
    assert!(
        result.verdict == Verdict::Skipped && result.reason.contains("dkms has no module"),
        "{}",
        result.reason
    );
    std::fs::create_dir_all(root.path().join("var/lib/dkms/demo")).expect("a folder");
    write(root.path(), "proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    // There is a module, and no dkms in this root that could tell of it.
    let unknown = one(root.path(), shipped("software.dkms"), &[]);
    assert_eq!(unknown.verdict, Verdict::Error, "{}", unknown.reason);
}
