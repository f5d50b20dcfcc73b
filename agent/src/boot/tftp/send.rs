//! Runs TFTP transfers. A transfer exchanges thousands of small packets. Each transfer has its own
//! thread, waiting in the kernel for the next packet. A task would need a poll, a queue and a timer
//! for each packet.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use muster_core::wire::calls::Seen;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;

use super::transfer::{Event, Step, Transfer};
use super::wire::{self, Packet, Refusal, Request};
use crate::boot::Shared;
use crate::boot::lookout::Identity;
use crate::boot::places::{Bounds, Full, Places};

/// Block size without negotiation (RFC 1350).
const BLOCK: u16 = 512;
/// Maximum block size: the 1500 bytes of Ethernet minus the headers. Larger blocks would be
/// fragmented, and firmware cannot reassemble fragments.
const MAX_BLOCK: u16 = 1468;
/// Maximum number of blocks in flight (RFC 7440), for the few clients with this option.
const MAX_WINDOW: u16 = 16;
/// Time until the last packets are repeated to a silent client. The value also limits how long a
/// transfer survives its listener.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Maximum numbers of parallel transfers. Firmware uses two: one to read the size, and often leaves
/// it without an end, and one for the file.
const TRANSFERS: Bounds = Bounds {
    per_source: 2,
    armed: 512,
    subnet: 512,
    outside: 0,
};
/// Stack size of a thread in bytes. The sent data is stored elsewhere.
const STACK: usize = 256 << 10;

/// Starts transfers. Dropping the sender stops the transfers.
pub(super) struct Sender {
    address: Ipv4Addr,
    shared: Arc<Shared>,
    clients: Arc<Mutex<HashSet<SocketAddrV4>>>,
    places: Arc<Places>,
    stop: CancellationToken,
    _stopper: DropGuard,
}

