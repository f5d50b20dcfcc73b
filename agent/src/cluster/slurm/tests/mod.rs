//! Tests of the parser on recorded text, and of all operations against a real controller.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

mod private; // A private Slurm for a test

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::clock::Clock;
use muster_core::clusters::{Drain, DrainReason, Member, SlurmCluster};
use muster_core::ids::ObjectId;
use muster_core::wire::scheduler::{ClusterWaits, Wait, WindowWait};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::private::{PrivateSlurm, install_hook};
use super::{BaseState, Controller, Controllers, Limits, NodeView, SlurmError};
use crate::watch::Watch;

/// Recorded output of `scontrol show node n1`, 22.05.8 on Debian 12.
const IDLE: &str = include_str!("idle-22.05.8.txt");
const UNREGISTERED: &str = include_str!("unregistered-22.05.8.txt");

fn with(text: &str, from: &str, to: &str) -> NodeView {
    assert!(text.contains(from), "{from}");
    NodeView::parse(&text.replace(from, to)).unwrap()
}

/// Returns the idle node with another state and reason.
fn held(state: &str, reason: &str) -> NodeView {
    with(
        IDLE,
        "State=IDLE ThreadsPerCore=1",
        &format!("State={state} ThreadsPerCore=1\n   Reason={reason}\n  "),
    )
}

fn wanted() -> Member {
    Member {
        name: "n1".into(),
        address: Ipv4Addr::LOCALHOST.into(),
        sockets: 2,
        cores_per_socket: 1,
        threads_per_core: 1,
        real_memory: 2000,
        gpus: None,
        features: vec!["stack_a".into()],
        switch: None,
    }
}

#[test]
fn reads_recorded_views() {
    let view = NodeView::parse(IDLE).unwrap();
    assert_eq!(
        (
            view.base,
            view.cpus,
            view.real_memory,
            view.address.as_str()
        ),
        (BaseState::Idle, 2, 2000, "127.0.0.1")
    );
    assert_eq!(view.version.as_deref(), Some("22.05.8"));
    assert_eq!(view.complaints(&wanted()), Vec::<String>::new());
    assert_eq!(view.boot_time.as_deref(), Some("2026-11-21T03:10:45"));

    let unregistered = NodeView::parse(UNREGISTERED).unwrap();
    assert_eq!(
        unregistered.base,
        BaseState::Idle,
        "22.05 shows a node idle that it has never heard of"
    );
    assert_eq!(
        unregistered.complaints(&wanted()),
        ["its slurmd has not registered, or does not answer"]
    );
}

#[test]
fn only_our_drains_and_lost_sight_may_be_lifted() {
    let ours = held(
        "IDLE+DRAIN",
        "muster: release of claim 7 [root@2026-11-20T09:19:17]",
    );
    assert!(ours.ours_to_resume() && ours.idle_for_good() && ours.draining());
    assert_eq!(ours.to_string(), "IDLE+DRAIN (muster: release of claim 7)");
    assert!(held("DOWN", "Not responding [slurm@2026-11-21T03:43:22]").ours_to_resume());
    for (state, reason) in [
        ("IDLE+DRAIN", "NHC: Xid 79 [root@2026-11-20T09:19:17]"),
        ("IDLE+DRAIN", "Low RealMemory [slurm@2026-11-20T09:19:17]"),
        ("DOWN", "broken fan [alice@2026-11-20T09:19:17]"),
        ("DOWN+DRAIN", "Not responding [slurm@2026-11-20T09:19:17]"),
        (
            "DOWN+NOT_RESPONDING",
            "Not responding [slurm@2026-11-20T09:19:17]",
        ),
        ("IDLE", "not muster: at all"),
    ] {
        let view = held(state, reason);
        assert!(!view.ours_to_resume(), "{state} {reason}");
    }
}

