//! muster-node of the version before runs today's plans. Both versions end a job of the other
//! version, as after an agent's update. The interface is the agent's: a plan on stdin, JSON lines
//! on stdout. The node is a folder under `MUSTER_ROOT`, and the disk is a file.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use ed25519_dalek::SigningKey;
use muster_core::facts::Firmware;
use muster_core::gates::{PROFILES, SUITES, Shipped, Suite};
use muster_core::ids::{ClaimId, JobId, NodeId, OperationId, PermitId};
use muster_core::permits::{self, PermitKind};
use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{
    Answer, Challenge, Inventory, Line, Marker, Plan, RunReply, SiteTrust, WipePlan, Work,
    WorkResult,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;

use super::programs;
use super::site::Version;

/// Suites with parsers unknown to the version before.
const NEW_SUITES: [&str; 1] = ["software-gpu"];
const DISK_BYTES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A node in a folder.
struct Node {
    root: TempDir,
    key: SigningKey,
    id: NodeId,
    claim: ClaimId,
}

fn program(version: Version) -> PathBuf {
    match version {
        Version::Before => programs::muster_node(),
        Version::Today => programs::TODAY.into(),
    }
}

impl Node {
    fn new() -> Self {
        let node = Self {
            root: tempfile::tempdir().unwrap(),
            key: SigningKey::from_bytes(&[5; 32]),
            id: NodeId::new(),
            claim: ClaimId::new(),
        };
        let public = node.key.verifying_key();
        let trust = SiteTrust {
            protocol: PROTOCOL,
            permit_public_key: base64::engine::general_purpose::STANDARD.encode(public.as_bytes()),
            user_ca: "ssh-ed25519 AAAA".into(),
            agent_url: "http://127.0.0.1:1/boot/v1".into(),
        };
        node.put("etc/muster/site.json", &to_json(&trust));
        node.put(
            "sys/block/vda/size",
            (DISK_BYTES / 512).to_string().as_bytes(),
        );
        node.put("sys/block/vda/serial", b"S1\n");
        node.put("sys/block/vda/device/vendor", b"0x1af4\n");
        node.put("proc/meminfo", b"MemTotal:        2048000 kB\n");
        node.put("proc/cmdline", b"quiet\n");
        node.put("etc/passwd", b"root:x:0:0::/root:/bin/sh\n");
        node.put("etc/group", b"root:x:0:\n");
        node.put("dev/vda", &vec![0xa5; DISK_BYTES]);
        node
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn command(&self, version: Version, words: &[&str]) -> Command {
        let mut command = Command::new(program(version));
        command
            .args(words)
            .env_clear()
            .env("MUSTER_ROOT", self.root.path())
            // The search path has no tool of the host.
            .env("PATH", self.root.path().join("bin"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a verb to the end, and returns the output.
    fn call(&self, version: Version, words: &[&str], stdin: &[u8]) -> Vec<u8> {
        let mut child = self.command(version, words).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).ok();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version:?} {words:?}: {said}");
        output.stdout
    }

    fn plan(&self, work: Work) -> Plan {
        Plan {
            protocol: PROTOCOL,
            job: JobId::new(),
            attempt: 1,
            node: self.id,
            epoch: 3,
            timeout_s: 60,
            work,
        }
    }

    fn wipe(&self) -> Plan {
        self.plan(Work::Wipe(WipePlan {
            permit: PermitId::new(),
            operation: OperationId::new(),
            claim: Some(self.claim),
            disk_serials: vec!["S1".into()],
        }))
    }

    fn run(&self, version: Version, plan: &Plan) -> RunReply {
        let (job, attempt) = (plan.job.to_string(), plan.attempt.to_string());
        from_json(&self.call(version, &["run", &job, &attempt], &to_json(plan)))
    }

    /// Starts a job, once the job before has ended.
    fn start(&self, version: Version, plan: &Plan) {
        let begun = Instant::now();
        let reply = loop {
            match self.run(version, plan) {
                RunReply::Busy { .. } if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                reply => break reply,
            }
        };
        let (job, attempt) = (plan.job, plan.attempt);
        assert_eq!(reply, RunReply::Started { job, attempt });
    }

    /// Follows a job to the result, and grants the permit requested by the attempt.
    fn follow(&self, version: Version, plan: &Plan) -> WorkResult {
        let words = ["attach", &plan.job.to_string(), "0"];
        let mut child = self.command(version, &words).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines {
            match from_json(line.unwrap().as_bytes()) {
                Line::Progress(_) | Line::Log { .. } => {}
                Line::Challenge(challenge) if challenge.attempt < plan.attempt => {}
                Line::Challenge(challenge) => self.grant(version, &challenge),
                Line::Result { result, .. } => {
                    child.wait().unwrap();
                    return *result;
                }
            }
        }
        panic!("the lines of {version:?} end before a result")
    }

    fn grant(&self, version: Version, challenge: &Challenge) {
        let signature = permits::sign(&self.key, PermitKind::Wipe, challenge);
        let words = ["answer", &challenge.job.to_string()];
        self.call(version, &words, &to_json(&Answer::Granted { signature }));
    }

    fn disk(&self) -> Vec<u8> {
        std::fs::read(self.root.path().join("dev/vda")).unwrap()
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> T {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn yesterdays_inventory_is_read_today() {
    let node = Node::new();
    let inventory: Inventory = from_json(&node.call(Version::Before, &["inventory"], b""));
    assert_eq!(
        (inventory.protocol, inventory.facts.firmware),
        (PROTOCOL, Firmware::Bios)
    );
    assert_eq!(inventory.facts.disks[0].serial.as_deref(), Some("S1"));
    assert_eq!(inventory.facts.memory.total_bytes, 2_048_000 << 10);
}

/// Today's core writes the plans and reads the results.
#[test]
fn yesterdays_muster_node_does_todays_plans() {
    let node = Node::new();
    let marker = Marker {
        protocol: PROTOCOL,
        node: node.id,
        claim: node.claim,
        epoch: 3,
        image: Digest::of(b"image"),
    };
    let look = json!({
        "lock": Digest::of(b"lock"), "repository": "http://127.0.0.1/bundle", "packages": [], "absent": [], "files": [], "sysctl": {},
        "modules_load": [], "modules_blacklist": [], "kernel_args": [], "limits": [], "services": [], "principal": "muster:n:3",
        "user_ca": "ssh-ed25519 AAAA", "marker": marker, "dry_run": true,
    });
    let look = node.plan(Work::Converge(serde_json::from_value(look).unwrap()));
    node.start(Version::Before, &look);
    let looked = node.follow(Version::Before, &look);
    assert!(matches!(looked, WorkResult::Converged(_)), "{looked:?}");
    let wipe = node.wipe();
    node.start(Version::Before, &wipe);
    let wiped = node.follow(Version::Before, &wipe);
    assert!(matches!(wiped, WorkResult::Wiped { .. }), "{wiped:?}");
    assert_eq!(node.disk(), vec![0; DISK_BYTES]);
}

/// Every shipped suite of today with only parsers of the version before, with a profile of today.
/// No tool is found: the test counts an answer of every gate.
#[test]
fn yesterdays_muster_node_understands_todays_suites() {
    let node = Node::new();
    let profile: Shipped = *PROFILES
        .iter()
        .find(|shipped| shipped.name == "virtual-node")
        .unwrap();
    let profile: serde_json::Value = toml::from_str(profile.text).unwrap();
    let known = |shipped: &&Shipped| !NEW_SUITES.contains(&shipped.name);
    for shipped in SUITES.iter().filter(known) {
        let suite: Suite = toml::from_str(shipped.text).unwrap();
        let gates: BTreeSet<String> = suite.gates.iter().map(|gate| gate.id.clone()).collect();
        let plan = json!({ "suite": suite, "profile": profile, "only": [], "stack": null, "variables": {}, "in_use": true });
        let plan = node.plan(Work::Gate(serde_json::from_value(plan).unwrap()));
        node.start(Version::Before, &plan);
        let WorkResult::Gated { results, .. } = node.follow(Version::Before, &plan) else {
            panic!("{} is not gated", shipped.name)
        };
        let answered: BTreeSet<String> = results.into_iter().map(|result| result.gate).collect();
        assert_eq!(answered, gates, "{}", shipped.name);
    }
}

/// The other version finds the job running, follows the lines, answers the challenge, and finds the
/// job done.
#[test]
fn a_job_that_one_version_began_is_ended_by_the_other() {
    for (begins, ends) in [
        (Version::Before, Version::Today),
        (Version::Today, Version::Before),
    ] {
        let node = Node::new();
        let plan = node.wipe();
        let job = plan.job;
        node.start(begins, &plan);
        let again = Plan { attempt: 2, ..plan };
        let already = RunReply::Already { job, attempt: 2 };
        assert_eq!(node.run(ends, &again), already, "{begins:?}, then {ends:?}");
        let wiped = node.follow(ends, &again);
        assert!(matches!(wiped, WorkResult::Wiped { .. }), "{wiped:?}");
        assert_eq!(node.run(ends, &again), already);
        // Both versions keep the epoch at the same place: the node refuses an earlier assignment.
        let stale = Plan {
            epoch: 2,
            ..node.wipe()
        };
        let refused = node.run(ends, &stale);
        assert!(matches!(refused, RunReply::Stale { .. }), "{refused:?}");
        assert_eq!(node.disk(), vec![0; DISK_BYTES]);
    }
}
