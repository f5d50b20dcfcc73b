//! The parser on recorded text, and refused names.

use super::*;

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
fn a_reason_of_two_lines_is_read_and_ours() {
    let view = NodeView::parse(MULTILINE).unwrap();
    let shown = "UNKNOWN+DRAIN+NOT_RESPONDING (muster: gate gpu.ecc failed twice)";
    assert_eq!(view.to_string(), shown);
    let reason = "muster: gate gpu.ecc [root@2026-11-25T04:38:03]\n          failed twice";
    assert!(held("IDLE+DRAIN", reason).ours_to_resume());
    for rest in ["State=IDLE", "twice Reason=x", "NodeAddr=10.0.0.9"] {
        let view = with(MULTILINE, "failed twice", rest);
        assert_eq!(view.address, "127.0.0.1");
        let reason = format!("muster: gate gpu.ecc {rest}");
        assert_eq!(view.reason.as_deref(), Some(reason.as_str()));
        assert!(!view.drained_for(DrainReason::Leaving));
    }
}

#[test]
fn a_comment_of_several_lines_is_no_field() {
    // scontrol prints the comment as it is.
    let comment = "   Comment=call Bob\nabout the fan\n\n  State=DOWN\n   on Monday\n   AllocTRES=";
    let view = with(IDLE, "   AllocTRES=", comment);
    assert_eq!((view.base, view.reason), (BaseState::Idle, None));
    let forged = IDLE.replace(
        "   AllocTRES=",
        "   Comment=x\n   State=DOWN\n   AllocTRES=",
    );
    let read = NodeView::parse(&forged);
    assert!(matches!(read, Err(SlurmError::Garbage { .. })), "{read:?}");
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
