//! Server and agent: taking over a machine that somebody else installed.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::login::UserKey;
use crate::stacks::Marker;
use crate::values::Secret;

/// The first login to a machine that runs already, and what is written there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pub address: Ipv4Addr,
    pub port: u16,
    /// Fingerprint of its host key, confirmed by a person; `None`: only tell which one it shows.
    pub host_key: Option<String>,
    pub user: String,
    /// An OpenSSH private key or a password; for this once.
    pub secret: Secret,
    /// The line of authorized_keys that trusts our CA for this node and assignment.
    pub trust: String,
    pub marker: Marker,
    /// To log in with afterwards.
    pub user_key: UserKey,
}

impl PartialEq for Adopt {
    /// Secrets do not compare.
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
