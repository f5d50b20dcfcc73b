//! A pair: what an agent is told of its two ends and answers, and what `muster-node pair serve -` and `muster-node pair ask -` are given and say there.
//! Neither detaches: the end that listens goes with the connection that started it.

use serde::{Deserialize, Serialize};

use crate::gates::GateResult;
use crate::ids::{JobId, NodeId};
use crate::values::Digest;
use crate::wire::login::Login;
use crate::wire::node::GatePlan;

/// Two nodes, and what each is to measure with the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairOrder {
    /// The first asks first.
    pub ends: [PairEnd; 2],
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairEnd {
    pub node: NodeId,
    pub name: String,
    pub login: Login,
    /// The suite's pair gates, by this end's hardware profile; `peer_address` among its variables leads to the other end.
    pub plan: GatePlan,
}

/// What one end measured to the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairWay {
    /// The end that asked.
    pub from: NodeId,
    /// The end that listened.
    pub to: NodeId,
    pub results: Vec<GateResult>,
    /// Of the end that asked; absent where it measured nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
}

/// First line on the stdin of both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairPlan {
    pub protocol: u32,
    /// Whose lock is held on both nodes meanwhile: nothing else changes them.
    pub job: JobId,
    /// One pair gate, by `only`. The end that asks has `peer_address` and `pair_port` among its variables.
    pub plan: GatePlan,
}

/// Lines of the end that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "pair", rename_all = "snake_case", deny_unknown_fields)]
pub enum PairLine {
    /// The tool listens there.
    Listening { port: u16 },
    /// The tool ended by itself; the last line.
    Ended {
        exit: Option<i32>,
        /// The end of what it printed, at most 4 KiB.
        said: String,
    },
}

/// The one line of the end that asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairAnswer {
    pub results: Vec<GateResult>,
    /// Of the node that asked.
    pub fingerprint: Digest,
}
