//! Jobs as real processes: detached, followed, fenced, permitted, killed. Each test has a node of its own under `MUSTER_ROOT`; its disks are files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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
    Answer, Challenge, Failure, FailureCode, Line, Marker, Plan, RunReply, SiteTrust, WipeMethod,
    WipePlan, Work, WorkResult,
};
use muster_node::disk::marker;
use serde::Serialize;
use serde::de::DeserializeOwned;

const DISK: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A node in a folder. Dropping it ends the job it may still run.
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
        // A verb that refuses may not read all of it.
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

    /// The newest challenge, once there are `count` of them.
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

    /// Follows the job to its end and gives the result, with what was printed.
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

    /// Waits until the job's process has ended: the process writes the result first, and then drops the lock.
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
            .open(self.path("dev/vda"))
            .unwrap();
        disk.write_all_at(&sector, marker::OFFSET).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for job in self.jobs.borrow().iter() {
            let _ = self.call(&["cancel", &job.to_string()], b"");
        }
        // The folder must outlive the processes in it.
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
fn one_job_at_a_time_and_nothing_from_the_past() {
    let node = Node::new();
    let plan = node.plan(5, 2);
    node.run(&plan);
    assert_eq!(node.run(&node.plan(5, 1)), RunReply::Busy { job: plan.job });
    assert_eq!(
        node.run(&node.plan(4, 9)),
        RunReply::Stale {
            epoch: 5,
            attempt: 1
        }
    );
    assert_eq!(
        node.run(&Plan {
            attempt: 1,
            ..plan.clone()
        }),
        RunReply::Stale {
            epoch: 5,
            attempt: 2
        }
    );

    let out = node.call(&["cancel", &plan.job.to_string()], b"");
    assert!(out.status.success());
    assert_eq!(node.failure(plan.job).code, FailureCode::Cancelled);
    assert!(matches!(
        node.run(&node.plan(6, 1)),
        RunReply::Started { .. }
    ));
}

#[test]
fn a_newer_attempt_takes_a_running_job_over() {
    let node = Node::new();
    let plan = node.plan(1, 1);
    node.run(&plan);
    node.challenge(plan.job, 1);
    let pid = node.pid(plan.job);
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
    let challenge = node.challenge(plan.job, 2);
    assert_eq!((challenge.attempt, node.pid(plan.job)), (2, pid));
    node.grant(&challenge);
    assert!(matches!(
        node.result(plan.job, 0).0,
        WorkResult::Wiped { .. }
    ));
}

#[test]
fn a_killed_job_is_seen_dead_and_starts_over() {
    use nix::sys::signal::{Signal, kill};
    let node = Node::new();
    let plan = node.plan(1, 1);
    node.run(&plan);
    node.challenge(plan.job, 1);
    let follower = node
        .command(&["attach", &plan.job.to_string(), "0"])
        .spawn()
        .unwrap();
    kill(
        nix::unistd::Pid::from_raw(node.pid(plan.job)),
        Signal::SIGKILL,
    )
    .unwrap();
    let out = follower.wait_with_output().unwrap();
    let failure: Failure = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(
        (failure.code.as_str(), failure.retryable, out.status.code()),
        ("job_died", true, Some(1))
    );

    assert_eq!(
        node.run(&Plan {
            attempt: 2,
            ..plan.clone()
        }),
        RunReply::Started {
            job: plan.job,
            attempt: 2
        }
    );
    let Line::Log { text, .. } = &node.lines(plan.job)[0] else {
        panic!("no note")
    };
    assert!(text.contains("attempt 2") && node.spool(plan.job, "lines.old").exists());
    node.grant(&node.challenge(plan.job, 1));
    assert!(matches!(
        node.result(plan.job, 0).0,
        WorkResult::Wiped { .. }
    ));
}

