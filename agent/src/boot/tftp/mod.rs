//! TFTP for the first loaders only: exact names, bytes from memory, no file system behind it.

pub mod transfer; // What to send next, as a value
pub mod wire; // Packets as bytes

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_core::wire::agent::Seen;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::transfer::{Event, Step, Transfer};
use self::wire::{Packet, Refusal, Request};
use super::Shared;
use super::links::ListenError;
use super::lookout::Identity;

/// Without negotiation (RFC 1350).
const BLOCK: u16 = 512;
/// Ethernet's 1500 bytes less the headers: larger blocks would be fragmented, which firmware does not put together.
const MAX_BLOCK: u16 = 1468;
/// Blocks in flight (RFC 7440) for the few clients that ask.
const MAX_WINDOW: u16 = 16;
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Transfers at a time; more are told to come again.
const MAX_TRANSFERS: usize = 512;

/// Serves loaders on one of the agent's addresses until the socket fails; `up` is called once it listens. Answers come from that address, so it is
/// bound to that and never to the wildcard.
pub async fn serve(shared: Arc<Shared>, address: Ipv4Addr, up: impl FnOnce()) -> Result<(), ListenError> {
    let at = SocketAddrV4::new(address, shared.ports.tftp);
    let failed = |source| bind_error(at, source);
    let socket = UdpSocket::bind(at).await.map_err(failed)?;
    up();
    // Dropped with this future: no transfer outlives its listener.
    let mut transfers = JoinSet::new();
    let mut clients = HashSet::new();
    let mut buffer = [0; 1500];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.map_err(failed)?;
        while let Some(Ok(ended)) = transfers.try_join_next() {
            clients.remove(&ended);
        }
        let grant = match wire::parse(&buffer[..length]) {
            // A client that asks again lost our answer, which is sent again anyway.
            _ if clients.contains(&client) => continue,
            Ok(Some(Packet::Read(_))) if clients.len() >= MAX_TRANSFERS => Err(Refusal::Busy),
            Ok(Some(Packet::Read(request))) => find(&shared, client, request),
            Ok(Some(Packet::Write)) => Err(Refusal::ReadOnly),
            Ok(Some(Packet::Ack(_) | Packet::Error) | None) => continue,
            Err(refusal) => Err(refusal),
        };
        clients.insert(client);
        let shared = Arc::clone(&shared);
        transfers.spawn(async move {
            if let Err(error) = answer(&shared, address, client, grant).await {
                tracing::debug!(%client, %error, "a TFTP transfer ended early");
            }
            client
        });
    }
}

fn bind_error(at: SocketAddrV4, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => ListenError::NoInterface(*at.ip()),
        _ => ListenError::of("TFTP", at.ip().to_string(), at.port(), source),
    }
}

fn find(shared: &Shared, client: SocketAddr, request: Request) -> Result<(Request, Bytes), Refusal> {
    let name = request.name.strip_prefix('/').unwrap_or(&request.name);
    match shared.ipxe.get(name) {
        Some(bytes) => Ok((request, bytes)),
        None => {
            tracing::debug!(%client, name, "TFTP was asked for a name it does not have");
            Err(Refusal::NotFound)
        }
    }
}

/// Everything to one client goes through a socket of its own, on a port of its own (RFC 1350 §4). Connected to the client, it hears nobody else, and
/// learns at once when the client has closed.
async fn answer(
    shared: &Shared,
    address: Ipv4Addr,
    client: SocketAddr,
    grant: Result<(Request, Bytes), Refusal>,
) -> io::Result<()> {
    let socket = UdpSocket::bind((address, 0)).await?;
    socket.connect(client).await?;
    let (request, bytes) = match grant {
        Ok(grant) => grant,
        Err(refusal) => return socket.send(&wire::refused(refusal)).await.map(drop),
    };
    let block_size = request.block_size.map(|size| size.min(MAX_BLOCK));
    let window = request.window.map(|blocks| blocks.min(MAX_WINDOW));
    let size = bytes.len() as u64;
    let granted = wire::granted(block_size, window, request.wants_size.then_some(size));
    let mut transfer = Transfer::new(size, block_size.unwrap_or(BLOCK), window.unwrap_or(1), granted.is_some());
    let ended = send_all(&socket, &mut transfer, &bytes, &granted.unwrap_or_default()).await;
    if transfer.all_sent()
        && let IpAddr::V4(client) = client.ip()
        && let Some(mac) = shared.mac_at(client)
    {
        shared.lookout.saw(
            mac,
            Seen::Tftp,
            Identity::default(),
            format!("{} to {client}", request.name.trim_start_matches('/')),
        );
    }
    ended
}

async fn send_all(socket: &UdpSocket, transfer: &mut Transfer, bytes: &[u8], granted: &[u8]) -> io::Result<()> {
    let mut packet = Vec::with_capacity(4 + usize::from(MAX_BLOCK));
    let mut step = transfer.first();
    let mut patience = Instant::now() + RETRY_AFTER;
    loop {
        match step {
            Step::Send(blocks) => {
                patience = Instant::now() + RETRY_AFTER;
                for block in blocks {
                    if block == 0 {
                        socket.send(granted).await?;
                        continue;
                    }
                    let range = transfer.bytes_of(block);
                    packet.clear();
                    packet.extend_from_slice(&wire::data_header((block & 0xffff) as u16));
                    packet.extend_from_slice(&bytes[range.start as usize..range.end as usize]);
                    socket.send(&packet).await?;
                }
            }
            // Stray packets do not prolong the wait.
            Step::Wait => {}
            Step::Done => return Ok(()),
            Step::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
        }
        match next(socket, patience).await? {
            Some(event) => step = transfer.on(event),
            None => return Ok(()),
        }
    }
}

/// What the client says next; `None` when it wants no more.
async fn next(socket: &UdpSocket, patience: Instant) -> io::Result<Option<Event>> {
    let mut buffer = [0; 600];
    loop {
        let Ok(received) = timeout_at(patience, socket.recv(&mut buffer)).await else {
            return Ok(Some(Event::Silence));
        };
        match wire::parse(&buffer[..received?]) {
            Ok(Some(Packet::Ack(number))) => return Ok(Some(Event::Ack(number))),
            Ok(Some(Packet::Error)) => return Ok(None),
            _ => {}
        }
    }
}
