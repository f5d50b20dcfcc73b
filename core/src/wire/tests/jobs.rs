//! Goldens of the report about jobs and of its reply.

use super::{at, golden, id};
use crate::ids::ObjectId;
use crate::wire::failure::{Failure, FailureCode};
use crate::wire::scheduler::{
    ClusterJob, ClusterWaits, JobsLook, JobsReply, JobsReport, Reservations, Wait, WindowWait,
};

pub(super) fn check() {
    let job = |id: &str, ends, nodes: &[&str]| ClusterJob {
        id: id.into(),
        user: "alice".into(),
        state: "RUNNING".into(),
        ends,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        requeues: id == "18_4",
    };
    let look = JobsLook {
        cluster: ObjectId(id(9)),
        jobs: vec![
            job("17", Some(at()), &["n1", "n2"]),
            job("18_4", None, &["n3"]),
        ],
        reservations: None,
    };
    let failed = Failure::fatal(FailureCode::SlurmRefused, "Access/permission denied");
    let with = |number, reservations| JobsLook {
        cluster: ObjectId(id(number)),
        jobs: vec![],
        reservations: Some(reservations),
    };
    golden(
        "agent-scheduler-jobs",
        &JobsReport {
            epoch: 1,
            looks: vec![
                look,
                with(10, Reservations::AsNeeded),
                with(11, Reservations::Failed(failed)),
            ],
        },
    );
    let nodes = vec!["n1".to_owned()];
    let waits = ClusterWaits {
        cluster: ObjectId(id(9)),
        waits: vec![Wait {
            lead_s: 900,
            nodes: nodes.clone(),
        }],
        window_waits: vec![WindowWait {
            opens_at: at(),
            nodes,
        }],
    };
    golden(
        "agent-scheduler-jobs-reply",
        &JobsReply {
            clusters: vec![waits],
            takes_reservations: true,
        },
    );
}
