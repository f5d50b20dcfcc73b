//! The marker of an installed disk.

use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, NodeId};
use crate::values::Digest;

/// `/etc/muster/marker.json` on an installed disk: in use, by whom, since which epoch. A wipe or an image for another claim or a lower epoch is
/// refused by muster-node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    pub protocol: u32,
    pub node: NodeId,
    pub claim: ClaimId,
    pub epoch: i64,
    pub image: Digest,
}