#[test]
fn what_is_not_understood_is_refused_in_json() {
    let node = Node::new();
    let plan = node.plan(1, 1);
    let job = plan.job.to_string();
    let cases: [(&[&str], Vec<u8>, &str, i32); 6] = [
        (&["frobnicate"], vec![], "usage", 2),
        (&["run", "x", "1"], json(&plan), "usage", 2),
        (&["run", &job, "2"], json(&plan), "usage", 2),
        (
            &["run", &job, "1"],
            json(&Plan {
                protocol: 9,
                ..plan.clone()
            }),
            "protocol",
            1,
        ),
        (&["run", &job, "1"], b"{".to_vec(), "malformed", 1),
        (
            &["answer", &job],
            json(&Answer::Refused {
                reason: String::new(),
            }),
            "no_job",
            1,
        ),
    ];
    for (arguments, stdin, code, exit) in cases {
        let out = node.call(arguments, &stdin);
        let failure: Failure = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(
            (failure.code.as_str(), out.status.code()),
            (code, Some(exit)),
            "{arguments:?}"
        );
        assert!(out.stdout.is_empty());
    }
    let version: muster_core::wire::node::Version =
        serde_json::from_slice(&node.call(&["version"], b"").stdout).unwrap();
    assert_eq!(
        version.digest,
        muster_core::values::Digest::of(&fs::read(env!("CARGO_BIN_EXE_muster-node")).unwrap())
    );
}

/// A job that waits for its permit, and its challenge.
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

fn ended(node: &Node, job: JobId) {
    let out = node.call(&["cancel", &job.to_string()], b"");
    assert!(out.status.success());
    assert_eq!(node.failure(job).code, FailureCode::Cancelled);
}

#[test]
fn an_answer_that_was_given_to_another_challenge_opens_nothing() {
    let node = Node::new();
    // Granted, and never delivered: its job was stopped.
    let (former, old) = waiting(&node, 3);
    ended(&node, former);
    type Change = fn(&mut Challenge, &Challenge);
    let changes: [(&str, Change); 9] = [
        ("replayed as it was", |c, old| *c = old.clone()),
        ("replayed under this job's name", |c, old| {
            (c.nonce, c.permit) = (old.nonce.clone(), old.permit)
        }),
        ("of another permit", |c, _| c.permit = PermitId::new()),
        ("of another operation", |c, _| {
            c.operation = OperationId::new()
        }),
        ("of another node", |c, _| c.node = NodeId::new()),
        ("of a later epoch", |c, _| c.epoch += 1),
        ("of an earlier epoch", |c, _| c.epoch -= 1),
        ("of another disk", |c, _| c.disk_serials = vec!["S2".into()]),
        ("of another boot", |c, _| c.boot_id = "before".into()),
    ];
    for (what, change) in changes {
        let (job, challenge) = waiting(&node, 3);
        let mut other = challenge.clone();
        change(&mut other, &old);
        let signature = permits::sign(&node.key, PermitKind::Wipe, &other);
        node.answer(job, &Answer::Granted { signature });
        let failure = node.failure(job);
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            ("permit_refused", false),
            "{what}"
        );
    }
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

