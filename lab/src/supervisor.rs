//! Keeps a daemon running, as a service manager does: a daemon that ends, for any reason, is
//! started again.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::LabError;

/// Maximum number of starts before the supervisor gives up, so that a broken daemon cannot restart
/// forever.
const MAX_STARTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(300);
/// Time limit for a daemon to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// A daemon under supervision. Dropping the value ends the daemon shortly after.
#[derive(Debug)]
pub(crate) struct Supervised {
    restart: Arc<Notify>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Starts the daemon, and restarts the daemon after every end, until `stop` is cancelled.
    pub(crate) fn start(
        name: &'static str,
        stop: CancellationToken,
        spawn: impl Fn() -> Result<Child, LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let first = spawn()?;
        let restart = Arc::new(Notify::new());
        #[expect(
            clippy::disallowed_methods,
            reason = "the supervised program owns the task, which ends with `stop`"
        )]
        let task = tokio::spawn(supervise(
            name,
            first,
            spawn,
            Arc::clone(&restart),
            stop.clone(),
        ));
        Ok(Self {
            restart,
            stop,
            task,
        })
    }

    /// Requests a restart of the daemon; returns at once, before the restart.
    pub(crate) fn restart(&self) {
        self.restart.notify_one();
    }

    /// Ends the daemon for good and waits for the end.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        // The task ends within the grace period. An error means that the runtime aborted the task,
        // and the daemon is already gone.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn supervise(
    name: &'static str,
    mut child: Child,
    spawn: impl Fn() -> Result<Child, LabError>,
    restart: Arc<Notify>,
    stop: CancellationToken,
) {
    for _ in 0..MAX_STARTS {
        tokio::select! {
            status = child.wait() => tracing::info!(name, ?status, "a daemon ended and is started again"),
            () = restart.notified() => drop(end(&mut child).await),
            () = stop.cancelled() => {
                if let Err(error) = end(&mut child).await {
                    tracing::warn!(name, %error, "a daemon could not be ended");
                }
                return;
            }
        }
        // Return if `stop` is cancelled during the pause: no daemon may start while the rack is
        // being taken down.
        if stop
            .run_until_cancelled(tokio::time::sleep(PAUSE))
            .await
            .is_none()
        {
            return;
        }
        child = match spawn() {
            Ok(child) => child,
            Err(error) => {
                return tracing::error!(name, %error, "a daemon could not be started again");
            }
        };
    }
    tracing::error!(name, "a daemon ended {MAX_STARTS} times and is left ended");
}

/// Sends SIGTERM, and SIGKILL after the grace period.
async fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // An error only means that the daemon ended in between.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    match tokio::time::timeout(GRACE, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            child.kill().await?;
            child.wait().await
        }
    }
}
