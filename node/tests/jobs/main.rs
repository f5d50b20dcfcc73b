//! Jobs as real processes: detached, followed, fenced, permitted, killed. Every test has a node
//! under `MUSTER_ROOT`. The disks of the node are files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers; // Replayed and late answers, restored servers
mod attempts; // Fences, attempts, ends of jobs
mod images; // Disks beside the root disk
mod wipes; // Permits and disks of wipes

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use ed25519_dalek::SigningKey;
use muster_core::ids::{ClaimId, JobId, NodeId, OperationId, PermitId};
use muster_core::permits::{self, PermitKind};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{
    Answer, Challenge, Failure, FailureCode, Line, Marker, Plan, RunReply, SiteTrust, WipePlan,
    Work, WorkResult,
};
use muster_node::disk::marker;
use serde::Serialize;
use serde::de::DeserializeOwned;

const DISK: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A node in a folder. Dropping the node ends the jobs.
struct Node {
    root: tempfile::TempDir,
    key: SigningKey,
    id: NodeId,
    claim: ClaimId,
    jobs: std::cell::RefCell<Vec<JobId>>,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let key = SigningKey::from_bytes(&[5; 32]);
        let trust = SiteTrust {
            protocol: PROTOCOL,
            permit_public_key: base64::engine::general_purpose::STANDARD
                .encode(key.verifying_key().as_bytes()),
            user_ca: "ssh-ed25519 AAAA".into(),
            agent_url: "http://127.0.0.1:1/boot/v1".into(),
        };
        let node = Self {
            root,
            key,
            id: NodeId::new(),
            claim: ClaimId::new(),
            jobs: Vec::new().into(),
        };
        node.put("etc/muster/site.json", &serde_json::to_vec(&trust).unwrap());
        node.put("sys/block/vda/size", (DISK / 512).to_string().as_bytes());
        node.put("sys/block/vda/serial", b"S1\n");
        node.put("sys/block/vda/device/vendor", b"0x1af4\n");
        node.put("dev/vda", &vec![0xa5; DISK]);
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), bytes).unwrap();
    }

    fn spool(&self, job: JobId, file: &str) -> PathBuf {
        self.path(&format!("var/lib/muster/jobs/{job}/{file}"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-node"));
        command
            .args(arguments)
            .env("MUSTER_ROOT", self.root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn call(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        Self::feed(self.command(arguments), stdin)
    }

    fn feed(mut command: Command, stdin: &[u8]) -> Output {
        let mut child = command.spawn().unwrap();
        // A refusing verb may leave input unread.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap()
    }

    fn plan(&self, epoch: i64, attempt: i32) -> Plan {
        let wipe = WipePlan {
            permit: PermitId::new(),
            operation: OperationId::new(),
            claim: Some(self.claim),
            disk_serials: vec!["S1".into()],
        };
        Plan {
            protocol: PROTOCOL,
            job: JobId::new(),
            attempt,
            node: self.id,
            epoch,
            timeout_s: 60,
            work: Work::Wipe(wipe),
        }
    }

    fn run(&self, plan: &Plan) -> RunReply {
        self.jobs.borrow_mut().push(plan.job);
        let out = self.call(
            &["run", &plan.job.to_string(), &plan.attempt.to_string()],
            &serde_json::to_vec(plan).unwrap(),
        );
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn answer(&self, job: JobId, answer: &Answer) {
        let out = self.call(
            &["answer", &job.to_string()],
            &serde_json::to_vec(answer).unwrap(),
        );
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    fn grant(&self, challenge: &Challenge) {
        let signature = permits::sign(&self.key, PermitKind::Wipe, challenge);
        self.answer(challenge.job, &Answer::Granted { signature });
    }

    fn lines(&self, job: JobId) -> Vec<Line> {
        let text = fs::read_to_string(self.spool(job, "lines")).unwrap_or_default();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for challenge number `count` of the job.
    fn challenge(&self, job: JobId, count: usize) -> Challenge {
        until(|| {
            let challenges: Vec<Challenge> = self
                .lines(job)
                .into_iter()
                .filter_map(|line| match line {
                    Line::Challenge(challenge) => Some(challenge),
                    _ => None,
                })
                .collect();
            challenges.get(count - 1).cloned()
        })
    }

    /// Follows the job to the end, and returns the result and the printed lines.
    fn result(&self, job: JobId, offset: usize) -> (WorkResult, Vec<u8>) {
        let out = self.call(&["attach", &job.to_string(), &offset.to_string()], b"");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        self.wait_for_end(job);
        match lines_of(&out.stdout).pop() {
            Some(Line::Result { result, .. }) => (*result, out.stdout),
            other => panic!("no result but {other:?}"),
        }
    }

    /// Waits for the end of the job's process. The process writes the result first, and then drops
    /// the lock.
    fn wait_for_end(&self, job: JobId) {
        let path = self.path("var/lib/muster/job.lock");
        let lock = fs::File::open(&path).unwrap();
        until(|| {
            let is_other = || fs::read_to_string(&path).unwrap() != job.to_string();
            (lock.try_lock().is_ok() || is_other()).then_some(())
        });
    }

    fn failure(&self, job: JobId) -> Failure {
        match self.result(job, 0).0 {
            WorkResult::Failed(failure) => failure,
            other => panic!("no failure but {other:?}"),
        }
    }

    fn pid(&self, job: JobId) -> i32 {
        let worker: serde_json::Value = read(&self.spool(job, "pid"));
        worker["pid"]
            .as_i64()
            .and_then(|pid| pid.try_into().ok())
            .unwrap()
    }

    fn mark(&self, claim: ClaimId, epoch: i64) {
        self.mark_disk("vda", claim, epoch);
    }

    fn mark_disk(&self, name: &str, claim: ClaimId, epoch: i64) {
        use std::os::unix::fs::FileExt as _;
        let image = muster_core::values::Digest::of(b"image");
        let sector = marker::encode(&Marker {
            protocol: PROTOCOL,
            node: self.id,
            claim,
            epoch,
            image,
        })
        .unwrap();
        let disk = fs::OpenOptions::new()
            .write(true)
            .open(self.path(&format!("dev/{name}")))
            .unwrap();
        disk.write_all_at(&sector, marker::OFFSET).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for job in self.jobs.borrow().iter() {
            let _ = self.call(&["cancel", &job.to_string()], b"");
        }
        // The folder must outlive the processes.
        let started = Instant::now();
        while self.jobs.borrow().iter().any(|job| {
            self.call(&["cancel", &job.to_string()], b"")
                .status
                .success()
        }) {
            assert!(started.elapsed() < PATIENCE, "a job outlives its test");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn read<T: DeserializeOwned>(path: &std::path::Path) -> T {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn lines_of(bytes: &[u8]) -> Vec<Line> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "waited too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

/// Starts a job and waits for the challenge.
fn waiting(node: &Node, epoch: i64) -> (JobId, Challenge) {
    let plan = node.plan(epoch, 1);
    assert_eq!(
        node.run(&plan),
        RunReply::Started {
            job: plan.job,
            attempt: 1
        }
    );
    (plan.job, node.challenge(plan.job, 1))
}

/// Cancels a job and waits for the end.
fn ended(node: &Node, job: JobId) {
    let out = node.call(&["cancel", &job.to_string()], b"");
    assert!(out.status.success());
    assert_eq!(node.failure(job).code, FailureCode::Cancelled);
}
