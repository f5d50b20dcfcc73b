//! What every job of one agent process works with.

use std::time::Duration;

use muster_core::clock::Clock;
use tokio_util::sync::CancellationToken;

use super::binary::NodeBinary;
use super::client::error::CallError;
use super::client::server::Server;
use super::reports::Reports;
use crate::blobs::BlobCache;
use crate::bmc::Bmcs;
use crate::boot::arm::ArmedBoots;
use crate::cluster::slurm::Controllers;
use crate::ssh::kept::KeptSessions;

/// Two attempts of it are what Slurm gives a slurmd before it calls a node down (SlurmdTimeout, 300 s).
pub const SILENT: Duration = Duration::from_secs(150);

/// One agent process after the server welcomed it.
#[derive(Debug)]
pub struct Agent {
    pub server: Server,
    /// How long the server waits for a job's renewal before it takes the job back.
    pub lease: Duration,
    pub clock: Clock,
    pub node: NodeBinary,
    pub boots: ArmedBoots,
    pub bmcs: Bmcs,
    pub controllers: Controllers,
    pub blobs: BlobCache,
    pub reports: Reports,
    /// A system that is to be up and lets nobody in for so long is down.
    pub silent: Duration,
    /// What one job leaves for the next on the same node.
    pub sessions: KeptSessions,
    /// Cancelled once the server says that another process acts for the site.
    pub superseded: CancellationToken,
}

impl Agent {
    /// Notes an error that ends more than the call it came from.
    pub fn heed(&self, error: &CallError) {
        if *error == CallError::StaleEpoch {
            self.superseded.cancel();
        }
    }
}
