//! Signatures of images: the trusted keys, and the proof for a node. Checked where an installation
//! is requested, and again when the order is built.

use jiff::Timestamp;
use muster_api::signing_keys::SigningKeySpec;
use muster_core::ids::ObjectId;
use muster_core::images::ImageManifest;
use muster_core::signatures::{PublicKey, describe_image, verify_text};
use muster_core::wire::node::SignedImage;
use sqlx::PgConnection;

use crate::db;
use crate::error::Error;

/// The code of an image without a valid signature.
pub const UNSIGNED: &str = "unsigned_image";

/// Returns the keys trusted at a time. An unreadable key is not trusted.
async fn list_trusted(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<PublicKey>, Error> {
    let stored = db::signing_keys::list(conn).await?;
    let specs = stored
        .into_iter()
        .filter_map(|spec| serde_json::from_value::<SigningKeySpec>(spec).ok());
    let trusted = specs.filter(|key| key.ends_at.is_none_or(|end| now < end));
    Ok(trusted
        .filter_map(|key| key.public_key.parse().ok())
        .collect())
}

/// Returns the proof that a trusted key signed the image; `None` without a valid signature. The
/// signature is of the manifest itself, or published later under the same digest: a revision keeps
/// the manifest of its day.
///
/// # Errors
/// When the database fails.
pub async fn find_proof(
    conn: &mut PgConnection,
    image: &ImageManifest,
    now: Timestamp,
) -> Result<Option<SignedImage>, Error> {
    let keys = list_trusted(conn, now).await?;
    let published = db::signing_keys::list_signatures(conn, &image.digest.to_string()).await?;
    let statement = describe_image(image);
    let mut signatures = image.signature.iter().chain(&published);
    let valid = signatures.find(|signature| verify_text(&statement, signature, &keys).is_ok());
    let Some(signature) = valid.cloned() else {
        return Ok(None);
    };
    Ok(Some(SignedImage {
        statement,
        signature,
        keys: keys.iter().map(ToString::to_string).collect(),
    }))
}

/// Returns the proof for a pool that asks for signatures; `None` for another pool.
///
/// # Errors
/// 409 `unsigned_image` if the pool asks for a signature and the image has no valid one; when the
/// database fails.
pub async fn need_proof(
    conn: &mut PgConnection,
    pool: ObjectId,
    image: &ImageManifest,
    now: Timestamp,
) -> Result<Option<SignedImage>, Error> {
    if !db::signing_keys::is_required(conn, pool).await? {
        return Ok(None);
    }
    match find_proof(conn, image, now).await? {
        Some(proof) => Ok(Some(proof)),
        None => {
            let detail = format!(
                "The pool asks for a signature, and no trusted key signed the image {} {}: sign with `muster image sign`, and publish the image.",
                image.name, image.version
            );
            Err(Error::conflict(UNSIGNED, detail))
        }
    }
}
