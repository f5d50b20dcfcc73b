//! Images: OS disk images, content-addressed, with their package manifests. The blob itself goes to `/v1/blobs`.

use muster_core::images::ImageManifest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// What the server knows of an image beside its manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageStatus {
    /// Whether the blob that the manifest names has been uploaded.
    pub blob_present: bool,
}

impl Kind for ImageManifest {
    const KIND: &'static str = "image";
    const COLLECTION: &'static str = "images";
    const SCHEMA: &'static str = "Image";
    type Status = ImageStatus;
}
