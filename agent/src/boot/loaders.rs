//! The network boot loaders, held in memory. TFTP and HTTP boot never read the file system.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// iPXE using the driver of the PXE ROM, for BIOS.
pub const UNDIONLY: &str = "undionly.kpxe";
/// iPXE using the driver of the firmware, for UEFI.
pub const SNPONLY: &str = "snponly.efi";
/// The first script for any iPXE. The script loads our iPXE unless our iPXE is already running.
pub const FIRST_SCRIPT: &str = "muster.ipxe";
/// Maximum size of a loader. iPXE with every driver has less than 2 MB.
const MAX_LOADER: u64 = 8 << 20;

/// Loaders by exact name.
#[derive(Clone, Debug, Default)]
pub struct IpxeBinaries(Arc<HashMap<String, Bytes>>);

impl IpxeBinaries {
    /// Reads the three loaders from the output directory of `images/ipxe/build`.
    pub fn load(dir: &Path) -> io::Result<Self> {
        let names = [UNDIONLY, SNPONLY, FIRST_SCRIPT];
        let files = names.into_iter().map(|name| {
            let read = || {
                let mut bytes = Vec::new();
                std::fs::File::open(dir.join(name))?
                    .take(MAX_LOADER + 1)
                    .read_to_end(&mut bytes)?;
                match bytes.len() as u64 {
                    1..=MAX_LOADER => Ok(Bytes::from(bytes)),
                    size => Err(io::Error::other(format!("{size} bytes is no boot loader"))),
                }
            };
            let explain = |error: io::Error| {
                io::Error::new(
                    error.kind(),
                    format!(
                        "boot loader {}: {error}; images/ipxe/build makes it",
                        dir.join(name).display()
                    ),
                )
            };
            Ok((name.to_owned(), read().map_err(explain)?))
        });
        Ok(Self(Arc::new(files.collect::<io::Result<_>>()?)))
    }

    /// Creates loaders from bytes, for tests.
    pub fn of<const N: usize>(files: [(&str, Bytes); N]) -> Self {
        Self(Arc::new(
            files
                .into_iter()
                .map(|(name, bytes)| (name.to_owned(), bytes))
                .collect(),
        ))
    }

    /// Returns a loader by its exact name.
    pub fn get(&self, name: &str) -> Option<Bytes> {
        self.0.get(name).cloned()
    }
}
