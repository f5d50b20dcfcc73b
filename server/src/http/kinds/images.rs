//! Images.

use muster_api::images::ImageStatus;
use muster_core::images::ImageManifest;
use muster_core::signatures::check_form;
use sqlx::PgConnection;

use super::signatures;
use super::signing_keys::LONGEST_TEXT;
use crate::app::App;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::blobs;
use crate::http::declared::{Declared, LARGE_BODY};

impl Declared for ImageManifest {
    const IN_REVISIONS: bool = true;
    const BODY_LIMIT: usize = LARGE_BODY;

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (pointer, size) in [("/spec/size", self.size), ("/spec/raw_size", self.raw_size)] {
            if size == 0 {
                faults.push(fault(pointer, "out_of_range", "more than 0"));
            }
        }
        if self.partitions.esp == self.partitions.root {
            faults.push(fault(
                "/spec/partitions",
                "same_partition",
                "The ESP and the root file system are two partitions.",
            ));
        }
        let signature = self.signature.as_deref().unwrap_or_default();
        if signature.chars().count() > LONGEST_TEXT {
            let detail = format!("At most {LONGEST_TEXT} characters.");
            faults.push(fault("/spec/signature", "too_long", detail));
        } else if self.signature.is_some()
            && let Err(error) = check_form(signature)
        {
            let detail = error.to_string();
            faults.push(fault("/spec/signature", "invalid_signature", detail));
        }
        faults
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        signatures::check_image(conn, before, row).await
    }

    async fn status(
        app: &App,
        _: &mut PgConnection,
        row: &ObjectRow,
    ) -> Result<ImageStatus, Error> {
        let digest = row
            .spec
            .get("digest")
            .and_then(|digest| digest.as_str())
            .and_then(|text| text.parse().ok());
        Ok(ImageStatus {
            blob_present: blobs::is_stored(app, digest).await,
        })
    }
}
