//! Signing keys: the public keys of release owners, whose signatures the fleet trusts
//! (docs/signatures.md).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// A trusted public key. A pool with `require_signature` installs only images signed by a trusted
/// key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SigningKeySpec {
    /// Ed25519 public key in minisign's format: the line that `muster image key` prints, or the
    /// whole file.
    #[schema(max_length = 1000)]
    pub public_key: String,
    /// End of the trust. From this time on, the signatures of the key are no longer valid. Absent:
    /// no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// Free text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
}

impl Kind for SigningKeySpec {
    const KIND: &'static str = "signing_key";
    const COLLECTION: &'static str = "signing_keys";
    const SCHEMA: &'static str = "SigningKey";
    type Status = NoStatus;
}
