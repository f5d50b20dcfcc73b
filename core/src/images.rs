//! OS disk images: content-addressed, with the list of installed packages.

use serde::{Deserialize, Serialize};

use crate::values::Digest;

/// Metadata of an image: the manifest written by the image build, and the spec of the `image` kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImageManifest {
    pub name: String,
    pub version: String,
    pub os: String,
    pub os_version: String,
    /// Architecture, in Debian's naming: `amd64`. Images for `arm64` cannot boot yet.
    pub arch: String,
    /// Digest of the compressed blob, cached by agents and streamed to nodes.
    pub digest: Digest,
    /// Compressed size in bytes.
    pub size: u64,
    /// Digest of the uncompressed disk, as written.
    pub raw_digest: Digest,
    pub raw_size: u64,
    /// Release of the kernel booted by the image.
    pub kernel: String,
    pub packages: Vec<ImagePackage>,
    pub partitions: ImagePartitions,
    /// Signature of a release owner: the line printed by `muster image sign`, or minisign's file.
    /// Pools with `require_signature` need the signature of a trusted key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    pub signature: Option<String>,
}

/// An installed package of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImagePackage {
    pub name: String,
    pub version: String,
    pub arch: String,
}

/// Partition numbers needed for imaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImagePartitions {
    /// The EFI system partition.
    pub esp: u32,
    /// The root file system: ext4, the last partition, grown to the size of the disk.
    pub root: u32,
}
