//! OS disk images: content-addressed, with the packages they hold.

use serde::{Deserialize, Serialize};

use crate::values::Digest;

/// What is known of an image: the manifest its build writes, and the spec of the `image` kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImageManifest {
    pub name: String,
    pub version: String,
    pub os: String,
    pub os_version: String,
    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub arch: String,
    /// Of the compressed blob, which is what agents cache and nodes stream.
    pub digest: Digest,
    /// Compressed size in bytes.
    pub size: u64,
    /// Of the disk as it is written.
    pub raw_digest: Digest,
    pub raw_size: u64,
    /// The release of the kernel it boots.
    pub kernel: String,
    pub packages: Vec<ImagePackage>,
    pub partitions: ImagePartitions,
}

/// One installed package of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImagePackage {
    pub name: String,
    pub version: String,
    pub arch: String,
}

/// Partition numbers that imaging must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImagePartitions {
    /// The EFI system partition.
    pub esp: u32,
    /// The root file system: ext4, the last partition, grown to the disk.
    pub root: u32,
}
