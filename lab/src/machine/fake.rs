//! A guest without QEMU, for tests: the fake guest runs, can be killed, and ends when the test says
//! so.

use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_core::clock::Clock;
use tokio::sync::{mpsc, watch};

use super::Machine;
use super::launch::{Answer, Boot, Exit, Guest, GuestAct, Launcher};
use crate::error::LabError;
use crate::plan::RackPlan;

/// Launches fake guests and remembers each launch.
#[derive(Debug, Default)]
pub(crate) struct FakeLauncher {
    /// Every boot, oldest first.
    pub(crate) boots: Mutex<Vec<Boot>>,
    /// Held by a test to keep the power of a booting machine off.
    pub(crate) starting: tokio::sync::Mutex<()>,
    current: Mutex<Option<watch::Sender<Option<Exit>>>>,
}

impl FakeLauncher {
    /// Ends the running guest with `exit`, as if its operating system did.
    pub(crate) fn guest_exits(&self, exit: Exit) {
        let current = self.current.lock().unwrap();
        current
            .as_ref()
            .expect("a guest runs")
            .send_replace(Some(exit));
    }
}

impl Launcher for FakeLauncher {
    fn launch(&self, boot: Boot) -> BoxFuture<'_, Result<Guest, LabError>> {
        self.boots.lock().unwrap().push(boot);
        let (acts, mut queue) =
            mpsc::channel::<(GuestAct, tokio::sync::oneshot::Sender<Answer>)>(8);
        let (ended, exit) = watch::channel(None);
        *self.current.lock().unwrap() = Some(ended.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "the guest owns the task, which ends when the guest is dropped"
        )]
        tokio::spawn(async move {
            while let Some((act, done)) = queue.recv().await {
                match act {
                    GuestAct::Kill => {
                        drop(ended.send_replace(Some(Exit::Lost("killed".to_owned()))))
                    }
                    GuestAct::PressPowerButton => drop(ended.send_replace(Some(Exit::PoweredOff))),
                    GuestAct::Wedge
                    | GuestAct::Unwedge
                    | GuestAct::CountBlocks
                    | GuestAct::SetLink { .. }
                    | GuestAct::SetNvmeWarning { .. } => {}
                }
                let _ = done.send(Ok(serde_json::Value::Null));
            }
        });
        async move {
            drop(self.starting.lock().await);
            Ok(Guest {
                pid: None,
                acts,
                exit,
            })
        }
        .boxed()
    }
}

/// Builds the machine at `index` in the reference rack, run by a fake launcher.
pub(crate) fn machine(dir: &Path, index: usize) -> (Arc<Machine>, Arc<FakeLauncher>) {
    let launcher = Arc::new(FakeLauncher::default());
    let plan = RackPlan::reference().machines[index].clone();
    let machine = Machine::new(plan, dir.to_owned(), launcher.clone(), Clock::System).unwrap();
    (machine, launcher)
}
