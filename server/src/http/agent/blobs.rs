//! Blobs by digest, for the caches of agents. The name in the path is parsed into a digest and
//! never joined as text. Only the acting agent of a site has orders, and so needs blobs.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use muster_core::values::Digest;
use tokio_util::io::ReaderStream;

use super::Agent;
use crate::app::App;
use crate::error::Error;
use crate::http::extract::Path;

pub(super) async fn get(
    State(app): State<App>,
    agent: Agent,
    Path(hex): Path<String>,
) -> Result<Response, Error> {
    if agent.lease.holder.is_some_and(|holder| holder != agent.id) {
        let detail = format!(
            "Another agent acts for {}, and only the acting agent fetches blobs.",
            agent.site_name
        );
        return Err(Error::conflict("not_acting", detail));
    }
    let digest: Digest = format!("sha256:{hex}")
        .parse()
        .map_err(|_| Error::NotFound("blob".into()))?;
    let path = app.blobs.join("sha256").join(digest.hex());
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|_| Error::NotFound(format!("blob {digest}")))?;
    let size = file.metadata().await.map_err(Error::internal)?.len();
    let mut response =
        Body::from_stream(ReaderStream::with_capacity(file, 256 << 10)).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    Ok(response)
}
