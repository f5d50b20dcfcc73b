//! The results of changes of reservations, for the next report to the server.

use std::collections::BTreeMap;

use muster_core::ids::ObjectId;
use muster_core::wire::failure::Failure;
use muster_core::wire::scheduler::{ClusterWaits, JobsReply, Reservations, WatchedCluster};

use super::client::error::CallError;

/// Failed attempts in a row after which a failure is reported. slurmctld gives no answer while it
/// restarts, and refuses to delete a reservation that has just ended.
const IN_A_ROW: u32 = 2;

/// The last results, by cluster.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The server takes results.
    is_taken: bool,
    results: BTreeMap<ObjectId, Attempt>,
}

/// The last attempt to make the reservations of a cluster those of the waiting nodes.
#[derive(Debug, Default)]
struct Attempt {
    failure: Option<Failure>,
    /// Failed attempts since the last success.
    failed: u32,
}

impl Reports {
    /// Returns the result to report for a cluster; `None` if no result is known, or the server takes
    /// none.
    pub(super) fn find(&self, cluster: ObjectId) -> Option<Reservations> {
        let attempt = self.results.get(&cluster).filter(|_| self.is_taken)?;
        match &attempt.failure {
            None => Some(Reservations::AsNeeded),
            Some(_) if attempt.failed < IN_A_ROW => None,
            Some(failure) => Some(Reservations::Failed(failure.clone())),
        }
    }

    /// Learns from a reply whether the server takes results.
    pub(super) fn heed(&mut self, reply: &JobsReply) {
        self.is_taken = reply.takes_reservations;
    }

    /// A server of the version before, started in place of a newer one, refuses results.
    pub(super) fn heed_error(&mut self, error: &CallError) {
        if matches!(error, CallError::Refused { .. }) {
            self.is_taken = false;
        }
    }

    /// Forgets the clusters that are no longer watched.
    pub(super) fn keep(&mut self, clusters: &[WatchedCluster]) {
        let watched = |id: &ObjectId| clusters.iter().any(|cluster| cluster.id == *id);
        self.results.retain(|id, _| watched(id));
    }

    /// Records an attempt. A failure while no node waits is neither reported nor a success.
    pub(super) fn record(&mut self, waits: &ClusterWaits, failure: Option<Failure>) {
        let waiting = waits.waits.iter().map(|wait| &wait.nodes);
        let until_windows = waits.window_waits.iter().map(|wait| &wait.nodes);
        let concerns_nodes = waiting.chain(until_windows).any(|nodes| !nodes.is_empty());
        if failure.is_some() && !concerns_nodes {
            self.results.remove(&waits.cluster);
            return;
        }
        let attempt = self.results.entry(waits.cluster).or_default();
        attempt.failed = match failure {
            Some(_) => attempt.failed.saturating_add(1),
            None => 0,
        };
        attempt.failure = failure;
    }
}

#[cfg(test)]
mod tests {
    use muster_core::wire::failure::FailureCode;
    use muster_core::wire::scheduler::Wait;

    use super::*;

    fn waits(cluster: ObjectId, nodes: &[&str]) -> ClusterWaits {
        ClusterWaits {
            cluster,
            waits: vec![Wait {
                lead_s: 900,
                nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
            }],
            window_waits: vec![],
        }
    }

    /// Returns the reports to a server that takes results.
    fn taken() -> Reports {
        let mut reports = Reports::default();
        reports.heed(&JobsReply {
            clusters: vec![],
            takes_reservations: true,
        });
        reports
    }

    #[test]
    fn a_failure_is_reported_until_a_success() {
        let cluster = ObjectId::new();
        let mut reports = taken();
        assert_eq!(reports.find(cluster), None, "no attempt yet");
        let refused = Failure::fatal(FailureCode::SlurmRefused, "Access denied");
        let refuse = |reports: &mut Reports| {
            reports.record(&waits(cluster, &["n1"]), Some(refused.clone()));
        };
        refuse(&mut reports);
        assert_eq!(reports.find(cluster), None, "the failure may pass");
        refuse(&mut reports);
        let failed = Some(Reservations::Failed(refused.clone()));
        assert_eq!(reports.find(cluster), failed);
        // The server is away for a moment: the result stays.
        reports.heed_error(&CallError::Away("refused".to_owned()));
        assert_eq!(reports.find(cluster), failed);
        assert_eq!(reports.find(ObjectId::new()), None, "another cluster");
        reports.record(&waits(cluster, &["n1"]), None);
        assert_eq!(reports.find(cluster), Some(Reservations::AsNeeded));
        refuse(&mut reports);
        assert_eq!(reports.find(cluster), None, "once in a row");
        reports.record(&waits(cluster, &[]), None);
        assert_eq!(reports.find(cluster), Some(Reservations::AsNeeded));
        reports.record(&waits(cluster, &[]), Some(refused));
        assert_eq!(reports.find(cluster), None, "no node waits: no news");
    }

    #[test]
    fn a_cluster_that_is_no_longer_watched_is_forgotten() {
        let cluster = ObjectId::new();
        let mut reports = taken();
        reports.record(&waits(cluster, &["n1"]), None);
        reports.keep(&[]);
        assert_eq!(reports.find(cluster), None);
    }

    #[test]
    fn a_server_of_the_version_before_gets_no_result() {
        let cluster = ObjectId::new();
        let mut reports = Reports::default();
        reports.record(&waits(cluster, &["n1"]), None);
        assert_eq!(reports.find(cluster), None);
        reports.heed(&JobsReply {
            clusters: vec![],
            takes_reservations: true,
        });
        assert_eq!(reports.find(cluster), Some(Reservations::AsNeeded));
        reports.heed_error(&CallError::Refused {
            status: 400,
            code: "invalid_request".to_owned(),
            detail: String::new(),
        });
        assert_eq!(reports.find(cluster), None);
    }
}
