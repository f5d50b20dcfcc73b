//! TFTP for the first loaders only: exact names, bytes from memory, no file system behind it.

mod send; // One client's transfer, on a thread of its own
pub mod transfer; // What to send next, as a value
pub mod wire; // Packets as bytes

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use tokio::net::UdpSocket;

use self::send::{Sender, refuse};
use self::wire::{Packet, Refusal, Request};
use super::Shared;
use super::links::ListenError;

/// Serves loaders on one of the agent's addresses until the socket fails; `up` is called once it listens. Answers come from that address, so it is
/// bound to that and never to the wildcard.
pub async fn serve(
    shared: Arc<Shared>,
    address: Ipv4Addr,
    up: impl FnOnce(),
) -> Result<(), ListenError> {
    let at = SocketAddrV4::new(address, shared.ports.tftp);
    let failed = |source| bind_error(at, source);
    let socket = UdpSocket::bind(at).await.map_err(failed)?;
    up();
    // Dropped with this future: no transfer outlives its listener for long.
    let sender = Sender::new(address, Arc::clone(&shared));
    let mut buffer = [0; 1500];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.map_err(failed)?;
        let answered = match wire::parse(&buffer[..length]) {
            Ok(Some(Packet::Read(request))) => give(&shared, &sender, client, request),
            Ok(Some(Packet::Write)) => Err(Refusal::ReadOnly),
            Ok(Some(Packet::Ack(_) | Packet::Error) | None) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = answered
            && let Err(error) = refuse(address, client, refusal)
        {
            tracing::debug!(%client, %error, "a TFTP client could not be refused");
        }
    }
}

fn bind_error(at: SocketAddrV4, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => ListenError::NoInterface(*at.ip()),
        _ => ListenError::of("TFTP", at.ip().to_string(), at.port(), source),
    }
}

fn give(
    shared: &Shared,
    sender: &Sender,
    client: SocketAddr,
    request: Request,
) -> Result<(), Refusal> {
    let name = request.name.strip_prefix('/').unwrap_or(&request.name);
    match shared.ipxe.get(name) {
        Some(bytes) => sender.start(client, request, bytes),
        None => {
            tracing::debug!(%client, name, "TFTP was asked for a name it does not have");
            Err(Refusal::NotFound)
        }
    }
}
