//! The network boot loaders, held in memory: no file system stands behind TFTP or HTTP boot.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// iPXE over the PXE ROM's own driver, for BIOS.
pub const UNDIONLY: &str = "undionly.kpxe";
/// iPXE over the firmware's own driver, for UEFI.
pub const SNPONLY: &str = "snponly.efi";
/// The script any iPXE is given first: it loads ours unless it is ours.
pub const FIRST_SCRIPT: &str = "muster.ipxe";
/// iPXE with every driver is below 2 MB.
const MAX_LOADER: u64 = 8 << 20;

/// Loaders by exact name.
#[derive(Clone, Debug, Default)]
pub struct IpxeBinaries(Arc<HashMap<String, Bytes>>);

impl IpxeBinaries {
    /// Reads the three loaders from the directory that `images/ipxe/build` filled.
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

    /// Loaders from bytes, for tests.
    pub fn of<const N: usize>(files: [(&str, Bytes); N]) -> Self {
        Self(Arc::new(
            files
                .into_iter()
                .map(|(name, bytes)| (name.to_owned(), bytes))
                .collect(),
        ))
    }

    /// A loader by its exact name.
    pub fn get(&self, name: &str) -> Option<Bytes> {
        self.0.get(name).cloned()
    }
}
