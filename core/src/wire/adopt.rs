//! Server and agent: adopting a machine installed without Muster.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::login::UserKey;
use super::node::Marker;
use crate::values::Secret;

/// The first login to a running machine, and the data written there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pub address: Ipv4Addr,
    pub port: u16,
    /// Fingerprint of the machine's host key, confirmed by a person. `None`: report the offered key
    /// and stop.
    pub host_key: Option<String>,
    pub user: String,
    /// An OpenSSH private key or a password, for a single login.
    pub secret: Secret,
    /// The line for authorized_keys: trusts our CA for this node and assignment.
    pub trust: String,
    pub marker: Marker,
    /// The key and certificate for later logins.
    pub user_key: UserKey,
}

impl PartialEq for Adopt {
    /// Compares all fields except `secret`, because secrets have no equality.
    fn eq(&self, other: &Self) -> bool {
        (
            self.address,
            self.port,
            &self.host_key,
            &self.user,
            &self.trust,
            &self.marker,
            &self.user_key,
        ) == (
            other.address,
            other.port,
            &other.host_key,
            &other.user,
            &other.trust,
            &other.marker,
            &other.user_key,
        )
    }
}
