//! Messages between server, agent and node: what is read is written back as the same message, whatever order and spelling it came in.

use std::fmt::Debug;

use muster_core::facts::Facts;
use muster_core::stacks::{ConvergePlan, ConvergeReport};
use muster_core::wire::{calls, consoles, node, pair};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Every message is tried on every input: most fit one, and it is the others that must say no.
pub(crate) fn run(data: &[u8]) {
    let rounds: [fn(&[u8]); 27] = [
        round::<calls::Hello>,
        round::<calls::Welcome>,
        round::<calls::SitePoll>,
        round::<calls::SiteConfig>,
        round::<calls::Sightings>,
        round::<consoles::ConsoleReport>,
        round::<calls::LeaseJobs>,
        round::<calls::LeasedJobs>,
        round::<calls::StartAct>,
        round::<calls::ActReply>,
        round::<calls::RenewJob>,
        round::<calls::Renewed>,
        round::<calls::ReportOutcome>,
        round::<calls::RedeemPermit>,
        round::<calls::Redeemed>,
        round::<node::SiteTrust>,
        round::<node::LiveReport>,
        round::<node::Plan>,
        round::<node::RunReply>,
        round::<node::Line>,
        round::<node::Answer>,
        round::<node::Marker>,
        round::<pair::PairLine>,
        round::<pair::PairAnswer>,
        round::<Facts>,
        round::<ConvergePlan>,
        round::<ConvergeReport>,
    ];
    rounds.iter().for_each(|round| round(data));
    if let Ok(plan) = serde_json::from_slice::<ConvergePlan>(data) {
        let _ = plan.problems();
    }
}

/// Messages that hold secrets do not compare, so their JSON does.
fn round<T: DeserializeOwned + Serialize + Debug>(data: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(data) else {
        return;
    };
    let written = serde_json::to_vec(&message).expect("a message that was read can be written");
    let again: T = serde_json::from_slice(&written)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&written)));
    let rewritten = serde_json::to_vec(&again).expect("a message can be written");
    assert_eq!(
        String::from_utf8_lossy(&rewritten),
        String::from_utf8_lossy(&written),
        "{message:?}"
    );
}
