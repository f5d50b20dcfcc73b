//! Serves blobs over HTTP, completely or as a single range (RFC 9110 §14).

use std::io::SeekFrom;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use muster_core::values::Digest;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, Take};
use tokio_util::io::ReaderStream;

use crate::blobs::BlobCache;

const CHUNK: usize = 256 << 10;

/// Parses the 64 hex digits of a path. No other text can become a file name.
pub(super) fn digest(hex: &str) -> Option<Digest> {
    format!("sha256:{hex}").parse().ok()
}

/// The part of a blob sent as answer: the complete blob or a single range.
#[derive(Debug)]
pub(super) struct Piece {
    pub status: StatusCode,
    /// Offset of the first byte.
    pub first: u64,
    /// Number of bytes.
    pub length: u64,
    headers: [(HeaderName, HeaderValue); 4],
    range: Option<(HeaderName, HeaderValue)>,
}

impl Piece {
    /// Returns the part of a blob with this size, or `None` for a range outside of the blob.
    pub(super) fn of(
        digest: Digest,
        size: u64,
        wanted: Option<&[u8]>,
        if_range: Option<&[u8]>,
    ) -> Option<Self> {
        let etag = HeaderValue::from_str(&format!("\"{}\"", digest.hex()))
            .expect("hex digits are a header value");
        let same = if_range.is_none_or(|condition| condition == etag.as_bytes());
        let wanted = wanted
            .and_then(|range| std::str::from_utf8(range).ok())
            .filter(|_| same);
        let (status, first, length) = match range(wanted, size) {
            Wanted::Whole => (StatusCode::OK, 0, size),
            Wanted::Part { first, length } => (StatusCode::PARTIAL_CONTENT, first, length),
            Wanted::Nothing => return None,
        };
        let headers = [
            (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/octet-stream"),
            ),
            (header::CONTENT_LENGTH, length.into()),
            (header::ETAG, etag),
        ];
        let range = (status == StatusCode::PARTIAL_CONTENT).then(|| {
            let range = format!("bytes {first}-{}/{size}", first + length - 1);
            (
                header::CONTENT_RANGE,
                HeaderValue::from_str(&range).expect("digits are a header value"),
            )
        });
        Some(Self {
            status,
            first,
            length,
            headers,
            range,
        })
    }

    /// Returns the headers of the answer.
    pub(super) fn headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.headers.iter().chain(&self.range)
    }
}

/// Sends a blob. `sent` is called after the last byte of the answer was passed to the connection.
pub(super) async fn serve(
    blobs: &BlobCache,
    digest: Digest,
    headers: &HeaderMap,
    sent: impl FnOnce() + Send + Unpin + 'static,
) -> Response {
    let blob = match blobs.open(digest).await {
        Ok(Some(blob)) => blob,
        Ok(None) => return (StatusCode::NOT_FOUND, "no such blob\n").into_response(),
        Err(error) => {
            tracing::error!(%digest, %error, "blob not readable in the cache; check the disk of the agent");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let header = |name| headers.get(name).map(HeaderValue::as_bytes);
    let Some(piece) = Piece::of(
        digest,
        blob.size,
        header(header::RANGE),
        header(header::IF_RANGE),
    ) else {
        let range = format!("bytes */{}", blob.size);
        return (
            StatusCode::RANGE_NOT_SATISFIABLE,
            [(header::CONTENT_RANGE, range)],
        )
            .into_response();
    };
    let mut file = blob.file;
    if let Err(error) = file.seek(SeekFrom::Start(piece.first)).await {
        tracing::error!(%digest, %error, "blob not readable in the cache; check the disk of the agent");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let stream = ReaderStream::with_capacity(file.take(piece.length), CHUNK);
    let mut response = Response::new(Body::from_stream(Sending {
        rest: piece.length,
        stream,
        sent: Some(sent),
    }));
    *response.status_mut() = piece.status;
    response.headers_mut().extend(piece.headers().cloned());
    response
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part {
        first: u64,
        length: u64,
    },
    /// A range outside of the blob.
    Nothing,
}

/// Parses a single range. A malformed header or a header with several ranges is ignored, as allowed
/// by RFC 9110 §14.2.
fn range(header: Option<&str>, size: u64) -> Wanted {
    let Some((first, last)) = header
        .and_then(|header| header.strip_prefix("bytes="))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Wanted::Whole;
    };
    let part = |first: u64, last: u64| match first < size && first <= last {
        true => Wanted::Part {
            first,
            length: last.min(size - 1) - first + 1,
        },
        false => Wanted::Nothing,
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if last < first => Wanted::Whole,
        (Ok(first), Ok(last)) => part(first, last),
        (Ok(first), Err(_)) if last.is_empty() => part(first, u64::MAX),
        (Err(_), Ok(0)) if first.is_empty() => Wanted::Nothing,
        (Err(_), Ok(suffix)) if first.is_empty() => part(size.saturating_sub(suffix), u64::MAX),
        _ => Wanted::Whole,
    }
}

/// A file being sent.
struct Sending<F> {
    rest: u64,
    stream: ReaderStream<Take<tokio::fs::File>>,
    sent: Option<F>,
}

impl<F: FnOnce() + Unpin> Stream for Sending<F> {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(Pin::new(&mut self.stream).poll_next(context));
        if let Some(Ok(bytes)) = &next {
            self.rest = self.rest.saturating_sub(bytes.len() as u64);
            if self.rest == 0
                && let Some(sent) = self.sent.take()
            {
                sent();
            }
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_has_them() {
        let part = |first, length| Wanted::Part { first, length };
        let cases = [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-", part(2, 8)),
            ("bytes=2-100", part(2, 8)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-100", part(0, 10)),
            ("bytes=10-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=5-2", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(range(Some(header), 10), expected, "{header}");
        }
        assert_eq!(range(Some("bytes=0-"), 0), Wanted::Nothing);
        assert_eq!(range(None, 10), Wanted::Whole);
    }

    #[test]
    fn only_a_digest_is_a_name() {
        for bad in [
            "",
            "..",
            "../../etc/passwd",
            &"g".repeat(64),
            &"a".repeat(63),
        ] {
            assert_eq!(digest(bad), None, "{bad}");
        }
        assert!(digest(&"a".repeat(64)).is_some());
    }
}
