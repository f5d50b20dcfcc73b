//! Archives downloaded by apt for dpkg, and the environment of both programs.

use std::fs::File;
use std::io::Read as _;

use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

pub(super) const CONFIGURATION: &str = "/var/lib/muster/apt/apt.conf";

/// Folder of the archives; after a killed run the folder holds the packages passed to dpkg.
pub(super) const ARCHIVES: &str = "/var/lib/muster/apt/archives";

/// Environment of apt and dpkg: questions are disabled, and the bundle is reached without a proxy.
pub(super) const ENVIRONMENT: [(&str, &str); 6] = [
    ("APT_CONFIG", CONFIGURATION),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("APT_LISTCHANGES_FRONTEND", "none"),
    ("NEEDRESTART_SUSPEND", "1"),
    ("http_proxy", ""),
    ("no_proxy", "*"),
];

pub(super) fn digest_of(path: &std::path::Path) -> std::io::Result<Digest> {
    let (mut file, mut hasher, mut chunk) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Digest(hasher.finalize().into())),
            count => hasher.update(&chunk[..count]),
        }
    }
}
