//! A wire with faults: late, partial, one-way, repeated, reordered and lost connections and
//! datagrams. The kernel of the test machine has no such faults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::task::JoinSet;

/// The faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// Delay of each piece.
    pub(crate) delay: Duration,
    /// No piece arrives; connections stay open.
    pub(crate) dead: bool,
    /// Number of bytes before a connection is cut.
    pub(crate) cut_after: Option<u64>,
    /// Of a hundred datagrams: lost, sent twice, sent after the next datagram.
    pub(crate) lost: u32,
    pub(crate) twice: u32,
    pub(crate) late: u32,
}

/// The present faults of both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) there: Way,
    pub(crate) back: Way,
    /// New connections are closed at once.
    pub(crate) closed: bool,
}

/// The far end of a wire.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A wire. The end of the value ends the wire.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The near end.
    pub(crate) address: SocketAddr,
    faults: Arc<Mutex<Faults>>,
    _tasks: JoinSet<()>,
}

impl Wire {
    /// A wire without faults for connections.
    pub(crate) async fn connections(end: End) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, faults) = (
            listener.local_addr().unwrap(),
            Arc::<Mutex<Faults>>::default(),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, end, Arc::clone(&faults)));
        Self {
            address,
            faults,
            _tasks: tasks,
        }
    }

    /// A wire without faults for datagrams, with a single client at a time. The server may answer
    /// from another port.
    pub(crate) async fn datagrams(end: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, faults) = (
            socket.local_addr().unwrap(),
            Arc::<Mutex<Faults>>::default(),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(socket, end, Arc::clone(&faults)));
        Self {
            address,
            faults,
            _tasks: tasks,
        }
    }

    /// Changes the faults from now on, on open connections as well.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.faults));
    }

    /// Removes all faults.
    pub(crate) fn heal(&self) {
        self.set(|faults| *faults = Faults::default());
    }
}

fn lock(faults: &Mutex<Faults>) -> MutexGuard<'_, Faults> {
    faults.lock().expect("nobody panics with it")
}

async fn accept(listener: TcpListener, end: End, faults: Arc<Mutex<Faults>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted.unwrap(),
            Some(_) = connections.join_next() => continue,
        };
        if !lock(&faults).closed {
            connections.spawn(connect(stream, end.clone(), Arc::clone(&faults)));
        }
    }
}

async fn connect(stream: TcpStream, end: End, faults: Arc<Mutex<Faults>>) {
    stream.set_nodelay(true).unwrap();
    let (from, to) = stream.into_split();
    match end {
        End::Tcp(address) => {
            let Ok(far) = TcpStream::connect(address).await else {
                return;
            };
            far.set_nodelay(true).unwrap();
            let (back, there) = far.into_split();
            both(from, there, back, to, &faults).await;
        }
        End::Unix(path) => {
            let Ok(far) = UnixStream::connect(path).await else {
                return;
            };
            let (back, there) = far.into_split();
            both(from, there, back, to, &faults).await;
        }
    }
}

/// Copies until one direction ends, and drops both.
async fn both(
    from: impl AsyncRead + Unpin,
    there: impl AsyncWrite + Unpin,
    back: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    faults: &Mutex<Faults>,
) {
    tokio::select! {
        () = pump(from, there, || lock(faults).there) => {}
        () = pump(back, to, || lock(faults).back) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: impl Fn() -> Way,
) {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let now = way();
        if now.dead {
            continue;
        }
        tokio::time::sleep(now.delay).await;
        let left = now
            .cut_after
            .map_or(u64::MAX, |most| most.saturating_sub(passed));
        let whole = left > length as u64;
        let part = if whole {
            length
        } else {
            usize::try_from(left).unwrap()
        };
        if to.write_all(&buffer[..part]).await.is_err() || !whole {
            return;
        }
        passed += length as u64;
    }
}

async fn relay(socket: UdpSocket, end: SocketAddr, faults: Arc<Mutex<Faults>>) {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (mut client, mut server) = (None, end);
    let (mut there, mut back) = ([0; 2048], [0; 2048]);
    let (mut held_there, mut held_back) = (None, None);
    let mut dice = Dice(1);
    loop {
        tokio::select! {
            Ok((length, sender)) = socket.recv_from(&mut there) => {
                // Another client, or a new transfer: to the well-known port.
                if client.replace(sender) != Some(sender) {
                    server = end;
                }
                let way = lock(&faults).there;
                for datagram in dice.pass(way, there[..length].to_vec(), &mut held_there) {
                    tokio::time::sleep(way.delay).await;
                    // A repeated TFTP request goes to the well-known port.
                    let to = if datagram.starts_with(&[0, 1]) { end } else { server };
                    far.send_to(&datagram, to).await.unwrap();
                }
            }
            Ok((length, sender)) = far.recv_from(&mut back) => {
                server = sender;
                let (way, Some(client)) = (lock(&faults).back, client) else { continue };
                for datagram in dice.pass(way, back[..length].to_vec(), &mut held_back) {
                    tokio::time::sleep(way.delay).await;
                    socket.send_to(&datagram, client).await.unwrap();
                }
            }
        }
    }
}

/// Dice with the same falls in every run.
struct Dice(u64);

impl Dice {
    fn falls(&mut self, of_hundred: u32) -> bool {
        // Knuth's MMIX generator. The high bits are random enough for a wire.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 100 < u64::from(of_hundred)
    }

    /// Returns the datagrams to send: the present one, and one held back before.
    fn pass(&mut self, way: Way, datagram: Vec<u8>, held: &mut Option<Vec<u8>>) -> Vec<Vec<u8>> {
        if way.dead || self.falls(way.lost) {
            return Vec::new();
        }
        if held.is_none() && self.falls(way.late) {
            *held = Some(datagram);
            return Vec::new();
        }
        let twice = self.falls(way.twice).then(|| datagram.clone());
        [Some(datagram), twice, held.take()]
            .into_iter()
            .flatten()
            .collect()
    }
}