#[test]
fn a_yes_that_comes_after_the_jobs_time_is_too_late() {
    let node = Node::new();
    // The job needs time for its challenge, so a slow machine gives more time to the job.
    let started = Instant::now();
    let (former, _) = waiting(&node, 1);
    let slow_s = started.elapsed().as_millis() / 250;
    ended(&node, former);
    let plan = Plan {
        timeout_s: 1 + u64::try_from(slow_s).unwrap(),
        ..node.plan(1, 1)
    };
    node.run(&plan);
    let challenge = node.challenge(plan.job, 1);
    assert_eq!(node.failure(plan.job).code, FailureCode::Deadline);
    let signature = permits::sign(&node.key, PermitKind::Wipe, &challenge);
    let out = node.call(
        &["answer", &plan.job.to_string()],
        &json(&Answer::Granted { signature }),
    );
    assert_eq!(
        serde_json::from_slice::<Failure>(&out.stderr).unwrap().code,
        FailureCode::NoJob
    );
    // Nor does it wait there for the next attempt.
    let again = Plan {
        attempt: 2,
        timeout_s: 60,
        ..plan.clone()
    };
    assert_eq!(
        node.run(&again),
        RunReply::Started {
            job: plan.job,
            attempt: 2
        }
    );
    assert_ne!(node.challenge(plan.job, 1).nonce, challenge.nonce);
    ended(&node, plan.job);
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

/// The server's database was put back: it believes in an epoch that the node has left, or in a claim whose data is gone. Its key still signs.
#[test]
fn a_server_that_was_put_back_is_refused_though_it_signs() {
    let node = Node::new();
    let (later, _) = waiting(&node, 7);
    ended(&node, later);
    assert_eq!(
        node.run(&node.plan(6, 9)),
        RunReply::Stale {
            epoch: 7,
            attempt: 1
        }
    );
    // Another boot forgets the fence, and the disk still says whose it is: the claim that came after, or the same at a later epoch.
    fs::remove_file(node.path("var/lib/muster/fence.json")).unwrap();
    for (claim, epoch) in [(ClaimId::new(), 8), (node.claim, 8)] {
        node.mark(claim, epoch);
        let plan = node.plan(6, 1);
        assert_eq!(
            node.run(&plan),
            RunReply::Started {
                job: plan.job,
                attempt: 1
            }
        );
        assert_eq!(node.failure(plan.job).code, FailureCode::MarkedInUse);
    }
    let mut untouched = vec![0xa5; DISK];
    let sector = usize::try_from(marker::OFFSET).unwrap();
    let disk = fs::read(node.path("dev/vda")).unwrap();
    untouched[sector..sector + marker::LENGTH]
        .copy_from_slice(&disk[sector..sector + marker::LENGTH]);
    assert_eq!(disk, untouched);
}

#[test]
fn the_right_disk_is_looked_for_again_when_the_yes_comes() {
    let node = Node::new();
    let (job, challenge) = waiting(&node, 1);
    // Pulled, and another one put into its place.
    node.put("sys/block/vda/serial", b"S9\n");
    node.grant(&challenge);
    let failure = node.failure(job);
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("disk_missing", false)
    );
    assert_eq!(fs::read(node.path("dev/vda")).unwrap(), vec![0xa5; DISK]);
}

/// Of a node whose `chroot` is a stand-in. After the cancellation, the stand-in takes longer for a
/// boot menu than a job has to stop.
#[test]
fn a_converge_that_is_cancelled_ends_its_boot_files_first() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = Node::new();
    let slow = "#!/bin/sh\ntouch $1/in\n\
        until [ -e $1/var/lib/muster/jobs/*/cancel ]; do sleep 0.05; done\n\
        sleep 4; mkdir -p $1/boot/grub; echo menu >$1/boot/grub/grub.cfg.muster\n";
    node.put("bin/chroot", slow.as_bytes());
    fs::set_permissions(node.path("bin/chroot"), fs::Permissions::from_mode(0o755)).unwrap();
    node.put("proc/cmdline", b"quiet\n");
    node.put(
        "etc/passwd",
        format!("root:x:{}:", nix::unistd::getuid()).as_bytes(),
    );
    node.put(
        "etc/group",
        format!("root:x:{}:", nix::unistd::getgid()).as_bytes(),
    );
    let digest = muster_core::values::Digest::of(b"none");
    let marker = Marker {
        protocol: PROTOCOL,
        node: node.id,
        claim: node.claim,
        epoch: 1,
        image: digest,
    };
    let converge = serde_json::from_value(serde_json::json!({
        "lock": digest, "repository": "http://127.0.0.1/bundle", "packages": [], "absent": [], "files": [], "sysctl": {},
        "modules_load": [], "modules_blacklist": [], "kernel_args": ["iommu=pt"], "limits": [], "services": [],
        "principal": format!("muster:{}:1", node.id), "user_ca": "ssh-ed25519 AAAA", "marker": marker,
    }))
    .unwrap();
    let plan = Plan {
        work: Work::Converge(converge),
        ..node.plan(1, 1)
    };
    let mut command = node.command(&["run", &plan.job.to_string(), "1"]);
    command.env(
        "PATH",
        format!(
            "{}:{}",
            node.path("bin").display(),
            std::env::var("PATH").unwrap()
        ),
    );
    command.env("MUSTER_GRACE_S", "1");
    node.jobs.borrow_mut().push(plan.job);
    assert!(Node::feed(command, &json(&plan)).status.success());
    until(|| node.path("in").exists().then_some(()));
    ended(&node, plan.job);
    assert_eq!(
        fs::read_to_string(node.path("boot/grub/grub.cfg")).unwrap(),
        "menu\n"
    );
}
