//! The marker of an installed disk.

use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, NodeId};
use crate::values::Digest;

/// `/etc/muster/marker.json` on an installed disk: the claim using the disk, and the epoch.
/// muster-node rejects a wipe or an image write for another claim or for a lower epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    pub protocol: u32,
    pub node: NodeId,
    pub claim: ClaimId,
    pub epoch: i64,
    pub image: Digest,
}
