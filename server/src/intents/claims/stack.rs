//! The stack of a pool.

use muster_core::ids::ObjectId;
use muster_core::images::ImageManifest;
use muster_core::stacks::StackSpec;
use sqlx::PgConnection;

use crate::error::Error;
use crate::{db, document};

/// The stack of a pool with its image. `None` for a pool without a stack.
///
/// # Errors
/// 409 `unreadable` when the stored stack or image cannot be read.
pub(crate) async fn find_stack(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<(StackSpec, Option<ImageManifest>)>, Error> {
    let Some(stack) = db::objects::find_target(conn, pool, "/spec/stack").await? else {
        return Ok(None);
    };
    let image = db::objects::find_target(conn, pool, "/spec/image").await?;
    let image = image.as_ref().map(document::stored).transpose()?;
    Ok(Some((document::stored(&stack)?, image)))
}
