//! GPU-hours lost by waiting.

use super::*;

fn lost(node: Node) -> Option<Option<u64>> {
    let fleet = Fleet {
        nodes: vec![node],
        ..fleet(0)
    };
    let losses = count_losses(&fleet, start() + minutes(60));
    losses.nodes.first().map(|loss| loss.gpu_seconds)
}

fn idle(stage: Stage) -> Node {
    Node {
        idle_since: Some(start()),
        ..staged(0, stage)
    }
}

#[test]
fn idle_time_before_the_change_is_lost() {
    let an_hour = Some(Some(8 * 3600));
    assert_eq!(lost(idle(Stage::Waiting)), an_hour);
    for change in [Change::Draining, Change::Drained] {
        assert_eq!(lost(idle(Stage::Changing(change))), an_hour);
    }
    for stage in [
        Stage::NotBegun,
        Stage::Changing(Change::Working),
        Stage::Validating(Validation::Gating),
        Stage::Skipped,
    ] {
        assert_eq!(lost(idle(stage.clone())), None, "{stage:?}");
    }
}

#[test]
fn a_node_that_runs_jobs_while_waiting_loses_none() {
    let busy = Node {
        jobs: job_for("7", 600),
        ..idle(Stage::Waiting)
    };
    assert_eq!(lost(busy), Some(Some(0)));
    assert_eq!(
        lost(out(idle(Stage::Waiting))),
        None,
        "out for another reason"
    );
    let later = Node {
        idle_since: Some(start() + minutes(61)),
        ..idle(Stage::Waiting)
    };
    assert_eq!(lost(later), Some(Some(0)), "a clock ahead of ours");
}

#[test]
fn a_waiting_node_loses_time_outside_windows_and_none_to_other_drains() {
    let closed = Fleet {
        nodes: vec![idle(Stage::Waiting)],
        closed: vec![Period {
            start: start() + minutes(10),
            end: start() + minutes(50),
        }],
        ..fleet(0)
    };
    let losses = count_losses(&closed, start() + minutes(60));
    assert_eq!(losses.gpu_seconds, 8 * 60 * 60);
    let mut drained = idle(Stage::Waiting);
    drained.member.others_drain = Some("NHC: fan 3".to_owned());
    assert_eq!(lost(drained), None);
}

#[test]
fn an_unknown_loss_is_reported_as_unknown() {
    let unseen = Node {
        jobs: Jobs::Unknown,
        ..idle(Stage::Waiting)
    };
    let unmarked = Node {
        idle_since: None,
        ..idle(Stage::Waiting)
    };
    assert_eq!(
        (lost(unseen.clone()), lost(unmarked)),
        (Some(None), Some(None))
    );
    let [uncounted, without] = [None, Some(0)].map(|gpus| Node {
        gpus,
        ..idle(Stage::Waiting)
    });
    let unseen_without = Node {
        gpus: Some(0),
        ..unseen.clone()
    };
    assert_eq!(lost(uncounted), Some(None));
    assert_eq!(
        (lost(without), lost(unseen_without)),
        (Some(Some(0)), Some(Some(0)))
    );
    let mut fleet = Fleet {
        nodes: vec![
            unseen,
            idle(Stage::Waiting),
            idle(Stage::Changing(Change::Drained)),
        ],
        ..fleet(0)
    };
    let losses = count_losses(&fleet, start() + minutes(45));
    assert_eq!((losses.gpu_seconds, losses.unknown), (2 * 8 * 45 * 60, 1));
    assert_eq!(
        losses.to_string(),
        "12.0 GPU-hours lost by waiting; unknown for 1 node"
    );
    fleet.nodes.remove(0);
    assert_eq!(
        count_losses(&fleet, start() + minutes(3)).to_string(),
        "0.8 GPU-hours lost by waiting"
    );
}
