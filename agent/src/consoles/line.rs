//! Reads a serial console over TCP and reconnects after a failure. The agent never sends data to a
//! console.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use muster_core::wire::calls::ConsoleTarget;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::tape::Tape;
use crate::work::backoff::Backoff;

const CONNECT: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A connection open this long was healthy. The next reconnect uses a short pause again.
const GOOD: Duration = Duration::from_secs(30);
/// Maximum size of a read in bytes. The bytes fit into a chunk even if decoding as text makes them
/// longer.
const READ: usize = 2 << 10;
/// The first connects of all consoles are spread over this time, because a terminal server with
/// hundreds of ports is a small computer.
const SPREAD: Duration = Duration::from_secs(1);

/// Reads a console onto its tape until the future is dropped.
pub(super) async fn read(target: ConsoleTarget, tape: Arc<Tape>) {
    let address = SocketAddr::new(target.address, target.port);
    let mut backoff = Backoff::new(MAX_PAUSE);
    let mut told = Told::Nothing;
    tokio::time::sleep(SPREAD.mul_f64(rand::random())).await;
    loop {
        let begun = Instant::now();
        let ended = follow(address, &tape, &mut told).await;
        // A reader of the console learns no state of a port.
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "console cannot be read; tried again");
        }
        match told {
            Told::Nothing => tape.note(&format!(
                "the console at {address} cannot be read; it is tried again"
            )),
            Told::Reading => tape.note(&format!(
                "the console at {address} is lost; it is tried again"
            )),
            Told::Away => {}
        }
        told = Told::Away;
        if begun.elapsed() >= GOOD {
            backoff.reset();
        }
        backoff.pause().await;
    }
}

/// The connection state last noted on the tape. Each change is noted once, and a connection without
/// data adds no note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Reading,
    Away,
}

/// Reads a single connection from connect to close.
async fn follow(address: SocketAddr, tape: &Tape, told: &mut Told) -> io::Result<()> {
    let mut stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await??;
    keep_alive(&stream)?;
    let mut bytes = [0; READ];
    loop {
        let length = stream.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        if std::mem::replace(told, Told::Reading) == Told::Away {
            tape.note(&format!("the console at {address} is read again"));
        }
        tape.write(&bytes[..length]);
    }
}

/// Enables TCP keepalive. A console can be silent for weeks, so only the kernel of the peer can
/// confirm the connection. The first probe is sent after a minute, and a dead peer is dropped after
/// two.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &60)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &15)?;
    setsockopt(stream, sockopt::TcpKeepCount, &4)?;
    Ok(())
}