#[test]
fn what_is_not_understood_is_an_error_and_what_is_not_clean_is_said() {
    for (from, to) in [
        ("State=IDLE ", "State=SLEEPING "),
        ("State=IDLE ", "State=IDLE+ "),
        ("State=IDLE ", "State=idle "),
        ("State=IDLE ", "State=IDLE State=DOWN "),
        ("CPUTot=2", "CPUTot=two"),
        ("RealMemory=2000 ", ""),
        ("AllocTRES=", "nonsense"),
    ] {
        let text = IDLE.replace(from, to);
        assert!(
            matches!(NodeView::parse(&text), Err(SlurmError::Garbage { .. })),
            "{from:?} -> {to:?}"
        );
    }
    assert!(matches!(
        NodeView::parse(""),
        Err(SlurmError::Garbage { .. })
    ));
    let lost_memory = held(
        "IDLE+DRAIN+INVALID_REG",
        "Low RealMemory [slurm@2026-11-21T03:43:22]",
    );
    assert_eq!(
        lost_memory.complaints(&wanted()),
        ["the controller shows it IDLE+DRAIN+INVALID_REG (Low RealMemory)"]
    );
    let gpus = Member {
        gpus: Some(("h100".into(), 8)),
        ..wanted()
    };
    let complaints = with(IDLE, "Gres=(null)", "Gres=gpu:h100:7(S:0-1)").complaints(&gpus);
    assert_eq!(complaints, ["Gres is gpu:h100:7 instead of gpu:h100:8"]);
    assert!(
        with(IDLE, "Gres=(null)", "Gres=gpu:h100:8(S:0-1)")
            .complaints(&gpus)
            .is_empty()
    );
    assert!(with(IDLE, "State=IDLE ", "State=MIXED+COMPLETING ").busy());
}

#[tokio::test]
async fn names_that_are_lists_or_lines_are_refused_before_anything_runs() {
    let cluster = SlurmCluster {
        site: "s".into(),
        conf: "/nonexistent".into(),
        include_dir: "/nonexistent".into(),
        partition: "cpu".into(),
        address: "127.0.0.1".into(),
    };
    let controller = Controllers::default().open(&cluster);
    let (watch, _) = within(Duration::from_secs(1));
    for name in ["n[1-9]", "n1,n2", "ALL n2", "", "-n1", "n1\nSlurmUser=root"] {
        let refused = controller.drain(name, DrainReason::Leaving, &watch).await;
        assert!(
            matches!(refused, Err(SlurmError::Unwritable { .. })),
            "{name:?}: {refused:?}"
        );
        let node = Member {
            name: name.into(),
            ..wanted()
        };
        let refused = controller.admit(&[node], name, &watch).await;
        assert!(
            matches!(refused, Err(SlurmError::Unwritable { .. })),
            "{name:?}: {refused:?}"
        );
    }
}

fn quick() -> Controllers {
    Controllers::new(Limits {
        poll: Duration::from_millis(200),
        ..Limits::default()
    })
}

fn within(time: Duration) -> (Watch, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&said);
    let tell = move |sentence| tell.lock().unwrap().push(sentence);
    (
        Watch::new(Instant::now() + time, CancellationToken::new(), tell),
        said,
    )
}

/// Time limit of an act. Only a hang takes longer.
const LONG: Duration = Duration::from_mins(1);

/// Returns a watch for a single act.
fn for_an_act() -> Watch {
    within(LONG).0
}

