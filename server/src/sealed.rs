//! Values of the database that the server's keys made: sealed secrets, and the hashes of tokens.

use muster_core::values::Digest;

/// A secret as it lies in the database.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Names the master key, so that a rotation knows what is left to do.
    pub key_id: String,
    pub wrapped_key: Vec<u8>,
    pub ciphertext: Vec<u8>,
}

/// What is stored of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMac {
    /// Of the key that made it; none where it is a plain SHA-256, which counts until the token is next used.
    pub key_id: Option<String>,
    pub mac: [u8; 32],
}

impl TokenMac {
    /// Without the key: for who makes a token beside the database and has none.
    pub fn plain(token: &str) -> Self {
        Self {
            key_id: None,
            mac: Digest::of(token.as_bytes()).0,
        }
    }
}
