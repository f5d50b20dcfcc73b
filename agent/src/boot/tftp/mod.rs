//! TFTP for the first loaders only. Names are matched exactly, and the bytes come from memory
//! instead of a file system. A source address can be invented, so only sources inside of the
//! listener's subnets are answered, with one packet until the first acknowledgement.

mod send; // Sends a file to a client, in a thread per client
pub mod transfer; // State of a transfer and its next step
pub mod wire; // Encodes and decodes packets

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use tokio::net::UdpSocket;

use self::send::{Sender, refuse};
use self::wire::{Packet, Refusal, Request};
use super::Shared;
use super::links::ListenError;

/// Serves loaders on an address of the agent until the socket fails. `up` is called after the
/// listener is ready. The socket is bound to the address and never to the wildcard, so that answers
/// have the correct source address.
pub async fn serve(
    shared: Arc<Shared>,
    address: Ipv4Addr,
    up: impl FnOnce(),
) -> Result<(), ListenError> {
    let at = SocketAddrV4::new(address, shared.ports.tftp);
    let failed = |source| bind_error(at, source);
    let socket = UdpSocket::bind(at).await.map_err(failed)?;
    up();
    // The sender is dropped with the future, so transfers end soon after their listener.
    let sender = Sender::new(address, Arc::clone(&shared));
    let mut buffer = [0; 1500];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.map_err(failed)?;
        let SocketAddr::V4(client) = client else {
            continue;
        };
        if !shared.site.borrow().has_client(address, *client.ip()) {
            tracing::debug!(%client, %address, "TFTP packet ignored: the source is outside of the listener's subnets");
            continue;
        }
        let session = tracing::error_span!("boot", peer = %client);
        session.in_scope(|| {
            let answered = accept_packet(&shared, &sender, client, &buffer[..length]);
            if let Err(refusal) = answered
                && let Err(error) = refuse(address, client, refusal)
            {
                tracing::debug!(%error, "TFTP error packet not sent");
            }
        });
    }
}

/// Accepts a packet on the port of the listener. A request starts a transfer.
fn accept_packet(
    shared: &Shared,
    sender: &Sender,
    client: SocketAddrV4,
    packet: &[u8],
) -> Result<(), Refusal> {
    match wire::parse(packet)? {
        Some(Packet::Read(request)) => give(shared, sender, client, request),
        Some(Packet::Write) => Err(Refusal::ReadOnly),
        Some(Packet::Ack(_) | Packet::Error) | None => Ok(()),
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
    client: SocketAddrV4,
    request: Request,
) -> Result<(), Refusal> {
    let name = request.name.strip_prefix('/').unwrap_or(&request.name);
    match shared.ipxe.get(name) {
        Some(bytes) => sender.start(client, request, bytes),
        None => {
            tracing::debug!(name, "TFTP request for an unknown file");
            Err(Refusal::NotFound)
        }
    }
}