#[tokio::test]
async fn a_node_joins_works_is_drained_and_leaves_a_real_controller() {
    let mut slurm = PrivateSlurm::start().await;
    let controller = quick().open(&slurm.cluster);
    let node = slurm.this_machine("n1").await;
    let nodes = [node];
    assert_eq!(
        slurm.run("sinfo", &["-h", "-N"]).await,
        "",
        "a cluster without nodes"
    );
    slurm.keep_slurmd("n1");

    // Since 23.11 the controller takes another set of nodes without a restart.
    let version = slurm.version;
    let needs_restart = version < (23, 11);
    let first = controller.admit(&nodes, "n1", &for_an_act()).await;
    assert_eq!(
        matches!(&first, Err(SlurmError::NoRestart { .. })),
        needs_restart,
        "{version:?}: {first:?}"
    );
    install_hook(&slurm);
    let (watch, said) = within(LONG);
    let view = controller
        .admit(&nodes, "n1", &watch)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", slurm.log()));
    assert!(view.present() && view.base == BaseState::Idle, "{view}");
    let restarts = |sentence: &String| sentence.starts_with("the restart of slurmctld");
    assert_eq!(
        said.lock().unwrap().iter().any(restarts),
        needs_restart,
        "{version:?}: {said:?}"
    );
    assert_eq!(
        slurm
            .run("srun", &["-w", "n1", "echo", "passed muster"])
            .await,
        "passed muster\n"
    );
    let starts = slurm.log().matches("slurmctld version").count();
    controller.admit(&nodes, "n1", &for_an_act()).await.unwrap();
    assert_eq!(
        slurm.log().matches("slurmctld version").count(),
        starts,
        "what is so already is left alone"
    );

    let early = controller.remove(&[], "n1", &for_an_act()).await;
    assert!(
        matches!(&early, Err(SlurmError::InUse { seen, .. }) if seen.starts_with("IDLE")),
        "{early:?}"
    );
    let stale = Member {
        name: "n2".into(),
        address: Ipv4Addr::new(127, 0, 0, 2).into(),
        ..nodes[0].clone()
    };
    let stale = [stale];
    let harmful = controller.admit(&stale, "n2", &for_an_act()).await;
    assert!(
        matches!(&harmful, Err(SlurmError::WouldRemove { names }) if names.starts_with("n1 (IDLE")),
        "{harmful:?}"
    );
    long_jobs_stay_away(&slurm, &controller).await;
    controller.note_members(7, &nodes);
    controller.note_members(6, &stale);
    let (short, _) = within(Duration::from_secs(1));
    let outdated = controller.admit(&stale, "n2", &short).await;
    assert!(
        matches!(&outdated, Err(SlurmError::DeadlinePassed { .. })),
        "an older list is not written: {outdated:?}"
    );

    // The job ends once the drain reports the wait for the job.
    let held = slurm.path("held");
    std::fs::write(&held, "").unwrap();
    let script = format!("while [ -e {} ]; do sleep 0.1; done", held.display());
    let job = ["-w", "n1", "-t", "5", "-o", "/dev/null", "--wrap", &script];
    slurm.run("sbatch", &job).await;
    slurm.until("squeue", &["-h", "-o", "%T"], "RUNNING").await;
    let jobs = controller.running_jobs().await.unwrap();
    assert_eq!(
        (jobs.len(), &jobs[0].nodes[..]),
        (1, &["n1".to_owned()][..])
    );
    let now = jiff::Zoned::now().timestamp();
    let left = jobs[0].ends.unwrap().duration_since(now).as_secs();
    assert!((200..=300).contains(&left), "{jobs:?}");
    let file = held.clone();
    let tell = move |sentence: String| {
        if sentence.starts_with("jobs to end on n1: job ") {
            _ = std::fs::remove_file(&file);
        }
    };
    let watch = Watch::new(Instant::now() + LONG, CancellationToken::new(), tell);
    controller
        .drain("n1", DrainReason::Leaving, &watch)
        .await
        .unwrap();
    assert!(!held.exists(), "the drain reports the wait for the job");
    assert_eq!(
        slurm.run("squeue", &["-h"]).await,
        "",
        "the job has ended by itself"
    );
    let drained = controller.view("n1").await.unwrap().unwrap();
    assert_eq!(drained.to_string(), "IDLE+DRAIN (muster: leaving service)");
    controller
        .admit(&nodes, "n1", &for_an_act())
        .await
        .expect("our own drain is lifted");
    jobs_are_requeued(&slurm, &controller).await;
    controller.admit(&nodes, "n1", &for_an_act()).await.unwrap();

    controller
        .drain("n1", DrainReason::Leaving, &for_an_act())
        .await
        .unwrap();
    controller.remove(&[], "n1", &for_an_act()).await.unwrap();
    assert_eq!(slurm.run("sinfo", &["-h", "-N"]).await, "");
    slurm.restart().await;
    assert_eq!(
        slurm.run("sinfo", &["-h", "-N"]).await,
        "",
        "also after a restart"
    );
    controller
        .remove(&[], "n1", &for_an_act())
        .await
        .expect("gone is gone");
    controller
        .drain("n1", DrainReason::Leaving, &for_an_act())
        .await
        .expect("no node, no jobs");
}

