//! Network profiles: bonds, VLANs, MTU, rails and addresses of installed nodes.

use muster_core::network::NetworkProfile;

use crate::kind::Kind;
use crate::object::NoStatus;

impl Kind for NetworkProfile {
    const KIND: &'static str = "network_profile";
    const COLLECTION: &'static str = "network_profiles";
    const SCHEMA: &'static str = "NetworkProfileObject";
    type Status = NoStatus;
}
