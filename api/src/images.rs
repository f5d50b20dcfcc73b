//! Images: OS disk images, content-addressed, each with a manifest of packages. The blob itself is
//! uploaded to `/v1/blobs`.

use muster_core::images::ImageManifest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// The server's facts about an image, besides the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageStatus {
    /// Whether the blob named by the manifest has been uploaded.
    pub blob_present: bool,
}

impl Kind for ImageManifest {
    const KIND: &'static str = "image";
    const COLLECTION: &'static str = "images";
    const SCHEMA: &'static str = "Image";
    type Status = ImageStatus;
}