/// Drains the node `n1` with two jobs, of which the controller requeues one.
async fn jobs_are_requeued(slurm: &PrivateSlurm, controller: &Controller) {
    let submit = async |options: &[&str]| {
        let common = [
            "-w",
            "n1",
            "-n",
            "1",
            "-t",
            "5",
            "-o",
            "/dev/null",
            "--parsable",
        ];
        let id = slurm.run("sbatch", &[&common, options].concat()).await;
        id.trim().to_owned()
    };
    let kept = submit(&["--requeue", "--wrap", "sleep 300"]).await;
    let stays = submit(&["--no-requeue", "--wrap", "sleep 300"]).await;
    for id in [&kept, &stays] {
        let state = ["-h", "-j", id, "-o", "%T"];
        slurm.until("squeue", &state, "RUNNING").await;
    }
    let jobs = controller.running_jobs().await.unwrap();
    let requeues = |id: &str| jobs.iter().find(|job| job.id == id).unwrap().requeues;
    assert!(requeues(&kept) && !requeues(&stays), "{jobs:?}");
    let drain = Drain {
        reason: DrainReason::Leaving,
        requeue: true,
    };
    let refused = controller.drain("n1", drain, &for_an_act()).await;
    let command = format!("scontrol requeue {stays}");
    assert!(
        matches!(&refused, Err(SlurmError::Refused { command: refused, .. }) if *refused == command),
        "{refused:?}"
    );
    let states = async || slurm.run("squeue", &["-h", "-o", "%i %T"]).await;
    assert_eq!(
        states().await.matches("RUNNING").count(),
        2,
        "none is requeued"
    );
    slurm.run("scancel", &[&stays]).await;
    let (watch, said) = within(LONG);
    controller.drain("n1", drain, &watch).await.unwrap();
    assert_eq!(states().await, format!("{kept} PENDING\n"), "{said:?}");
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("left; requeued)"), "{said}");
    slurm.run("scancel", &[&kept]).await;
}

