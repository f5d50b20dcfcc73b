//! Signatures of images beside the pools with `require_signature`. Both sides are checked: no order
//! of writes brings an unsigned image into such a pool. A signature of an ended key does not block
//! other changes of the pool.

use muster_api::pools::PoolSpec;
use muster_core::images::ImageManifest;
use sqlx::PgConnection;

use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::engine::signatures::{self, UNSIGNED};
use crate::error::Error;

/// The largest number of pools named in a refusal.
const NAMED: usize = 5;

/// Rejects a newly written pool with `require_signature` and an image without a valid signature.
///
/// # Errors
/// 422 at the image; when the database fails.
pub(super) async fn check_pool(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    pool: &ObjectRow,
) -> Result<(), Error> {
    let spec: PoolSpec = document::stored(pool)?;
    if !spec.require_signature {
        return Ok(());
    }
    let before = before.and_then(|before| document::stored::<PoolSpec>(before).ok());
    let was_checked =
        before.is_some_and(|before| before.require_signature && before.image == spec.image);
    if was_checked {
        return Ok(());
    }
    let Some(image) = db::objects::find_target(conn, pool.id, "/spec/image").await? else {
        return Ok(());
    };
    match is_signed(conn, &image, pool).await? {
        true => Ok(()),
        false => {
            let detail = format!(
                "No trusted key signed the image {}: sign with `muster image sign`, publish the image, and write the pool again.",
                image.name
            );
            Err(Error::unprocessable("/spec/image", UNSIGNED, detail))
        }
    }
}

/// Rejects a newly written image without the signature required by a pool.
///
/// # Errors
/// 422 naming the pools; when the database fails.
pub(super) async fn check_image(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    image: &ObjectRow,
) -> Result<(), Error> {
    // A new object has no references to it yet.
    if before.is_none_or(|before| before.spec == image.spec) {
        return Ok(());
    }
    let pools = db::objects::list_referring_pools(conn, image.id).await?;
    let asking = pools
        .into_iter()
        .filter(|pool| document::stored::<PoolSpec>(pool).is_ok_and(|spec| spec.require_signature));
    let names: Vec<String> = asking.map(|pool| pool.name).collect();
    if names.is_empty() || is_signed(conn, image, image).await? {
        return Ok(());
    }
    let detail = format!(
        "{} pools ask for a signature of a trusted key: {}. Sign the new manifest with `muster image sign`.",
        names.len(),
        names[..names.len().min(NAMED)].join(", ")
    );
    Err(Error::unprocessable("/spec/signature", UNSIGNED, detail))
}

/// Whether an image has a valid signature at the time of a write.
async fn is_signed(
    conn: &mut PgConnection,
    image: &ObjectRow,
    written: &ObjectRow,
) -> Result<bool, Error> {
    let manifest: ImageManifest = document::stored(image)?;
    let proof = signatures::find_proof(conn, &manifest, written.updated_at).await?;
    Ok(proof.is_some())
}
