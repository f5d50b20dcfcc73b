//! Console output of nodes, as reported by an agent.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// `POST /agent/v1/consoles`: text written by nodes to their serial consoles, in bounded batches.
/// Untrusted input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleReport {
    pub epoch: i64,
    /// Chunks of one node are in the order of writing.
    pub chunks: Vec<ConsoleChunk>,
}

/// A piece of a console's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleChunk {
    pub node: NodeId,
    /// Time of the first byte's arrival, in whole microseconds, strictly increasing for each node.
    /// The time identifies the chunk, so a repeated report is recorded once.
    pub at: Timestamp,
    pub text: String,
}
