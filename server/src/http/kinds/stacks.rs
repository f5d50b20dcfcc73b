//! Stacks. A locked stack is what nodes were promised: under the same version it never changes.

use muster_api::stacks::StackStatus;
use muster_core::images::ImageManifest;
use muster_core::stacks::rules::{self, Finding, Level, Subject};
use muster_core::stacks::{Part, StackSpec};
use muster_core::values::Digest;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, LARGE_BODY, Reference, Targets, fault};
use crate::http::{blobs, document};

/// Of all that a locked stack says.
fn promised(stack: &StackSpec) -> Digest {
    Digest::of(&serde_json::to_vec(stack).expect("a stack is JSON"))
}

/// A finding of the rules where it stands in the document.
fn refusal(stack: &StackSpec, finding: &Finding) -> Fault {
    let pointer = match stack.packages.contains_key(&finding.about) {
        true => format!("/spec/packages/{}", document::escape(&finding.about)),
        false => "/spec".to_owned(),
    };
    fault(pointer, "incompatible", finding.to_string())
}

impl Declared for StackSpec {
    const BODY_LIMIT: usize = LARGE_BODY;

    fn references(&self) -> Vec<Reference<'_>> {
        let mut references = vec![Reference::new("/spec/image", "image", &self.image)];
        for (f, file) in self.files.iter().enumerate() {
            for (p, part) in file.content.iter().enumerate() {
                if let Part::Secret(name) = part {
                    let pointer = format!("/spec/files/{f}/content/{p}/secret");
                    references.push(Reference::new(pointer, "credential", name));
                }
            }
        }
        references
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            let plain = file.path.starts_with('/') && !file.path.split('/').any(|part| matches!(part, "." | ".."));
            if !plain || file.path.chars().any(char::is_control) {
                faults.push(fault(
                    format!("/spec/files/{at}/path"),
                    "invalid_path",
                    "An absolute path without . and ..",
                ));
            }
            if u32::from_str_radix(&file.mode, 8).map_or(true, |mode| mode > 0o7777) {
                faults.push(fault(format!("/spec/files/{at}/mode"), "invalid_mode", "Octal, as \"0644\""));
            }
        }
        faults
    }

    fn faults_beside(&self, targets: &Targets) -> Result<Vec<Fault>, Error> {
        let image: Option<ImageManifest> = targets.spec("/spec/image")?;
        let subject = Subject { stack: self, image: image.as_ref(), facts: None };
        let refused = rules::findings(subject).into_iter().filter(|finding| finding.level == Level::Refused);
        let mut faults: Vec<Fault> = refused.map(|finding| refusal(self, &finding)).collect();
        if let (Some(lock), Some(image)) = (&self.lock, image)
            && lock.image_digest != image.digest
        {
            let detail =
                format!("The lock was made over {}, the image is {}: lock it again.", lock.image_digest, image.digest);
            faults.push(fault("/spec/lock/image_digest", "other_image", detail));
        }
        for (pointer, credential) in targets.0.iter().filter(|(_, row)| row.kind == "credential") {
            if credential.spec["purpose"] != "stack" {
                faults.push(fault(pointer.clone(), "wrong_purpose", "Only credentials for stacks go into files."));
            }
        }
        Ok(faults)
    }

    fn allow_change(&self, new: &Self) -> Result<(), Error> {
        match self.lock.is_some() && self.version == new.version && self != new {
            true => Err(Error::conflict(
                "immutable",
                format!("Version {} is locked and stays as it is; publish another version.", self.version),
            )),
            false => Ok(()),
        }
    }

    /// What was promised under a version is held against whatever comes under it later, with other versions between.
    fn noted(&self) -> Value {
        match self.lock {
            Some(_) => json!({ "version": self.version, "digest": promised(self) }),
            None => Value::Null,
        }
    }

    async fn written(_: &App, conn: &mut PgConnection, row: &ObjectRow) -> Result<(), Error> {
        let spec: Self = document::typed(&row.spec)?;
        if spec.lock.is_none() {
            return Ok(());
        }
        match db::events::find_digest(conn, row.id, &spec.version).await? {
            Some(digest) if digest != promised(&spec).to_string() => Err(Error::conflict(
                "immutable",
                format!(
                    "Version {} was published before as {digest} and stays that; publish another version.",
                    spec.version
                ),
            )),
            _ => Ok(()),
        }
    }

    async fn status(app: &App, _: &mut PgConnection, row: &ObjectRow) -> Result<StackStatus, Error> {
        let spec: StackSpec = document::typed(&row.spec)?;
        Ok(StackStatus {
            lock_digest: spec.lock.as_ref().map(|lock| lock.digest()),
            bundle_present: blobs::present(app, spec.bundle).await,
        })
    }
}
