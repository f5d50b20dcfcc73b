//! Tests of the parser on recorded text, and of all operations against a real controller.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

mod controller; // A real controller
mod private; // A private Slurm for a test
mod views; // The parser on recorded text

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
/// Recorded output of `scontrol show node n1`, 22.05.8 on Debian 12, after an administrator wrote a
/// reason of two lines.
const MULTILINE: &str = include_str!("multiline-22.05.8.txt");
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
        spine: None,
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
