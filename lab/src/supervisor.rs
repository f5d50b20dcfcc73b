//! Keeping a daemon running, as a service manager would: whoever asks it to shut down gets a fresh one.

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

/// Starts before the supervisor gives up; a daemon that cannot run must not spin.
const MAX_STARTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(300);
/// How long a daemon may take to end when asked.
const GRACE: Duration = Duration::from_secs(10);

/// A daemon that is kept running; dropping it ends the daemon a little later.
#[derive(Debug)]
pub(crate) struct Supervised {
    restart: Arc<Notify>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Starts it, and starts it again whenever it ends, until `stop`.
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

    /// Ends it and starts it again; returns at once.
    pub(crate) fn restart(&self) {
        self.restart.notify_one();
    }

    /// Ends it for good.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        // The task ends within the grace; when it was aborted with its runtime there is nothing left to end.
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
        // Killed because the rack is going: nothing may start in it any more.
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

/// Asks politely, then not.
async fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // A daemon that ended in between is what is wanted.
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
