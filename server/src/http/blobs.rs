//! Blobs: content-addressed files. A name is parsed into a digest and never joined as text; a blob appears whole or not at all.

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
/// An upload that sends nothing for this long is over.
const IDLE: Duration = Duration::from_secs(60);

/// The routes of blobs.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(head_blob, put_blob))
        .layer(DefaultBodyLimit::disable())
}

/// Whether a blob is here.
#[utoipa::path(head, path = "/v1/blobs/sha256/{hex}", tag = "blobs", params(("hex", description = "64 hex digits")), responses(
    (status = 200, description = "It is; Content-Length is its size"),
    (status = 404, description = "It is not"),
))]
async fn head_blob(
    State(app): State<App>,
    _: Actor,
    Path(hex): Path<String>,
) -> Result<Response, Error> {
    let digest = parse(&hex)?;
    let found = fs::metadata(place(&app, digest)).await;
    let size = found
        .map_err(|_| Error::NotFound(format!("blob {digest}")))?
        .len();
    Ok((
        [(header::CONTENT_LENGTH, HeaderValue::from(size))],
        StatusCode::OK,
    )
        .into_response())
}

/// Uploads a blob. The bytes must be the ones that the path names; sending one that is here changes nothing.
#[utoipa::path(put, path = "/v1/blobs/sha256/{hex}", tag = "blobs", params(("hex", description = "64 hex digits")),
    request_body(content = String, content_type = "application/octet-stream"), responses(
    (status = 201, description = "Stored and on disk"),
    (status = 204, description = "It was here"),
    (status = 422, description = "The bytes have another digest", body = Problem, content_type = "application/problem+json"),
))]
async fn put_blob(
    State(app): State<App>,
    actor: Actor,
    Path(hex): Path<String>,
    body: Body,
) -> Result<Response, Error> {
    let digest = parse(&hex)?;
    let target = place(&app, digest);
    match fs::metadata(&target).await {
        Ok(found) => {
            record(&app, &actor, digest, found.len(), Came::Before).await?;
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::internal(error)),
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
        // The name itself must survive a power cut, too.
        let folder = File::open(&folder).await.map_err(Error::internal)?;
        folder.sync_all().await.map_err(Error::internal)?;
    }
    record(&app, &actor, digest, size, Came::Now).await?;
    Ok(StatusCode::CREATED.into_response())
}

/// When the bytes of a blob arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Now,
    /// By a request that was cut short, or by another way than the API. The next upload of the same bytes records the blob.
    Before,
}

/// Records a stored blob, with its event. The file is on disk before the record, and the record is committed before the answer.
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

/// A file that is removed unless it was renamed away: a broken upload leaves nothing.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "a partial upload stays");
            }
            _ => {}
        }
    }
}

/// Writes a body to a file and to disk; its size and digest.
async fn receive(path: &FilePath, body: Body) -> Result<(u64, Digest), Error> {
    let file = File::create_new(path).await.map_err(Error::internal)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    let (mut hasher, mut size) = (Sha256::new(), 0_u64);
    let mut chunks = body.into_data_stream();
    let cut = |why: String| Error::invalid("", "upload_cut", why);
    loop {
        let next = tokio::time::timeout(IDLE, chunks.next()).await;
        let Some(chunk) =
            next.map_err(|_| cut(format!("nothing was sent for {} s", IDLE.as_secs())))?
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

fn place(app: &App, digest: Digest) -> PathBuf {
    app.blobs.join("sha256").join(digest.hex())
}

/// Whether a blob that a document names is here; naming none is not having it.
pub async fn present(app: &App, digest: Option<Digest>) -> bool {
    match digest {
        Some(digest) => fs::try_exists(place(app, digest)).await.unwrap_or(false),
        None => false,
    }
}