impl Sender {
    pub(super) fn new(address: Ipv4Addr, shared: Arc<Shared>) -> Self {
        let stop = CancellationToken::new();
        Self {
            address,
            shared,
            clients: Arc::default(),
            places: Places::new(TRANSFERS),
            _stopper: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Starts sending a file, inside the current span. A repeated request for a running transfer is
    /// ignored: the transfer repeats a lost packet, or ends and leaves the next request a new
    /// start. A request beyond the transfers of its source is ignored too, because firmware repeats
    /// a request without an answer, and gives up after an error.
    ///
    /// # Errors
    /// `Busy` when too many transfers are running.
    pub(super) fn start(
        &self,
        client: SocketAddrV4,
        request: Request,
        bytes: Bytes,
    ) -> Result<(), Refusal> {
        let Some(entry) = Entry::add(&self.clients, client) else {
            return Ok(());
        };
        let share = self.shared.share_of(*client.ip());
        let place = match self.places.take(*client.ip(), share) {
            Ok(place) => place,
            Err(Full::Source) => {
                tracing::debug!("TFTP request ignored: the source has all of its transfers");
                return Ok(());
            }
            Err(Full::Share) => return Err(Refusal::Busy),
        };
        let (address, shared, stop) = (self.address, Arc::clone(&self.shared), self.stop.clone());
        let thread = std::thread::Builder::new()
            .name("tftp".into())
            .stack_size(STACK);
        let session = Span::current();
        let started = thread.spawn(move || {
            let _session = session.entered();
            if let Err(error) = answer(&shared, address, client, &request, &bytes, &stop) {
                tracing::debug!(%error, "TFTP transfer interrupted");
            }
            // The place is free before the client can start again.
            drop(place);
            drop(entry);
        });
        started.map(drop).map_err(|_| Refusal::Busy)
    }
}

/// The entry of a client in the set of running transfers, removed on drop.
struct Entry {
    client: SocketAddrV4,
    clients: Arc<Mutex<HashSet<SocketAddrV4>>>,
}

impl Entry {
    /// Adds a client, or returns `None` for a client with a running transfer.
    fn add(clients: &Arc<Mutex<HashSet<SocketAddrV4>>>, client: SocketAddrV4) -> Option<Self> {
        let mut under_way = clients.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.insert(client).then(|| Self {
            client,
            clients: Arc::clone(clients),
        })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.client);
    }
}

/// Opens a socket with its own port for a client (RFC 1350 §4). The socket is connected, so packets
/// of other peers are dropped and a closed client port is reported at once.
fn socket(address: Ipv4Addr, client: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.connect(client)?;
    Ok(socket)
}

/// Sends an ERROR packet.
///
/// # Errors
/// The error of the socket.
pub(super) fn refuse(address: Ipv4Addr, client: SocketAddrV4, why: Refusal) -> io::Result<()> {
    socket(address, client)?.send(&wire::refused(why)).map(drop)
}

fn answer(
    shared: &Shared,
    address: Ipv4Addr,
    client: SocketAddrV4,
    request: &Request,
    bytes: &[u8],
    stop: &CancellationToken,
) -> io::Result<()> {
    let block_size = request.block_size.map(|size| size.min(MAX_BLOCK));
    let window = request.window.map(|blocks| blocks.min(MAX_WINDOW));
    let size = bytes.len() as u64;
    let granted = wire::granted(block_size, window, request.wants_size.then_some(size));
    let mut transfer = Transfer::new(
        size,
        block_size.unwrap_or(BLOCK),
        window.unwrap_or(1),
        granted.is_some(),
    );
    let ended = send_all(
        &socket(address, client)?,
        &mut transfer,
        bytes,
        &granted.unwrap_or_default(),
        stop,
    );
    if transfer.all_sent()
        && let Some(mac) = shared.mac_at(*client.ip())
    {
        let name = request.name.trim_start_matches('/');
        let what = format!("{name} to {}", client.ip());
        shared
            .lookout
            .saw(mac, Seen::Tftp, Identity::default(), what);
    }
    ended
}

fn send_all(
    socket: &UdpSocket,
    transfer: &mut Transfer,
    bytes: &[u8],
    granted: &[u8],
    stop: &CancellationToken,
) -> io::Result<()> {
    socket.set_read_timeout(Some(RETRY_AFTER))?;
    let mut packet = Vec::with_capacity(4 + usize::from(MAX_BLOCK));
    let mut step = transfer.first();
    // Time of the first useless packet in a row. Further useless packets do not extend the wait.
    let mut idle_since = None;
    while !stop.is_cancelled() {
        match step {
            Step::Send(blocks) => {
                idle_since = None;
                for block in blocks {
                    if block == 0 {
                        socket.send(granted)?;
                        continue;
                    }
                    let range = transfer.bytes_of(block);
                    packet.clear();
                    packet.extend_from_slice(&wire::data_header((block & 0xffff) as u16));
                    packet.extend_from_slice(&bytes[range.start as usize..range.end as usize]);
                    socket.send(&packet)?;
                }
            }
            Step::Wait => {}
            Step::Done => return Ok(()),
            Step::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
        }
        step = match hear(socket)? {
            Heard::Ack(number) => transfer.on(Event::Ack(number)),
            Heard::Enough => return Ok(()),
            Heard::Silence => transfer.on(Event::Silence),
            Heard::Stray => Step::Wait,
        };
        if step == Step::Wait
            && idle_since.get_or_insert_with(Instant::now).elapsed() >= RETRY_AFTER
        {
            idle_since = None;
            step = transfer.on(Event::Silence);
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// The packet received from the client within [`RETRY_AFTER`].
enum Heard {
    Ack(u16),
    /// The client needs no more data.
    Enough,
    Silence,
    Stray,
}

fn hear(socket: &UdpSocket) -> io::Result<Heard> {
    let mut buffer = [0; 600];
    match socket.recv(&mut buffer) {
        Ok(length) => Ok(match wire::parse(&buffer[..length]) {
            Ok(Some(Packet::Ack(number))) => Heard::Ack(number),
            Ok(Some(Packet::Error)) => Heard::Enough,
            _ => Heard::Stray,
        }),
        Err(error) => match error.kind() {
            // A timeout of the socket (socket(7)).
            io::ErrorKind::WouldBlock => Ok(Heard::Silence),
            io::ErrorKind::Interrupted => Ok(Heard::Stray),
            _ => Err(error),
        },
    }
}
