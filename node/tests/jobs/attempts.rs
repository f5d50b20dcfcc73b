//! Attempts of jobs: fences, takeovers, deaths, cancellations, unreadable orders.

use std::fs;

use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{
    Answer, Failure, FailureCode, Line, Marker, Plan, RunReply, Work, WorkResult,
};

use crate::{Node, ended, json, until};

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

/// With a stand-in for `chroot`. After the cancellation, the stand-in takes longer for a boot menu
/// than the grace of a job.
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
