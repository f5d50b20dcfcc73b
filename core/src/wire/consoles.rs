//! What nodes wrote on their serial consoles, as an agent tells it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// `POST /agent/v1/consoles`: what nodes wrote on their consoles. Bounded batches; nothing here is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleReport {
    pub epoch: i64,
    /// Each node's in the order they were written.
    pub chunks: Vec<ConsoleChunk>,
}

/// A piece of a console's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleChunk {
    pub node: NodeId,
    /// When its first byte came. Later for each chunk of a node, in whole microseconds: a report that is told twice is recorded once.
    pub at: Timestamp,
    pub text: String,
}
