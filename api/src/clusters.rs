//! Clusters: where nodes are admitted.

use muster_core::clusters::ClusterSpec;

use crate::kind::Kind;
use crate::object::NoStatus;

impl Kind for ClusterSpec {
    const KIND: &'static str = "cluster";
    const COLLECTION: &'static str = "clusters";
    const SCHEMA: &'static str = "Cluster";
    type Status = NoStatus;
}
