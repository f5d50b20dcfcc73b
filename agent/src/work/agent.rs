//! State shared by all jobs of an agent process.

use std::time::Duration;

use muster_core::clock::Clock;
use muster_core::signatures::PublicKey;
use tokio_util::sync::CancellationToken;

use super::binary::NodeBinary;
use super::client::error::CallError;
use super::client::server::Server;
use super::reports::Reports;
use crate::blobs::BlobCache;
use crate::bmc::Bmcs;
use crate::boot::arm::ArmedBoots;
use crate::cluster::Clusters;
use crate::ssh::kept::KeptSessions;

/// Time after which an unreachable system is treated as down. Two attempts of this length take as
/// long as Slurm waits for a slurmd before it marks the node down (SlurmdTimeout, 300 s).
pub const SILENT: Duration = Duration::from_secs(150);

/// An agent process accepted by the server.
#[derive(Debug)]
pub struct Agent {
    /// The server API, with the epoch of this process.
    pub server: Server,
    /// Time for which the server waits for the renewal of a job. Afterwards the server takes the
    /// job back.
    pub lease: Duration,
    /// Clock set to the time of the server.
    pub clock: Clock,
    /// The muster-node for installed systems.
    pub node: NodeBinary,
    /// The armed boots, shared with the boot services.
    pub boots: ArmedBoots,
    pub bmcs: Bmcs,
    pub clusters: Clusters,
    pub blobs: BlobCache,
    /// Reports of live images, saved for a restart.
    pub reports: Reports,
    /// Public keys for signatures of live images. Empty: a live image needs no signature.
    pub live_keys: Vec<PublicKey>,
    /// Time without a successful login after which a system expected to be up is treated as down.
    pub silent: Duration,
    /// Sessions kept by a job for the next job on the same node.
    pub sessions: KeptSessions,
    /// Cancelled after the server reports another process acting for the site.
    pub superseded: CancellationToken,
}

impl Agent {
    /// Stops the agent process on a stale epoch, because another process now acts for the site.
    /// Other errors are ignored.
    pub fn heed(&self, error: &CallError) {
        if *error == CallError::StaleEpoch {
            self.superseded.cancel();
        }
    }
}