/// Reserves the node `n1`, and gives it back.
async fn long_jobs_stay_away(slurm: &PrivateSlurm, controller: &Controller) {
    let now = Clock::System.now();
    let nodes = vec!["n1".to_owned()];
    let none = ClusterWaits {
        cluster: ObjectId::new(),
        waits: vec![],
        window_waits: vec![],
    };
    let waits = ClusterWaits {
        waits: vec![Wait {
            lead_s: 900,
            nodes: nodes.clone(),
        }],
        ..none.clone()
    };
    let own = [
        "create",
        "reservation",
        "ReservationName=own",
        "Nodes=n1",
        "StartTime=now+2hours",
    ];
    let own = [&own[..], &["Duration=10", "Users=root", "Flags=OVERLAP"]].concat();
    slurm.run("scontrol", &own).await;
    controller.reserve(&waits, now).await.unwrap();
    controller
        .reserve(&waits, now)
        .await
        .expect("nothing is left to do");
    let shown = slurm.run("scontrol", &["show", "reservations", "-o"]).await;
    let ours = shown
        .lines()
        .find(|line| line.contains("muster-wait-900-0"));
    let ours = ours.unwrap_or_else(|| panic!("{shown}"));
    assert!(
        ours.contains("Nodes=n1 ") && ours.contains("TIME_FLOAT"),
        "{ours}"
    );

    let submit = |limit| {
        [
            "-w",
            "n1",
            "-t",
            limit,
            "-o",
            "/dev/null",
            "--wrap",
            "sleep 300",
        ]
    };
    slurm.run("sbatch", &submit("60")).await;
    slurm
        .until("squeue", &["-h", "-o", "%T %r"], "PENDING ReqNodeNotAvail")
        .await;
    let short = ["-w", "n1", "-t", "5", "echo", "a short job runs"];
    assert_eq!(slurm.run("srun", &short).await, "a short job runs\n");
    slurm
        .until("squeue", &["-h", "-o", "%T %r"], "PENDING ReqNodeNotAvail")
        .await;

    // A window opens in half an hour: the job of an hour does not end before.
    let until_window = ClusterWaits {
        window_waits: vec![WindowWait {
            opens_at: now + SignedDuration::from_mins(30),
            nodes,
        }],
        ..none.clone()
    };
    controller.reserve(&until_window, now).await.unwrap();
    controller
        .reserve(&until_window, now)
        .await
        .expect("nothing is left to do");
    let shown = slurm.run("scontrol", &["show", "reservations", "-o"]).await;
    assert!(
        shown.contains("muster-wait-window-") && !shown.contains("muster-wait-900"),
        "{shown}"
    );
    assert_eq!(slurm.run("srun", &short).await, "a short job runs\n");
    slurm
        .until("squeue", &["-h", "-o", "%T %r"], "PENDING ReqNodeNotAvail")
        .await;

    controller.reserve(&none, now).await.unwrap();
    let shown = slurm.run("scontrol", &["show", "reservations", "-o"]).await;
    assert!(!shown.contains("muster-wait"), "{shown}");
    assert!(
        shown.contains("ReservationName=own "),
        "another owner keeps its reservation: {shown}"
    );
    slurm.until("squeue", &["-h", "-o", "%T"], "RUNNING").await;
    slurm.run("scancel", &["--user", "root"]).await;
    slurm.until_no_jobs().await;
    slurm
        .run("scontrol", &["delete", "ReservationName=own"])
        .await;
    controller
        .reserve(&none, now)
        .await
        .expect("no reservation at all");
}

