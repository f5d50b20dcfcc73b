//! All operations against a real controller.

use super::*;

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

/// Drains the node `n1` with a reason of two lines, and reads the reason in both ways.
async fn tell_a_reason_of_two_lines(slurm: &PrivateSlurm, controller: &Controller) {
    let reason = "reason=fan 3\nmuster-none|idle|none";
    let drain = ["update", "nodename=n1", "state=drain", reason];
    slurm.run("scontrol", &drain).await;
    let expected = Some("fan 3 muster-none|idle|none");
    let view = controller.view("n1").await.unwrap().unwrap();
    assert_eq!(view.reason.as_deref(), expected);
    let out = controller.nodes_out().await.unwrap();
    let out: Vec<(&str, Option<&str>)> = out
        .iter()
        .map(|node| (node.name.as_str(), node.reason.as_deref()))
        .collect();
    assert_eq!(out, [("n1", expected)]);
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
    tell_a_reason_of_two_lines(&slurm, &controller).await;
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
