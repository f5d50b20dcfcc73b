//! Credentials: secrets, by name. A secret can be written but is never returned.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// A credential. `secret` is write-only: responses omit the secret and show a keyed hash in
/// `status`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialSpec {
    pub purpose: CredentialPurpose,
    /// The account of the secret. Required for BMC credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Networks of the BMCs that get the secret, at most 64, in CIDR notation. Only for BMC
    /// credentials. Absent: every BMC inside of its site's `bmc_networks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub networks: Vec<IpNet>,
    /// Absent in responses. A `PUT` without `secret` keeps the stored secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, format = Password)]
    pub secret: Option<muster_core::values::Secret>,
}

/// The allowed use of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialPurpose {
    /// Login to BMCs.
    Bmc,
    /// Inserted into files of a stack, through the file's `secret` field.
    Stack,
    /// One login as root to a machine being adopted: an OpenSSH private key or a password. Deleted
    /// after the adoption.
    Adopt,
}

/// The visible facts about a stored secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialStatus {
    pub set: bool,
    /// A keyed hash of the secret. Equal secrets of one credential have equal hashes; the hash
    /// reveals no more about the secret.
    pub secret_hash: Option<String>,
}

impl Kind for CredentialSpec {
    const KIND: &'static str = "credential";
    const COLLECTION: &'static str = "credentials";
    const SCHEMA: &'static str = "Credential";
    type Status = CredentialStatus;
}
