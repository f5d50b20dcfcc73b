//! A forwarder into the namespace. The listener is outside, and each connection continues inside.
//! Browsers and tests on the host use the forwarder.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{LabError, io};
use crate::netns::Netns;

/// Most concurrent connections; further connections wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running forwarder. Dropping the value closes the listener and all connections.
#[derive(Debug)]
pub struct Forwarder {
    /// Address of the listener, outside the namespace.
    pub address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Forwarder {
    /// Listens on `outside` (port 0 picks a free port) and forwards each connection to `inside`, an
    /// address in the namespace.
    pub(crate) fn start(
        netns: &Netns,
        outside: SocketAddr,
        inside: SocketAddr,
    ) -> Result<Self, LabError> {
        let listener = StdListener::bind(outside).map_err(io(format!("listen on {outside}")))?;
        listener
            .set_nonblocking(true)
            .map_err(io("make a listener non-blocking"))?;
        let address = listener
            .local_addr()
            .map_err(io("read a listener's address"))?;
        let stop = CancellationToken::new();
        let (netns, stopped) = (netns.clone(), stop.clone());
        // The thread in the namespace runs the whole forwarder. The listener was created outside,
        // and the connections are created inside.
        let carry = move || netns.within(move || serve(listener, inside, stopped));
        std::thread::Builder::new()
            .name("forward".to_owned())
            .spawn(carry)
            .map_err(io("start a thread"))?;
        Ok(Self { address, stop })
    }
}

fn serve(listener: StdListener, inside: SocketAddr, stop: CancellationToken) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "the forwarder has no runtime"),
    };
    runtime.block_on(async {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "the forwarder has no listener"),
        };
        stop.run_until_cancelled(accept(listener, inside, TaskTracker::new()))
            .await;
    });
}

async fn accept(listener: TcpListener, inside: SocketAddr, connections: TaskTracker) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((outside, _)) => {
                connections.spawn(async move {
                    carry(outside, inside).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a forwarder could not accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn carry(mut outside: TcpStream, inside: SocketAddr) {
    // The client sees a refused connection as a closed connection, as with any proxy.
    let Ok(Ok(mut stream)) =
        tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(inside)).await
    else {
        return;
    };
    let _ = tokio::io::copy_bidirectional(&mut outside, &mut stream).await;
}
