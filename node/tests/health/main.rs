//! Tests of `muster-node health` in the prolog of a scheduler. The tests check exit codes, the
//! stored verdict, and a limited answer time while a tool hangs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../programs/mod.rs"]
mod programs; // Programs that an image ships for gates
mod slurm; // The kernel's log, and drains in Slurm

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use muster_core::gates::Suite;
use muster_core::profiles::HardwareProfile;
use muster_core::wire::node::GatePlan;

const SAT: &str = include_str!("../../fixtures/stressapptest-1.0.6.txt");
const PROFILE: &str = include_str!("../../../suites/profiles/virtual-node.toml");
const REACHED: u32 = 10;
const MISSED: u32 = 99_999_999;

/// A node in a temporary folder. The node's own `bin` folder is first in `PATH`.
struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["proc", "var/lib/muster", "bin"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let node = Self { root };
        node.up(1000);
        node
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn up(&self, seconds: u32) {
        std::fs::write(
            self.path().join("proc/uptime"),
            format!("{seconds}.25 4000.00\n"),
        )
        .unwrap();
    }

    /// Writes the server's request: a suite with a single gate. The gate runs `argv`.
    fn asked(&self, argv: &[&str], limit: u32, more: &str) {
        self.asked_for(30, argv, limit, more);
    }

    /// Writes the same request as `asked`, with a timeout for the gate. The image ships the program;
    /// a program of the node's own `bin` folder comes first.
    fn asked_for(&self, timeout_s: u32, argv: &[&str], limit: u32, more: &str) {
        let own = self.path().join("bin").join(argv[0]);
        let program = match own.exists() {
            true => own.to_string_lossy().into_owned(),
            false => argv[0].to_owned(),
        };
        let tool = programs::ship(self.path(), &program);
        let argv = [&[tool.as_str()][..], &argv[1..]].concat();
        let text = format!(
            "name = \"smoke\"\nversion = \"1\"\n[[gates]]\nid = \"memory\"\ntitle = \"t\"\nstage = \"inventory\"\nparser = \"stressapptest\"\n\
             timeout_s = {timeout_s}\nfinding = \"Replace the module.\"\nargv = {argv:?}\n\
             criteria = [{{ metric = \"memory.bandwidth\", op = \">=\", limit = {limit}, unit = \"MB/s\" }}]\n{more}"
        );
        self.requested(&text);
    }

    /// Writes the server's request with the given suite.
    fn requested(&self, text: &str) {
        let suite: Suite = toml::from_str(text).unwrap();
        let profile: HardwareProfile = toml::from_str(PROFILE).unwrap();
        let plan = GatePlan {
            suite,
            profile,
            only: vec![],
            stack: None,
            variables: [("former_gates".into(), String::new())].into(),
            in_use: true,
            protected: false,
            waived: vec![],
            waived_until: [].into(),
            health: None,
            xid: None,
            firmware: Some(vec![]),
        };
        let plan = serde_json::to_vec(&plan).unwrap();
        std::fs::write(self.path().join("var/lib/muster/health.json"), plan).unwrap();
    }

    /// Waives the gate `memory` of the request until a time. An older server sends no end of a
    /// waiver.
    fn waived(&self, until: Option<&str>) {
        let path = self.path().join("var/lib/muster/health.json");
        let mut plan: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        plan["waived"] = serde_json::json!(["memory"]);
        if let Some(until) = until {
            plan["waived_until"] = serde_json::json!({ "memory": until });
        }
        std::fs::write(path, plan.to_string()).unwrap();
    }

    /// Writes the same request as `asked`. The tool prints a recording.
    fn answers(&self, recording: &str, limit: u32) {
        let answer = self.path().join("answer");
        std::fs::write(&answer, recording).unwrap();
        self.asked(&["cat", answer.to_str().unwrap()], limit, "");
    }

    /// Writes a request with a gate for the kernel's log, and writes the records of the log.
    fn looks_at_the_log(&self, records: &str) {
        self.requested(
            "name = \"smoke\"\nversion = \"1\"\n[[gates]]\nid = \"kernel.new\"\ntitle = \"t\"\nstage = \"inventory\"\n\
             parser = \"kernel-log-new\"\ntimeout_s = 30\nfinding = \"Look at it.\"\n\
             criteria = [{ metric = \"kernel.xid_fatal\", op = \"==\", limit = 0, unit = \"events\" }]\n",
        );
        for folder in ["proc/sys/kernel/random", "dev"] {
            std::fs::create_dir_all(self.path().join(folder)).unwrap();
        }
        let boot = self.path().join("proc/sys/kernel/random/boot_id");
        std::fs::write(boot, "6f7c1d0e-0000-4000-8000-000000000001\n").unwrap();
        std::fs::write(self.path().join("dev/kmsg"), records).unwrap();
    }

    /// Writes a program of the node: a shell script with the given lines.
    fn program(&self, name: &str, lines: &str) {
        let path = self.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }

    fn health(&self, arguments: &[&str]) -> (i32, String) {
        let path = format!(
            "{}:{}",
            self.path().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-node"));
        command
            .arg("health")
            .args(arguments)
            .env("MUSTER_ROOT", self.path())
            .env("PATH", path);
        let Output {
            status,
            stdout,
            stderr,
        } = command.env("SLURMD_NODENAME", "n7").output().unwrap();
        (
            status.code().unwrap(),
            String::from_utf8([stdout, stderr].concat()).unwrap(),
        )
    }
}

#[test]
fn a_node_is_unfit_for_what_was_measured_and_for_nothing_else() {
    let node = Node::new();
    let (code, said) = node.health(&[]);
    assert!(
        code == 0 && said.contains("has no smoke suite"),
        "{code} {said}"
    );
    assert_eq!(node.health(&["--strict"]).0, 1);
    node.answers(SAT, REACHED);
    let (code, said) = node.health(&[]);
    assert!(
        code == 0 && said.starts_with("pass: 1 gates pass"),
        "{code} {said}"
    );
    node.answers(SAT, MISSED);
    let (code, said) = node.health(&[]);
    assert!(
        code == 1 && said.starts_with("fail: gate memory: memory.bandwidth"),
        "{code} {said}"
    );
    // The node's uptime is shorter than the gate's settle time.
    let answer = node.path().join("answer");
    node.asked(
        &["cat", answer.to_str().unwrap()],
        MISSED,
        "settle_s = 300\n",
    );
    node.up(299);
    let (code, said) = node.health(&[]);
    assert!(
        code == 0
            && said.contains("the node booted 299 s ago, and the gate may need 300 s after a boot"),
        "{code} {said}"
    );
    assert_eq!(node.health(&["--strict"]).0, 1);
    node.up(300);
    assert_eq!(node.health(&[]).0, 1);
    // First the tool gives no answer, as after a crash. Then the tool is not installed.
    node.answers("", REACHED);
    assert_eq!((node.health(&[]).0, node.health(&["--strict"]).0), (0, 1));
    node.asked(&["no-such-tool"], REACHED, "");
    assert_eq!((node.health(&[]).0, node.health(&["--strict"]).0), (0, 1));
    std::fs::write(node.path().join("var/lib/muster/health.json"), "{").unwrap();
    assert_eq!(
        (node.health(&[]).0, node.health(&["--strict"]).0),
        (0, 1),
        "a damaged request"
    );
    for wrong in [
        &["--within", "0"][..],
        &["--within", "56"],
        &["--max-age"],
        &["--what"],
    ] {
        assert_eq!(node.health(wrong).0, 64, "{wrong:?}");
    }
}

#[test]
fn a_waiver_counts_until_its_end_and_one_without_an_end_not_at_all() {
    let node = Node::new();
    for (until, code) in [
        (Some("2999-01-01T00:00:00Z"), 0),
        (Some("2026-01-01T00:00:00Z"), 1),
        (None, 1),
    ] {
        node.answers(SAT, MISSED);
        node.waived(until);
        assert_eq!(node.health(&["--strict"]).0, code, "{until:?}");
    }
    // The waiver of a gate also covers a hanging tool.
    node.asked_for(1, &["sleep", "60"], REACHED, "on_timeout = \"fail\"\n");
    node.waived(Some("2999-01-01T00:00:00Z"));
    assert_eq!(node.health(&["--strict", "--within", "30"]).0, 0);
}

#[test]
fn a_fresh_verdict_is_told_again_and_no_other() {
    let node = Node::new();
    node.answers(SAT, REACHED);
    assert_eq!(node.health(&[]).0, 0);
    // The tool's answer changes, but the check does not run the tool.
    std::fs::write(node.path().join("answer"), "").unwrap();
    node.up(1059);
    let (code, said) = node.health(&["--strict"]);
    assert!(code == 0 && said.contains("(59 s ago)"), "{code} {said}");
    assert_eq!(node.health(&["--strict", "--max-age", "0"]).0, 1, "anew");
    // A result without an answer is not stored.
    std::fs::write(node.path().join("answer"), SAT).unwrap();
    assert_eq!(node.health(&["--strict"]).0, 0);
    std::fs::write(node.path().join("answer"), "").unwrap();
    node.up(1119);
    assert_eq!(node.health(&["--strict"]).0, 1, "60 seconds are over");
    std::fs::write(node.path().join("answer"), SAT).unwrap();
    assert_eq!(node.health(&["--strict"]).0, 0);
    node.up(3);
    std::fs::write(node.path().join("answer"), "").unwrap();
    assert_eq!(node.health(&["--strict"]).0, 1, "of the boot before");
    // A new request of the server invalidates the stored verdict.
    std::fs::write(node.path().join("answer"), SAT).unwrap();
    assert_eq!(node.health(&["--strict"]).0, 0);
    node.answers(SAT, MISSED);
    assert_eq!(node.health(&[]).0, 1);
}

#[test]
fn an_answer_comes_in_time_whatever_hangs() {
    let node = Node::new();
    node.asked(&["sleep", "60"], REACHED, "");
    let began = Instant::now();
    let (code, said) = node.health(&["--within", "3"]);
    assert!(
        code == 0 && said.starts_with("unknown: gate memory: did not end within 1 s"),
        "{code} {said}"
    );
    // The limit is half of the tool's time, so the answer does not wait for the tool.
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    // With `on_timeout = "fail"`, a hang is a fault. The hang must last for the gate's full
    // timeout, because a slow tool needs the time.
    node.asked(&["sleep", "60"], REACHED, "on_timeout = \"fail\"\n");
    let (code, said) = node.health(&["--within", "3"]);
    assert!(
        code == 0 && said.starts_with("unknown: gate memory: did not end within 1 s"),
        "{code} {said}"
    );
    node.asked_for(5, &["sleep", "60"], REACHED, "on_timeout = \"fail\"\n");
    let (code, said) = node.health(&["--within", "30"]);
    assert!(
        code == 1 && said.starts_with("fail: gate memory: did not end within 5 s"),
        "{code} {said}"
    );
    // A single tool sleeps for 60 seconds.
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

/// nvidia-smi that says a GPU is lost is no crashed tool. Without a driver, no GPU was asked.
#[test]
fn a_lost_gpu_takes_a_node_out_and_a_missing_driver_does_not() {
    let node = Node::new();
    let lost = "Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost.";
    let silent = "NVIDIA-SMI has failed because it could not communicate with the driver.";
    for (sentence, exit, code, verdict) in [(lost, 15, 1, "fail"), (silent, 9, 0, "unknown")] {
        node.program("smi", &format!("echo '{sentence}'; exit {exit}"));
        let own = node.path().join("bin/smi");
        let tool = programs::ship(node.path(), &own.to_string_lossy());
        node.requested(&format!(
            "name = \"smoke\"\nversion = \"1\"\n[[gates]]\nid = \"gpu.inventory\"\ntitle = \"t\"\nstage = \"inventory\"\n\
             parser = \"nvidia-smi-xml\"\ntimeout_s = 30\nfinding = \"Look for it.\"\nargv = [{tool:?}]\n\
             criteria = [{{ metric = \"gpu.count\", op = \"==\", limit = 1, unit = \"GPUs\" }}]\n"
        ));
        let (found, said) = node.health(&["--max-age", "0"]);
        assert_eq!(found, code, "{said}");
        let begin = format!("{verdict}: gate gpu.inventory: ");
        assert!(
            said.starts_with(&begin) && said.contains(sentence),
            "{said}"
        );
    }
}

#[test]
fn no_vendors_tool_runs_before_the_gates() {
    let node = Node::new();
    // The GPU has a driver, so a full inventory runs nvidia-smi. The program nvidia-smi hangs.
    let device = node.path().join("sys/bus/pci/devices/0000:1b:00.0");
    std::fs::create_dir_all(&device).unwrap();
    for (file, text) in [
        ("class", "0x030200\n"),
        ("vendor", "0x10de\n"),
        ("device", "0x2335\n"),
    ] {
        std::fs::write(device.join(file), text).unwrap();
    }
    std::os::unix::fs::symlink("../../../../bus/pci/drivers/nvidia", device.join("driver"))
        .unwrap();
    let asked = node.path().join("asked");
    node.program(
        "nvidia-smi",
        &format!("touch {}; exec sleep 60", asked.display()),
    );
    node.answers(SAT, REACHED);
    let (code, said) = node.health(&["--within", "30", "--strict"]);
    assert!(
        code == 0 && said.starts_with("pass: 1 gates pass"),
        "{code} {said}"
    );
    assert!(!asked.exists(), "no gate asks it");
    // The check reports a gate with the hanging tool.
    node.asked_for(5, &["nvidia-smi"], REACHED, "on_timeout = \"fail\"\n");
    let (code, said) = node.health(&["--within", "30"]);
    assert!(
        code == 1 && said.starts_with("fail: gate memory: did not end within 5 s"),
        "{code} {said}"
    );
    assert!(asked.exists());
}

/// The tool stays in the cgroup of the scheduler, which ends the health check by the cgroup.
#[test]
fn a_tool_of_a_health_check_has_few_open_files_and_stays_in_its_cgroup() {
    let node = Node::new();
    let told = node.path().join("told");
    let lines = "ulimit -Hn; cat /proc/self/oom_score_adj; cat /proc/self/cgroup";
    node.program("probe", &format!("{{ {lines}; }} >{}", told.display()));
    node.asked(&["probe"], REACHED, "");
    let (_, said) = node.health(&[]);
    let told = std::fs::read_to_string(told).expect(&said);
    let mut lines = told.splitn(3, '\n');
    let mut next = || lines.next().expect(&told);
    assert!(next().parse::<u64>().is_ok_and(|most| most <= 65_536));
    assert_eq!(next(), "1000", "it ends before other programs");
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    assert_eq!(next(), own);
}
