//! Stacks. Nodes rely on a locked stack, so a locked stack never changes under the same version.

use muster_api::stacks::StackStatus;
use muster_core::images::ImageManifest;
use muster_core::stacks::rules::{self, Finding, Level, Subject};
use muster_core::stacks::summary::summarize_stack;
use muster_core::stacks::{Part, StackSpec};
use muster_core::values::Digest;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::blobs;
use crate::http::declared::{Declared, LARGE_BODY, Reference, Targets};
use crate::intents::references::Table;

/// The digest of a locked stack. Empty members are left out, so that a member added by a later
/// version of Muster does not change the digest of older stacks.
fn promised(stack: &StackSpec) -> Digest {
    let document = serde_json::to_value(stack).expect("a stack is JSON");
    Digest::of(
        document_without_empties(document)
            .unwrap_or_default()
            .to_string()
            .as_bytes(),
    )
}

/// Removes empty members from a document. Returns `None` for an empty document. Items of a list
/// keep their places.
fn document_without_empties(document: Value) -> Option<Value> {
    match document {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(
            items
                .into_iter()
                .map(|item| document_without_empties(item).unwrap_or_default())
                .collect(),
        ),
        Value::Object(members) => {
            let kept = members
                .into_iter()
                .filter_map(|(name, value)| Some((name, document_without_empties(value)?)));
            Some(Value::Object(kept.collect()))
                .filter(|kept| kept.as_object().is_some_and(|kept| !kept.is_empty()))
        }
        kept => Some(kept),
    }
}

/// Renders a finding of the rules as a fault, with the pointer to the package where the finding
/// names one.
fn render_fault(stack: &StackSpec, finding: &Finding) -> Fault {
    let pointer = match stack.packages.contains_key(&finding.about) {
        true => format!("/spec/packages/{}", document::escape(&finding.about)),
        false => "/spec".to_owned(),
    };
    fault(pointer, "incompatible", finding.to_string())
}

impl Declared for StackSpec {
    const IN_REVISIONS: bool = true;
    const BODY_LIMIT: usize = LARGE_BODY;
    const REFERENCES: Table = &[
        ("/spec/image", "image"),
        ("/spec/files/*/content/*/secret", "credential"),
    ];

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
            let plain = file.path.starts_with('/')
                && !file.path.split('/').any(|part| matches!(part, "." | ".."));
            if !plain || file.path.chars().any(char::is_control) {
                faults.push(fault(
                    format!("/spec/files/{at}/path"),
                    "invalid_path",
                    "An absolute path without . and ..",
                ));
            }
            if u32::from_str_radix(&file.mode, 8).map_or(true, |mode| mode > 0o7777) {
                faults.push(fault(
                    format!("/spec/files/{at}/mode"),
                    "invalid_mode",
                    "Octal, as \"0644\"",
                ));
            }
        }
        faults
    }

    fn faults_beside(&self, targets: &Targets) -> Result<Vec<Fault>, Error> {
        let image: Option<ImageManifest> = targets.spec("/spec/image")?;
        let subject = Subject {
            stack: self,
            image: image.as_ref(),
            facts: None,
        };
        let refused = rules::findings(subject)
            .into_iter()
            .filter(|finding| finding.level == Level::Refused);
        let mut faults: Vec<Fault> = refused
            .map(|finding| render_fault(self, &finding))
            .collect();
        if let (Some(lock), Some(image)) = (&self.lock, image)
            && lock.image_digest != image.digest
        {
            let detail = format!(
                "The lock was made over {}, the image is {}: lock it again.",
                lock.image_digest, image.digest
            );
            faults.push(fault("/spec/lock/image_digest", "other_image", detail));
        }
        for (pointer, credential) in targets.0.iter().filter(|(_, row)| row.kind == "credential") {
            if credential.spec["purpose"] != "stack" {
                faults.push(fault(
                    pointer.clone(),
                    "wrong_purpose",
                    "Only credentials for stacks go into files.",
                ));
            }
        }
        Ok(faults)
    }

    fn allow_change(&self, new: &Self) -> Result<(), Error> {
        match self.lock.is_some() && self.version == new.version && self != new {
            true => Err(Error::conflict(
                "immutable",
                format!(
                    "Version {} is locked and cannot change; publish another version.",
                    self.version
                ),
            )),
            false => Ok(()),
        }
    }

    /// Records version and digest of a locked stack in the event. A server of the version before
    /// compares a later write under the same version with the digest.
    fn noted(&self) -> Value {
        match self.lock {
            Some(_) => json!({ "version": self.version, "digest": promised(self) }),
            None => Value::Null,
        }
    }

    /// Records the digest of a locked version. A later write under the same version is compared
    /// with the digest, also after other versions in between.
    async fn written(_: &App, conn: &mut PgConnection, row: &ObjectRow) -> Result<(), Error> {
        let spec: Self = document::stored(row)?;
        if spec.lock.is_none() {
            return Ok(());
        }
        let promised = promised(&spec).to_string();
        let digest = db::stack_versions::publish(conn, row.id, &spec.version, &promised).await?;
        match digest == promised {
            true => Ok(()),
            false => Err(Error::conflict(
                "immutable",
                format!(
                    "Version {} was published before as {digest}; publish another version.",
                    spec.version
                ),
            )),
        }
    }

    async fn status(
        app: &App,
        _: &mut PgConnection,
        row: &ObjectRow,
    ) -> Result<StackStatus, Error> {
        let spec: StackSpec = document::stored(row)?;
        let summary = summarize_stack(&spec);
        Ok(StackStatus {
            lock_digest: summary.closure.as_ref().map(|closure| closure.lock),
            bundle_present: blobs::is_stored(app, spec.bundle).await,
            summary: Some(summary),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest that was noted is looked for by every later version: it must not change with the language.
    #[test]
    fn a_version_is_promised_by_what_it_says_and_not_by_what_it_leaves_out() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let stack: StackSpec = serde_json::from_value(json!({
            "version": "1", "image": "debian-12", "packages": { "chrony": "4.3-2" },
            "services": [{ "name": "chrony", "enabled": true, "running": false }],
            "lock": { "image_digest": digest, "arch": "amd64", "packages": [{
                "name": "chrony", "version": "4.3-2", "arch": "amd64", "size": 9, "sha256": digest, "filename": "chrony.deb",
            }] },
        }))
        .expect("a stack");
        assert_eq!(
            promised(&stack).to_string(),
            "sha256:41d39f55afd198a157ebd7e9471507666fe6beaa564bac2f24f9c1b0664c57ce"
        );
        let more = json!({ "a": 1, "gained": { "x": [], "y": null, "z": false, "w": "" } });
        assert_eq!(document_without_empties(more), Some(json!({ "a": 1 })));
        let started = StackSpec {
            version: "2".into(),
            ..stack.clone()
        };
        assert_ne!(promised(&stack), promised(&started));
    }
}
