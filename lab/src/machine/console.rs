//! The serial console of a machine: a log of limited size, and a socket that stays open across
//! power cycles.
//!
//! QEMU connects to the lab at every boot, so the log has every byte of the boot. Watchers connect
//! to `console.sock`: a watcher receives the recent output, then all new output, and can type.
//! Readers connect to a TCP port, as on a terminal server: a reader receives new output only, and
//! its input is ignored.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::qemu_args::SERIAL_SOCKET;
use crate::error::{LabError, io};

/// Name of the watchers' socket in the machine's directory.
pub const CONSOLE_SOCKET: &str = "console.sock";
/// Name of the log in the machine's directory; the previous part of the log is `console.log.1`.
pub const CONSOLE_LOG: &str = "console.log";
/// Size in bytes at which the log is renamed and a new log starts.
const MAX_LOG: u64 = 4 << 20;
/// Recent output kept for a new watcher, in bytes; up to twice as much is kept and sent.
const BACKLOG: usize = 64 << 10;
/// Maximum number of watchers, and of readers.
const MAX_WATCHERS: usize = 16;

/// A console; dropping the value closes the sockets.
#[derive(Debug)]
pub(crate) struct Console {
    tape: Arc<Tape>,
    _tasks: [AbortOnDropHandle<()>; 3],
}

/// The state shared by the serial line and the watchers.
#[derive(Debug)]
struct Tape {
    dir: PathBuf,
    written: Mutex<Written>,
    fresh: broadcast::Sender<Vec<u8>>,
}

#[derive(Debug)]
struct Written {
    log: File,
    length: u64,
    recent: Vec<u8>,
}

impl Console {
    /// Opens the log and listens for QEMU, for watchers, and at `port` for readers.
    pub(crate) fn open(dir: &Path, port: std::net::TcpListener) -> Result<Self, LabError> {
        let log = open_log(dir)?;
        let length = log
            .metadata()
            .map_err(io("read the console log's size"))?
            .len();
        let written = Mutex::new(Written {
            log,
            length,
            recent: Vec::new(),
        });
        let tape = Arc::new(Tape {
            dir: dir.to_owned(),
            written,
            fresh: broadcast::Sender::new(256),
        });
        let (keys, typed) = mpsc::channel(64);
        let line = follow_line(listen(&dir.join(SERIAL_SOCKET))?, Arc::clone(&tape), typed);
        let watchers = serve_watchers(listen(&dir.join(CONSOLE_SOCKET))?, Arc::clone(&tape), keys);
        port.set_nonblocking(true)
            .map_err(io("set up the console's port"))?;
        let port = TcpListener::from_std(port).map_err(io("set up the console's port"))?;
        let readers = serve_readers(port, Arc::clone(&tape));
        #[expect(
            clippy::disallowed_methods,
            reason = "the console owns its tasks, which end when the console is dropped"
        )]
        let tasks = [
            tokio::spawn(line),
            tokio::spawn(watchers),
            tokio::spawn(readers),
        ]
        .map(AbortOnDropHandle::new);
        Ok(Self {
            tape,
            _tasks: tasks,
        })
    }

    /// Writes a line of the lab into the output, to separate two boots.
    pub(crate) fn mark(&self, text: &str) {
        self.tape
            .write(format!("\r\n--- {text} ---\r\n").as_bytes());
    }
}

impl Tape {
    fn write(&self, bytes: &[u8]) {
        let mut written = self
            .written
            .lock()
            .expect("no holder of the console log panics");
        if written.length + bytes.len() as u64 > MAX_LOG {
            // Errors of the log are ignored: the console must continue without a log.
            let _ = fs::rename(
                self.dir.join(CONSOLE_LOG),
                self.dir.join(format!("{CONSOLE_LOG}.1")),
            );
            if let Ok(log) = open_log(&self.dir) {
                (written.log, written.length) = (log, 0);
            }
        }
        written.length += bytes.len() as u64;
        let _ = written.log.write_all(bytes);
        written.recent.extend_from_slice(bytes);
        if written.recent.len() > 2 * BACKLOG {
            let old = written.recent.len() - BACKLOG;
            written.recent.drain(..old);
        }
        // Sent under the lock, so that a new watcher receives each byte exactly once.
        let _ = self.fresh.send(bytes.to_vec());
    }

    /// Returns the recent output and a receiver for all later output.
    fn watch(&self) -> (Vec<u8>, broadcast::Receiver<Vec<u8>>) {
        let written = self
            .written
            .lock()
            .expect("no holder of the console log panics");
        (written.recent.clone(), self.fresh.subscribe())
    }
}

fn open_log(dir: &Path) -> Result<File, LabError> {
    let path = dir.join(CONSOLE_LOG);
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(io(format!("open {}", path.display())))
}

/// Listens on a socket file; removes a file left by an earlier run first.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, LabError> {
    let _ = fs::remove_file(path);
    UnixListener::bind(path).map_err(io(format!("listen on {}", path.display())))
}

/// Serves QEMU's serial connections, a single connection at a time, until the listener fails.
async fn follow_line(listener: UnixListener, tape: Arc<Tape>, mut typed: mpsc::Receiver<Vec<u8>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let (mut read, mut write) = stream.into_split();
        let mut chunk = [0; 4096];
        loop {
            tokio::select! {
                read = read.read(&mut chunk) => match read {
                    Ok(length) if length > 0 => tape.write(&chunk[..length]),
                    Ok(_) | Err(_) => break,
                },
                Some(keys) = typed.recv() => if write.write_all(&keys).await.is_err() { break },
            }
        }
    }
}

async fn serve_watchers(listener: UnixListener, tape: Arc<Tape>, keys: mpsc::Sender<Vec<u8>>) {
    let mut watchers = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        while watchers.try_join_next().is_some() {}
        if watchers.len() < MAX_WATCHERS {
            let (recent, fresh) = tape.watch();
            watchers.spawn(serve_watcher(stream, recent, fresh, Some(keys.clone())));
        }
    }
}

async fn serve_readers(listener: TcpListener, tape: Arc<Tape>) {
    let mut readers = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        while readers.try_join_next().is_some() {}
        if readers.len() < MAX_WATCHERS {
            readers.spawn(serve_watcher(
                stream,
                Vec::new(),
                tape.fresh.subscribe(),
                None,
            ));
        }
    }
}

/// Sends the console to a watcher until the watcher disconnects; input from the watcher goes to
/// `keys`.
async fn serve_watcher(
    stream: impl AsyncRead + AsyncWrite,
    recent: Vec<u8>,
    mut fresh: broadcast::Receiver<Vec<u8>>,
    keys: Option<mpsc::Sender<Vec<u8>>>,
) {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut chunk = [0; 256];
    if write.write_all(&recent).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            bytes = fresh.recv() => match bytes {
                Ok(bytes) => if write.write_all(&bytes).await.is_err() { return },
                // A watcher slower than its console misses some output; the log is complete.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
            read = read.read(&mut chunk) => match read {
                Ok(length) if length > 0 => {
                    // Keys typed while the machine is off are lost, as on a real serial line.
                    let _ = keys.as_ref().map(|keys| keys.try_send(chunk[..length].to_vec()));
                }
                Ok(_) | Err(_) => return,
            },
        }
    }
}