#[tokio::test]
async fn what_a_person_or_the_controller_holds_back_stays_held_back() {
    let mut slurm = PrivateSlurm::start().await;
    install_hook(&slurm);
    let controller = quick().open(&slurm.cluster);
    let mut nodes = [slurm.this_machine("n1").await];
    slurm.keep_slurmd("n1");
    controller
        .admit(&nodes, "n1", &for_an_act())
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", slurm.log()));

    slurm
        .run(
            "scontrol",
            &["update", "nodename=n1", "state=drain", "reason=NHC: fan 3"],
        )
        .await;
    let (short, said) = within(Duration::from_secs(1));
    let held = controller.admit(&nodes, "n1", &short).await;
    assert!(
        matches!(&held, Err(SlurmError::DeadlinePassed { seen }) if seen.contains("IDLE+DRAIN (NHC: fan 3)")),
        "{held:?}"
    );
    assert!(said.lock().unwrap()[0].starts_with("Slurm to see n1 clean: the controller shows it"));
    controller
        .drain("n1", DrainReason::Leaving, &for_an_act())
        .await
        .unwrap();
    assert_eq!(
        controller
            .view("n1")
            .await
            .unwrap()
            .unwrap()
            .reason
            .as_deref(),
        Some("NHC: fan 3"),
        "and keeps its reason"
    );
    // After the measurement the node stays out for a drain set by others, including its own health
    // check.
    for other in [
        "NHC: fan 3",
        "muster: gate kernel.new: kernel.xid_fatal is 1 events",
    ] {
        slurm
            .run(
                "scontrol",
                &[
                    "update",
                    "nodename=n1",
                    "state=drain",
                    &format!("reason={other}"),
                ],
            )
            .await;
        let back = controller
            .give_back(&nodes, "n1", DrainReason::Measurement, &for_an_act())
            .await
            .unwrap();
        assert_eq!(
            (back.draining(), back.reason.as_deref()),
            (true, Some(other))
        );
    }
    slurm
        .run("scontrol", &["update", "nodename=n1", "state=resume"])
        .await;
    controller
        .drain("n1", DrainReason::Measurement, &for_an_act())
        .await
        .unwrap();
    let back = controller
        .give_back(&nodes, "n1", DrainReason::Measurement, &for_an_act())
        .await
        .unwrap();
    assert!(!back.draining(), "{back}");
    // The later drain replaces the temporary reason of the measurement. A problem found by the
    // health check in the meantime stays.
    for reason in [DrainReason::Measurement, DrainReason::Leaving] {
        controller.drain("n1", reason, &for_an_act()).await.unwrap();
        assert_eq!(
            controller
                .view("n1")
                .await
                .unwrap()
                .unwrap()
                .reason
                .as_deref(),
            Some(reason.as_str())
        );
    }
    let fault = "muster: gate kernel.new: kernel.xid_fatal is 1 events";
    slurm
        .run(
            "scontrol",
            &[
                "update",
                "nodename=n1",
                "state=drain",
                &format!("reason={fault}"),
            ],
        )
        .await;
    let undone = controller
        .give_back(&nodes, "n1", DrainReason::Leaving, &for_an_act())
        .await
        .unwrap();
    assert_eq!(
        (undone.draining(), undone.reason.as_deref()),
        (true, Some(fault))
    );
    slurm
        .run(
            "scontrol",
            &[
                "update",
                "nodename=n1",
                "state=drain",
                &format!("reason={}", DrainReason::Leaving.as_str()),
            ],
        )
        .await;
    let undone = controller
        .give_back(&nodes, "n1", DrainReason::Leaving, &for_an_act())
        .await
        .unwrap();
    assert!(!undone.draining(), "{undone}");
    // An adopted node is missing in every list of Muster. Our drain is lifted all the same, and a
    // drain set by others stays.
    controller
        .drain("n1", DrainReason::Measurement, &for_an_act())
        .await
        .unwrap();
    let back = controller
        .give_back(&[], "n1", DrainReason::Measurement, &for_an_act())
        .await
        .unwrap();
    assert!(!back.draining(), "{back}");
    slurm
        .run(
            "scontrol",
            &["update", "nodename=n1", "state=drain", "reason=NHC: fan 3"],
        )
        .await;
    let back = controller
        .give_back(&[], "n1", DrainReason::Measurement, &for_an_act())
        .await
        .unwrap();
    assert_eq!(
        (back.draining(), back.reason.as_deref()),
        (true, Some("NHC: fan 3"))
    );
    let nobodys = controller
        .give_back(&[], "n2", DrainReason::Measurement, &for_an_act())
        .await;
    assert!(
        matches!(nobodys, Err(SlurmError::NotListed { .. })),
        "{nobodys:?}"
    );
    slurm
        .run("scontrol", &["update", "nodename=n1", "state=resume"])
        .await;

    // The profile asks for more memory than the machine has, so the controller itself refuses the
    // node.
    nodes[0].real_memory *= 100;
    let refuses = CancellationToken::new();
    let stop = refuses.clone();
    let tell = move |sentence: String| {
        if sentence.contains("INVALID_REG") {
            stop.cancel();
        }
    };
    let watch = Watch::new(Instant::now() + LONG, refuses.clone(), tell);
    while !refuses.is_cancelled() && Instant::now() < watch.deadline {
        // After a restart the controller reports the old state until slurmd has registered.
        _ = controller.admit(&nodes, "n1", &watch).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (ended, _) = within(Duration::ZERO);
    let admitted = controller.admit(&nodes, "n1", &ended).await;
    // The reason is "Low RealMemory" in 22.05. 24.11 keeps an older reason.
    let refused = admitted.unwrap_err();
    assert!(
        refused.to_string().contains("INVALID_REG"),
        "{refused}\n{}",
        slurm.log()
    );
}
