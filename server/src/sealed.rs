//! Database values produced with the server's keys: sealed secrets, and hashes of tokens.

use muster_core::values::Digest;

/// A secret as stored in the database.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Id of the master key. A rotation uses the id to find the remaining secrets.
    pub key_id: String,
    pub wrapped_key: Vec<u8>,
    pub ciphertext: Vec<u8>,
}

/// The stored MAC of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMac {
    /// The id of the key. `None`: the value is a plain SHA-256, valid until the token's next use.
    pub key_id: Option<String>,
    pub mac: [u8; 32],
}

impl TokenMac {
    /// Returns the plain SHA-256 of a token, the form in which earlier versions stored tokens
    /// without the key. Such a row counts only with a seal.
    pub fn plain(token: &str) -> Self {
        Self {
            key_id: None,
            mac: Digest::of(token.as_bytes()).0,
        }
    }
}
