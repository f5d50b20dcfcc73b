//! The interface between a machine's power logic and the process running the machine: QEMU, or a
//! fake in tests.

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::firmware::BootOrder;
use crate::error::LabError;

/// Starts guests.
pub trait Launcher: Send + Sync + std::fmt::Debug {
    /// Starts the guest for a boot and returns once the guest runs.
    fn launch(&self, boot: Boot) -> BoxFuture<'_, Result<Guest, LabError>>;
}

/// A boot of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// Number of the boot; counts from 1 over the life of the machine.
    pub number: u64,
    /// The boot order for the firmware.
    pub order: BootOrder,
}

/// The way in which a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The operating system powered the machine off.
    PoweredOff,
    /// The operating system or the firmware requested a reset.
    Reset,
    /// The guest was killed from outside or failed; the text gives the known details.
    Lost(String),
}

/// QEMU's answer to an act, or the reason why the act failed.
pub type Answer = Result<Value, String>;

/// A running guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Process id of the guest; `None` for a fake guest.
    pub pid: Option<u32>,
    /// Channel for acts on the guest, each with a channel for the answer.
    pub acts: mpsc::Sender<(GuestAct, oneshot::Sender<Answer>)>,
    /// The way in which the guest ended; `None` while the guest runs.
    pub exit: watch::Receiver<Option<Exit>>,
}

/// An act on a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestAct {
    /// Cut the power at once.
    Kill,
    /// Press the power button briefly (ACPI); the guest may ignore the press.
    PressPowerButton,
    /// Stop all CPUs of the guest; the power stays on.
    Wedge,
    /// Let stopped CPUs continue.
    Unwedge,
    /// Plug or unplug the network cable of the first card.
    SetLink {
        /// Whether the cable is plugged in.
        up: bool,
    },
    /// Report QEMU's block statistics for the disks since boot; changes no state.
    CountBlocks,
    /// Set the critical warning byte of an NVMe disk's SMART log (NVM Express base specification,
    /// SMART / Health log, byte 0).
    SetNvmeWarning {
        /// Index of the disk in the plan.
        disk: usize,
        /// Warning bits.
        warning: u8,
    },
}

impl Guest {
    /// Performs an act on the guest and waits for the answer.
    pub async fn act(&self, act: GuestAct) -> Answer {
        let (reply, done) = oneshot::channel();
        let ended = || "the guest has ended".to_owned();
        self.acts.send((act, reply)).await.map_err(|_| ended())?;
        done.await.map_err(|_| ended())?
    }

    /// Waits until the guest ends and returns the way in which the guest ended.
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
