//! Blobs: content-addressed files. The name in a path is parsed into a digest and never joined as
//! text. A blob appears complete or not at all.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use http::{HeaderValue, StatusCode, header};
use muster_api::problem::Problem;
use muster_core::values::Digest;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::fs::{self, File};
use tokio::io::{AsyncWriteExt as _, BufWriter};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::Path;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::dry_run;
use crate::intents::writing;

/// The largest blob, in bytes.
const LARGEST: u64 = 256 << 30;
/// An upload without data for this long is aborted.
const IDLE: Duration = Duration::from_secs(60);

/// The routes of blobs.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(head_blob, put_blob))
        .layer(DefaultBodyLimit::disable())
}

/// Checks whether a blob is stored.
///
/// For a caller with the right to upload blobs, a stored blob stays at least for the grace time of
/// unused blobs from now on.
#[utoipa::path(head, path = "/v1/blobs/sha256/{hex}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "blobs", params(("hex", description = "64 hex digits")), responses(
    (status = 200, description = "The blob is stored; Content-Length is its size in bytes"),
    (status = 404, description = "The blob is not stored"),
))]
async fn head_blob(
    State(app): State<App>,
    actor: Actor,
    Path(hex): Path<String>,
) -> Result<Response, Error> {
    let digest = parse(&hex)?;
    // A reader alone must not keep blobs for ever.
    let found = match actor.need_everywhere("blob.write") {
        Ok(()) => keep_stored(&app, digest).await?,
        Err(_) => find_size(&app, digest).await?,
    };
    let size = found.ok_or_else(|| Error::NotFound(format!("blob {digest}")))?;
    Ok((
        [(header::CONTENT_LENGTH, HeaderValue::from(size))],
        StatusCode::OK,
    )
        .into_response())
}

/// Uploads a blob.
///
/// The SHA-256 of the bytes must equal the digest in the path. Sending a stored blob again has no
/// effect.
#[utoipa::path(put, path = "/v1/blobs/sha256/{hex}",
    extensions(("x-muster-access" = json!({ "verb": "blob.write", "place": "fleet" })),
        ("x-muster-links" = json!({ "self": ["head_blob", {"hex": "$request.path.hex"}] }))),
    tag = "blobs", params(("hex", description = "64 hex digits")),
    request_body(content = String, content_type = "application/octet-stream"), responses(
    (status = 201, description = "The blob is stored and synced to disk"),
    (status = 204, description = "The blob was already stored"),
    (status = 422, description = "The SHA-256 of the bytes differs from the path", body = Problem, content_type = "application/problem+json"),
))]
async fn put_blob(
    State(app): State<App>,
    actor: Actor,
    Path(hex): Path<String>,
    body: Body,
) -> Result<Response, Error> {
    let digest = parse(&hex)?;
    let target = blob_path(&app, digest);
    let stored = match dry_run::asked() {
        true => find_size(&app, digest).await?,
        false => keep_stored(&app, digest).await?,
    };
    if let Some(size) = stored {
        record(&app, &actor, digest, size, Came::Before).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let folder = app.blobs.join("sha256");
    fs::create_dir_all(&folder).await.map_err(Error::internal)?;
    let partial = Partial(app.blobs.join(format!("upload-{}", Uuid::now_v7())));
    let (size, found) = receive(&partial.0, body).await?;
    if found != digest {
        return Err(Error::unprocessable(
            "",
            "digest_mismatch",
            format!("The {size} bytes sent are {found}."),
        ));
    }
    if !dry_run::asked() {
        fs::rename(&partial.0, &target)
            .await
            .map_err(Error::internal)?;
        // Sync the folder, so that the file name survives a power failure too.
        let folder = File::open(&folder).await.map_err(Error::internal)?;
        folder.sync_all().await.map_err(Error::internal)?;
    }
    record(&app, &actor, digest, size, Came::Now).await?;
    Ok(StatusCode::CREATED.into_response())
}

/// Restarts the grace time of a blob, and returns the size of the stored blob. The file is looked
/// up under the lock, so no removal comes between the answer and the restart.
async fn keep_stored(app: &App, digest: Digest) -> Result<Option<u64>, Error> {
    let mut tx = app.pool.begin().await?;
    db::unused_blobs::keep_blob(&mut tx, digest).await?;
    let found = find_size(app, digest).await?;
    tx.commit().await?;
    Ok(found)
}

/// Returns the size of a stored blob.
async fn find_size(app: &App, digest: Digest) -> Result<Option<u64>, Error> {
    match fs::metadata(blob_path(app, digest)).await {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::internal(error)),
    }
}

/// When the bytes of a blob arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Now,
    /// The file came from an interrupted request, or from another source than the API. The next
    /// upload of the same bytes records the blob.
    Before,
}

/// Records a stored blob, with its event. The file is on disk before the record, and the record is
/// committed before the answer.
async fn record(
    app: &App,
    actor: &Actor,
    digest: Digest,
    size: u64,
    came: Came,
) -> Result<(), Error> {
    let now = app.clock.now();
    let (bytes, by) = (i64::try_from(size).unwrap_or(i64::MAX), &*actor.name);
    writing::write(app, actor, async |conn| {
        let word = match came {
            Came::Now => {
                db::blobs::set_stored(conn, digest, bytes, by, now).await?;
                "stored"
            }
            Came::Before if db::blobs::insert_found(conn, digest, bytes, by, now).await? => {
                "was here already"
            }
            Came::Before => return Ok(()),
        };
        let event = actor.event(
            now,
            "blob.stored",
            None,
            format!("blob {digest} {word}, {size} bytes"),
        );
        db::events::insert(conn, event.with(json!({ "digest": digest, "size": size }))).await
    })
    .await
}

/// A temporary file, removed on drop unless renamed before. An aborted upload therefore leaves no
/// file.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "a partial upload could not be removed");
            }
            _ => {}
        }
    }
}

/// Writes a body to a file and syncs the file to disk. Returns the size in bytes and the digest.
async fn receive(path: &FilePath, body: Body) -> Result<(u64, Digest), Error> {
    let file = File::create_new(path).await.map_err(Error::internal)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    let (mut hasher, mut size) = (Sha256::new(), 0_u64);
    let mut chunks = body.into_data_stream();
    let cut = |why: String| Error::invalid("", "upload_cut", why);
    loop {
        let next = tokio::time::timeout(IDLE, chunks.next()).await;
        let Some(chunk) =
            next.map_err(|_| cut(format!("the client sent no data for {} s", IDLE.as_secs())))?
        else {
            break;
        };
        let chunk = chunk.map_err(|error| cut(error.to_string()))?;
        size += chunk.len() as u64;
        if size > LARGEST {
            return Err(Error::TooLarge);
        }
        hasher.update(&chunk);
        writer.write_all(&chunk).await.map_err(Error::internal)?;
    }
    writer.flush().await.map_err(Error::internal)?;
    writer
        .into_inner()
        .sync_all()
        .await
        .map_err(Error::internal)?;
    Ok((size, Digest(hasher.finalize().into())))
}

fn parse(hex: &str) -> Result<Digest, Error> {
    format!("sha256:{hex}")
        .parse()
        .map_err(|_| Error::NotFound(format!("blob {hex:?}")))
}

fn blob_path(app: &App, digest: Digest) -> PathBuf {
    app.blobs.join("sha256").join(digest.hex())
}

/// Whether the blob named by a document is stored; `false` for a document without a digest.
pub async fn is_stored(app: &App, digest: Option<Digest>) -> bool {
    match digest {
        Some(digest) => fs::try_exists(blob_path(app, digest))
            .await
            .unwrap_or(false),
        None => false,
    }
}
