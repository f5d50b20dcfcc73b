//! Credentials: secrets, by name. A secret goes in and is never answered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// A credential. `secret` is write-only: answers leave it out and show a keyed hash in `status`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialSpec {
    pub purpose: CredentialPurpose,
    /// The account it belongs to; BMC credentials need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Absent in answers; a `PUT` without it keeps what is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, format = Password)]
    pub secret: Option<muster_core::values::Secret>,
}

/// What a credential may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialPurpose {
    /// Logs in to BMCs.
    Bmc,
    /// Goes into a stack's files by `secret`.
    Stack,
    /// Logs in once, as root, to a machine that is adopted: an OpenSSH private key or a password. Forgotten when that is done.
    Adopt,
}

/// What may be told about a stored secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialStatus {
    pub set: bool,
    /// A keyed hash: equal secrets of one credential show the same, and nothing else can be learnt from it.
    pub secret_hash: Option<String>,
}

impl Kind for CredentialSpec {
    const KIND: &'static str = "credential";
    const COLLECTION: &'static str = "credentials";
    const SCHEMA: &'static str = "Credential";
    type Status = CredentialStatus;
}
