//! Messages between agent and muster-node.

use super::{at, challenge, converge, golden, id, mac, wipe, write_image};
use crate::ids::{JobId, NodeId};
use crate::wire::PROTOCOL;
use crate::wire::node::{
    Answer, Line, LiveReport, Plan, Progress, RunReply, SiteTrust, WipeMethod, WipedDisk, Work,
    WorkResult,
};

#[test]
fn between_agent_and_node() {
    let trust = SiteTrust {
        protocol: PROTOCOL,
        permit_public_key: "AA==".into(),
        user_ca: "ssh-ed25519 AAAA".into(),
        agent_url: "http://10.77.0.1:8090/boot/v1".into(),
    };
    golden("node-site-trust", &trust);
    let host_key = "ssh-ed25519 AAAA".into();
    golden(
        "node-live-report",
        &LiveReport {
            protocol: PROTOCOL,
            nonce: "00".into(),
            mac: mac(),
            host_key,
        },
    );
    let plan = |work| Plan {
        protocol: PROTOCOL,
        job: JobId(id(1)),
        attempt: 2,
        node: NodeId(id(2)),
        epoch: 3,
        timeout_s: 3600,
        work,
    };
    golden(
        "node-plan-write-image",
        &plan(Work::WriteImage(write_image())),
    );
    golden("node-plan-converge", &plan(Work::Converge(converge())));
    golden("node-plan-wipe", &plan(Work::Wipe(wipe())));
    golden(
        "node-run-reply",
        &RunReply::Already {
            job: JobId(id(1)),
            attempt: 1,
        },
    );
    golden("node-line-challenge", &Line::Challenge(challenge()));
    golden(
        "node-answer-refused",
        &Answer::Refused {
            reason: "it expired".into(),
        },
    );
    let wiped = WipedDisk {
        serial: "S".into(),
        method: WipeMethod::NvmeFormat,
        bytes: 1,
        verified_blocks: 256,
    };
    let result = Box::new(WorkResult::Wiped { disks: vec![wiped] });
    golden("node-line-result", &Line::Result { at: at(), result });
    let progress = Progress {
        at: at(),
        message: "write".into(),
        done: Some(1),
        total: Some(2),
        unit: Some("bytes".into()),
    };
    golden("node-line-progress", &Line::Progress(progress));
}
