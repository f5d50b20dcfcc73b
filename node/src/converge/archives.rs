//! Archives that apt downloaded for dpkg, and the environment that both run in.

use std::fs::File;
use std::io::Read as _;

use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

pub(super) const CONFIGURATION: &str = "/var/lib/muster/apt/apt.conf";

/// Of a run that was killed in the middle it holds the packages that dpkg was given.
pub(super) const ARCHIVES: &str = "/var/lib/muster/apt/archives";

/// Nobody is there to answer questions, and the bundle is reached without a proxy.
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
