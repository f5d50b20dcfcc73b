//! Login of the agent to a node over SSH.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::values::Secret;

/// Login to a node with a known host key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub address: Ipv4Addr,
    pub port: u16,
    /// OpenSSH public-key line of the node. The agent rejects any other host key.
    pub host_key: String,
    pub user_key: UserKey,
}

/// An ephemeral SSH user key, and the certificate signed by the CA for this job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserKey {
    /// OpenSSH private key, PEM.
    pub private_key: Secret,
    /// OpenSSH certificate line.
    pub certificate: String,
}

impl PartialEq for UserKey {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }
}

/// The SSH certificates of a node that its systems must refuse, because an agent was removed. The
/// agent writes the list to each named system that the job logs in to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokedKeys {
    /// Host key of the installed system. Absent: no system is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Host key of the running live image. Absent: no live image runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// Serials of the certificates: the complete list of the node.
    pub serials: Vec<u64>,
}
