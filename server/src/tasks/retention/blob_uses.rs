//! Blobs in use: the blobs named by declared objects and by revisions of pools, with the files of
//! the bundles. An unreadable document or bundle is an error, because its blobs would seem unused.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;

use muster_core::values::Digest;
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db;
use crate::db::blob_uses::UserRow;
use crate::error::Error;

/// Revisions of one read.
const REVISIONS: usize = 100;
/// Size limit of the list of a bundle, the same as of agents.
const DESCRIPTION_BYTES: u64 = 4 << 20;

/// The reason why the blobs in use are unknown, or why a removal failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobsError {
    #[error("no unused blob is removed, because {place} is unreadable: {why}")]
    Unreadable { place: String, why: String },
    #[error("the blobs cannot be listed or removed: {0}")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Database(#[from] Error),
}

/// The blobs named by a document.
#[derive(Clone, Debug, Default)]
struct Named {
    blobs: Vec<Digest>,
    bundle: Option<Digest>,
}

/// Revisions and bundles from earlier reads. Both never change.
#[derive(Debug, Default)]
pub struct Known {
    revisions: HashMap<Uuid, Named>,
    bundles: HashMap<Digest, Vec<Digest>>,
}

/// The list of a bundle's files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bundle {
    files: BTreeMap<String, Digest>,
}

/// Returns the blobs in use. A bundle that was never uploaded has no files yet.
///
/// # Errors
///
/// When a document or bundle is unreadable, or the database fails.
pub async fn find_used(
    conn: &mut PgConnection,
    folder: &Path,
    known: &mut Known,
) -> Result<HashSet<Digest>, BlobsError> {
    let mut documents = Vec::new();
    for row in db::blob_uses::list_documents(conn).await? {
        documents.push(read_members(&row)?);
    }
    read_revisions(conn, known).await?;
    let (mut used, mut bundles) = (HashSet::new(), HashSet::new());
    for named in documents.iter().chain(known.revisions.values()) {
        used.extend(named.blobs.iter().copied());
        bundles.extend(named.bundle);
    }
    known.bundles.retain(|bundle, _| bundles.contains(bundle));
    for bundle in bundles {
        used.insert(bundle);
        let files = match known.bundles.remove(&bundle) {
            Some(files) => Some(files),
            None => read_bundle(conn, folder, bundle).await?,
        };
        if let Some(files) = files {
            used.extend(files.iter().copied());
            known.bundles.insert(bundle, files);
        }
    }
    Ok(used)
}

/// Reads the revisions added since the last read, and forgets the removed ones.
async fn read_revisions(conn: &mut PgConnection, known: &mut Known) -> Result<(), BlobsError> {
    let ids = db::blob_uses::list_revision_ids(conn).await?;
    let present: HashSet<Uuid> = ids.iter().copied().collect();
    known.revisions.retain(|id, _| present.contains(id));
    let is_new = |id: &Uuid| !known.revisions.contains_key(id);
    let new: Vec<Uuid> = ids.into_iter().filter(is_new).collect();
    for page in new.chunks(REVISIONS) {
        for row in db::blob_uses::list_revisions(conn, page).await? {
            known.revisions.insert(row.id, read_members(&row)?);
        }
    }
    Ok(())
}

/// Reads the blobs named by a document: each text in the form of a digest, in any member. The
/// digest of another thing keeps no blob, and a later member with a blob is read without a change.
fn read_members(row: &UserRow) -> Result<Named, BlobsError> {
    let mut blobs = Vec::new();
    collect_digests(&row.spec, &mut blobs);
    blobs.extend(read_digest(row, &row.image)?);
    Ok(Named {
        blobs,
        bundle: read_digest(row, &row.bundle)?,
    })
}

fn collect_digests(value: &Value, found: &mut Vec<Digest>) {
    match value {
        Value::String(text) => found.extend(text.parse::<Digest>()),
        Value::Array(items) => items.iter().for_each(|item| collect_digests(item, found)),
        Value::Object(members) => members
            .values()
            .for_each(|member| collect_digests(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn read_digest(row: &UserRow, member: &Value) -> Result<Option<Digest>, BlobsError> {
    Option::<Digest>::deserialize(member).map_err(|error| BlobsError::Unreadable {
        place: row.place.clone(),
        why: error.to_string(),
    })
}

/// Returns the files of a bundle. `None`: the bundle was never uploaded.
async fn read_bundle(
    conn: &mut PgConnection,
    folder: &Path,
    bundle: Digest,
) -> Result<Option<Vec<Digest>>, BlobsError> {
    let unreadable = |why: String| BlobsError::Unreadable {
        place: format!("the bundle {bundle}"),
        why,
    };
    let path = folder.join("sha256").join(bundle.hex());
    let size = match tokio::fs::metadata(&path).await {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match db::blobs::is_recorded(conn, bundle).await? {
                true => Err(unreadable(
                    "the file is missing; upload it again".to_owned(),
                )),
                false => Ok(None),
            };
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    if size > DESCRIPTION_BYTES {
        let why = format!("{size} bytes are more than {DESCRIPTION_BYTES}");
        return Err(unreadable(why));
    }
    let read = tokio::fs::read(&path).await;
    let bytes = read.map_err(|error| unreadable(error.to_string()))?;
    let found = Digest::of(&bytes);
    if found != bundle {
        let why = format!("the file has the digest {found}; remove the file, and upload it again");
        return Err(unreadable(why));
    }
    let bundle: Bundle =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    Ok(Some(bundle.files.into_values().collect()))
}
