//! Sends blobs from the page cache to the connection by sendfile(2). Blobs are most of the traffic,
//! sent to many machines at once, so the bytes bypass the memory of this process. Only a plain
//! request for a present blob is served here. The router handles every other request, also on the
//! same connection.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header;
use muster_core::values::Digest;
use nix::errno::Errno;
use nix::sys::sendfile::sendfile64;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;

use super::blob::{self, Piece};
use super::{Door, HEAD_TIME, MAX_HEADERS, note_sent};

const PATH: &str = "/boot/v1/blob/sha256/";
/// Maximum size of a request head. A normal request fits into the first TCP segment, and a longer
/// request is handled by the router.
const MAX_HEAD: usize = 4096;
/// Maximum number of bytes per call. The value limits how long a slow disk blocks a thread.
const MOST: usize = 4 << 20;

/// A parsed request for a blob.
struct Request {
    /// Length of the request head in bytes.
    length: usize,
    digest: Digest,
    range: Option<Vec<u8>>,
    if_range: Option<Vec<u8>>,
    close: bool,
}

/// Serves requests for blobs. Returns the connection at the first other request, or `None` when the
/// connection is closed.
pub(super) async fn serve(
    door: &Door,
    mut stream: TcpStream,
    peer: SocketAddr,
) -> io::Result<Option<TcpStream>> {
    let IpAddr::V4(to) = peer.ip().to_canonical() else {
        return Ok(Some(stream));
    };
    let mut head = [0; MAX_HEAD];
    loop {
        let peeked = tokio::time::timeout(HEAD_TIME, stream.peek(&mut head)).await;
        let length = peeked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if length == 0 {
            return Ok(None);
        }
        let Some(request) = parse(&head[..length]) else {
            return Ok(Some(stream));
        };
        let Ok(Some(blob)) = door.shared.blobs.open(request.digest).await else {
            return Ok(Some(stream));
        };
        let piece = Piece::of(
            request.digest,
            blob.size,
            request.range.as_deref(),
            request.if_range.as_deref(),
        );
        let Some(piece) = piece else {
            return Ok(Some(stream));
        };
        stream.read_exact(&mut head[..request.length]).await?;
        stream
            .write_all(answer(door, &piece, request.close).as_bytes())
            .await?;
        stream = send(stream, blob.file.into_std().await, &piece).await?;
        note_sent(&door.shared, to, request.digest);
        if request.close {
            return Ok(None);
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes).ok()? else {
        return None;
    };
    // A body would be parsed as the next request. HTTP/1.0 and HEAD need different answers.
    let has = |name| {
        request
            .headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case(name))
    };
    if request.method != Some("GET")
        || request.version != Some(1)
        || has("content-length")
        || has("transfer-encoding")
    {
        return None;
    }
    let digest = blob::digest(request.path?.strip_prefix(PATH)?)?;
    let value = |name| {
        let header = request
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name));
        header.map(|header| header.value.to_vec())
    };
    let close = value("connection").is_some_and(|value| {
        value
            .to_ascii_lowercase()
            .windows(5)
            .any(|word| word == b"close")
    });
    Some(Request {
        length,
        digest,
        range: value("range"),
        if_range: value("if-range"),
        close,
    })
}

fn answer(door: &Door, piece: &Piece, close: bool) -> String {
    let mut head = format!("HTTP/1.1 {}\r\n", piece.status);
    for (name, value) in piece.headers() {
        let value = value.to_str().expect("our own headers are text");
        write!(head, "{name}: {value}\r\n").expect("writing to a string does not fail");
    }
    if let Ok(now) = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&door.shared.clock.now())
    {
        write!(head, "{}: {now}\r\n", header::DATE).expect("writing to a string does not fail");
    }
    head + if close {
        "connection: close\r\n\r\n"
    } else {
        "\r\n"
    }
}

/// Sends a part of a file, on threads for blocking work. Data outside of the page cache waits for
/// the disk, and DHCP must not wait for the disk.
async fn send(stream: TcpStream, file: File, piece: &Piece) -> io::Result<TcpStream> {
    let (stream, file) = (Arc::new(stream), Arc::new(file));
    let (mut at, end) = (piece.first, piece.first + piece.length);
    while at < end {
        stream.writable().await?;
        let (to, from) = (Arc::clone(&stream), Arc::clone(&file));
        let count = usize::try_from(end - at).unwrap_or(MOST).min(MOST);
        let sent = tokio::task::spawn_blocking(move || {
            to.try_io(Interest::WRITABLE, || send_some(&to, &from, at, count))
        });
        match sent.await.map_err(io::Error::other)? {
            // The file became shorter, so the announced length cannot be sent.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => at += sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Arc::into_inner(stream).ok_or_else(|| io::Error::other("the connection is still being written"))
}

fn send_some(to: &TcpStream, from: &File, at: u64, count: usize) -> io::Result<usize> {
    let mut at = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        match sendfile64(to, from, Some(&mut at), count) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_requests_for_blobs_are_answered_here() {
        let get = |head: &str| parse(head.as_bytes());
        let path = format!("{PATH}{}", "a".repeat(64));
        let request = get(&format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nRANGE: bytes=1-\r\nConnection: keep-alive, Close\r\n\r\nmore"
        ))
        .unwrap();
        assert_eq!(
            (request.range.as_deref(), request.close),
            (Some(b"bytes=1-".as_slice()), true)
        );
        for other in [
            format!("HEAD {path} HTTP/1.1\r\n\r\n"),
            format!("GET {path} HTTP/1.0\r\n\r\n"),
            format!("GET {path}?x HTTP/1.1\r\n\r\n"),
            format!("GET {path} HTTP/1.1\r\ncontent-length: 1\r\n\r\nx"),
            format!("GET {path} HTTP/1.1\r\nHost: a\r\n"),
            "GET /boot/v1/time HTTP/1.1\r\n\r\n".to_owned(),
        ] {
            assert!(get(&other).is_none(), "{other}");
        }
    }
}
