//! The seam between a machine's power logic and what really runs it: QEMU, or a fake in tests.

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::firmware::BootOrder;
use crate::error::LabError;

/// Starts guests.
pub trait Launcher: Send + Sync + std::fmt::Debug {
    /// Starts the guest for one boot and returns once it runs.
    fn launch(&self, boot: Boot) -> BoxFuture<'_, Result<Guest, LabError>>;
}

/// One boot of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// Counts from 1 over the machine's life.
    pub number: u64,
    /// What the firmware tries first.
    pub order: BootOrder,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The operating system switched the machine off.
    PoweredOff,
    /// The operating system or the firmware asked for a reset.
    Reset,
    /// It was killed from outside, or failed; with what is known.
    Lost(String),
}

/// What QEMU gave back for an act, or why it was not done.
pub type Answer = Result<Value, String>;

/// A running guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its process, when there is one.
    pub pid: Option<u32>,
    /// Where acts on it go.
    pub acts: mpsc::Sender<(GuestAct, oneshot::Sender<Answer>)>,
    /// How it ended, once it has.
    pub exit: watch::Receiver<Option<Exit>>,
}

/// What can be done to a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestAct {
    /// Take its power away, now.
    Kill,
    /// Press the power button briefly (ACPI); the guest may ignore it.
    PressPowerButton,
    /// Stop all its CPUs; it keeps its power.
    Wedge,
    /// Let its CPUs go on.
    Unwedge,
    /// Plug or unplug its network cable.
    SetLink {
        /// Whether the cable is in.
        up: bool,
    },
    /// Say what its disks were given and asked for since it booted; changes nothing.
    CountBlocks,
    /// Set the critical warning byte of an NVMe disk's SMART log (NVM Express base specification, SMART / Health log, byte 0).
    SetNvmeWarning {
        /// The disk's place in the plan.
        disk: usize,
        /// The bits.
        warning: u8,
    },
}

impl Guest {
    /// Does something to the guest and waits until it is done.
    pub async fn act(&self, act: GuestAct) -> Answer {
        let (reply, done) = oneshot::channel();
        let ended = || "the guest has ended".to_owned();
        self.acts.send((act, reply)).await.map_err(|_| ended())?;
        done.await.map_err(|_| ended())?
    }

    /// Waits until the guest has ended.
    pub async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        let seen = exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|exit| exit.clone());
        seen.unwrap_or_else(|| Exit::Lost("nobody watches the guest any more".to_owned()))
    }
}
