//! TFTP for the first loaders only: exact names, bytes from memory, no file system behind it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_tftp::packet;
use async_tftp::server::{Handler, TftpServerBuilder};
use bytes::{Buf as _, Bytes};
use futures::io::{AsyncRead, Sink, sink};

use super::Shared;
use super::links::ListenError;
use super::lookout::Identity;
use muster_core::wire::agent::Seen;

/// Ethernet's 1500 bytes less the headers: larger blocks would be fragmented, which firmware does not put together.
const MAX_BLOCK: u16 = 1468;
/// Blocks in flight (RFC 7440) for the few clients that ask.
const MAX_WINDOW: u16 = 16;
/// Tries per block, [`RETRY_AFTER`] apart, before a client is given up.
const TRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Transfers at a time; more are told to come again.
const MAX_TRANSFERS: usize = 512;

/// Serves loaders on one of the agent's addresses until the socket fails; `up` is called once it listens. The library answers from the listener's
/// own address, so it is bound to that and never to the wildcard.
pub async fn serve(shared: Arc<Shared>, address: Ipv4Addr, up: impl FnOnce()) -> Result<(), ListenError> {
    let at = SocketAddrV4::new(address, shared.ports.tftp);
    let failed = |error: async_tftp::Error| match error {
        async_tftp::Error::Bind(source) | async_tftp::Error::Io(source) => bind_error(at, source),
        other => ListenError::Io { what: "TFTP", at: at.to_string(), source: io::Error::other(other.to_string()) },
    };
    let server = TftpServerBuilder::with_handler(Loaders { shared, transfers: Arc::default() })
        .bind(at.into())
        .block_size_limit(MAX_BLOCK)
        .window_size_limit(MAX_WINDOW)
        .timeout(RETRY_AFTER)
        .ignore_client_timeout()
        .max_send_retries(TRIES)
        .build()
        .await
        .map_err(failed)?;
    up();
    server.serve().await.map_err(failed)
}

fn bind_error(at: SocketAddrV4, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => ListenError::NoInterface(*at.ip()),
        _ => ListenError::of("TFTP", at.ip().to_string(), at.port(), source),
    }
}

struct Loaders {
    shared: Arc<Shared>,
    transfers: Arc<AtomicUsize>,
}

impl Handler for Loaders {
    type Reader = Transfer;
    type Writer = Sink;

    async fn read_req_open(
        &mut self,
        client: &SocketAddr,
        path: &Path,
    ) -> Result<(Transfer, Option<u64>), packet::Error> {
        let name =
            path.to_str().map(|name| name.strip_prefix('/').unwrap_or(name)).ok_or(packet::Error::FileNotFound)?;
        let bytes = self.shared.ipxe.get(name).ok_or_else(|| {
            tracing::debug!(%client, name, "TFTP was asked for a name it does not have");
            packet::Error::FileNotFound
        })?;
        if self.transfers.fetch_add(1, Ordering::Relaxed) >= MAX_TRANSFERS {
            self.transfers.fetch_sub(1, Ordering::Relaxed);
            return Err(packet::Error::Msg("busy, ask again".to_owned()));
        }
        let size = bytes.len() as u64;
        let transfer = Transfer {
            rest: bytes,
            read_to_end: false,
            name: name.to_owned(),
            client: client.ip(),
            shared: Arc::clone(&self.shared),
            transfers: Arc::clone(&self.transfers),
        };
        Ok((transfer, Some(size)))
    }

    async fn write_req_open(&mut self, _: &SocketAddr, _: &Path, _: Option<u64>) -> Result<Sink, packet::Error> {
        // The type is needed, a sink never is: nothing may be written.
        let _ = sink;
        Err(packet::Error::PermissionDenied)
    }
}

/// One transfer under way. It ends when the library drops it, after the last block was acknowledged or given up.
pub struct Transfer {
    rest: Bytes,
    read_to_end: bool,
    name: String,
    client: IpAddr,
    shared: Arc<Shared>,
    transfers: Arc<AtomicUsize>,
}

impl AsyncRead for Transfer {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let length = self.rest.len().min(buffer.len());
        self.rest.copy_to_slice(&mut buffer[..length]);
        self.read_to_end |= self.rest.is_empty();
        Poll::Ready(Ok(length))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.transfers.fetch_sub(1, Ordering::Relaxed);
        let IpAddr::V4(client) = self.client else { return };
        if self.read_to_end
            && let Some(mac) = self.shared.mac_at(client)
        {
            self.shared.lookout.saw(mac, Seen::Tftp, Identity::default(), format!("{} to {client}", self.name));
        }
    }
}
