//! The server's own keys in the database: 32 bytes, sealed by the master key.

use anyhow::anyhow;

use super::master::MasterKey;
use crate::sealed::Sealed;

/// Returns the place of one of the server's own keys. The place is bound into the ciphertext.
pub fn place(name: &str) -> String {
    format!("server_keys/{name}")
}

pub(super) fn seed(master: &MasterKey, sealed: &Sealed, name: &str) -> anyhow::Result<[u8; 32]> {
    let bytes = master.open(&place(name), sealed)?;
    bytes
        .try_into()
        .map_err(|_| anyhow!("the {name} key has the wrong length"))
}
