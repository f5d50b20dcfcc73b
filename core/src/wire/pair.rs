//! A pair gate between two nodes: the agent's order and result, and the input and output of
//! `muster-node pair serve -` and `muster-node pair ask -`. Both commands run in the foreground:
//! the listening end stops when the connection of its caller closes.

use serde::{Deserialize, Serialize};

use crate::gates::GateResult;
use crate::ids::{JobId, NodeId};
use crate::values::Digest;
use crate::wire::login::Login;
use crate::wire::node::GatePlan;

/// Two nodes, and the gates measured between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairOrder {
    /// The first end is the first client.
    pub ends: [PairEnd; 2],
}

/// One end of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairEnd {
    pub node: NodeId,
    pub name: String,
    pub login: Login,
    /// The pair gates of the suite, with thresholds of this end's hardware profile. The variable
    /// `peer_address` is the address of the other end.
    pub plan: GatePlan,
}

/// The measurements from one end to the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairWay {
    /// The client end, which measures.
    pub from: NodeId,
    /// The listening end.
    pub to: NodeId,
    pub results: Vec<GateResult>,
    /// Fingerprint of the client end. Absent if the client end measured no gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
}

/// First line on the stdin of both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairPlan {
    pub protocol: u32,
    /// The job holding the lock on both nodes during the measurement, so no other job changes the
    /// nodes.
    pub job: JobId,
    /// One pair gate, selected by `only`. At the client end, the variables include `peer_address`
    /// and `pair_port`.
    pub plan: GatePlan,
}

/// Output lines of the listening end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "pair", rename_all = "snake_case", deny_unknown_fields)]
pub enum PairLine {
    /// The tool listens on this port.
    Listening { port: u16 },
    /// The tool ended by itself; the last line.
    Ended {
        exit: Option<i32>,
        /// The end of the tool's output, at most 4 KiB.
        said: String,
    },
}

/// The only output line of the client end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairAnswer {
    pub results: Vec<GateResult>,
    /// Fingerprint of the client node.
    pub fingerprint: Digest,
}
