//! A machine: its power, its firmware settings, and the acts on the machine.
//!
//! Every boot starts a new guest process. The firmware settings are read at that moment, as in a
//! real machine, so each boot uses the current boot order. A lock serializes all power changes in
//! the order of the requests.

pub mod accel; // KVM or emulation
pub mod console; // The serial console
pub mod disks; // The files behind the disks, read from outside
pub mod firmware; // Firmware settings for booting
pub mod launch; // The interface to QEMU or a fake
pub mod oracle; // The machine's own log of its power
mod ovmf; // Files of OVMF
pub(crate) mod processors; // CPUs of the host, shared by the guests
pub mod qemu; // Runs a machine in QEMU
pub(crate) mod qemu_args; // QEMU's command line
mod qmp; // QEMU's control protocol

#[cfg(test)]
pub(crate) mod fake; // A guest without QEMU

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_core::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, broadcast, watch};

use crate::error::LabError;
use crate::plan::MachinePlan;
use firmware::{BootOrder, BootOverride, Firmware};
use launch::{Boot, Exit, Guest, GuestAct, Launcher};
use oracle::{Cause, Entry, Happening, Oracle};

/// Maximum number of resets in a row, each within [`SHORT_BOOT`] of its boot. At the limit the
/// machine is switched off, because endless resets waste the host's CPU.
const MAX_SHORT_BOOTS: u32 = 20;
const SHORT_BOOT: Duration = Duration::from_secs(3);

/// Whether a machine has power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerState {
    /// The machine runs.
    On,
    /// The machine is off.
    Off,
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// The plan of the machine: CPUs, memory, firmware, disks.
    pub plan: MachinePlan,
    /// Directory of the disks, firmware variables, console and logs.
    pub dir: PathBuf,
    launcher: Arc<dyn Launcher>,
    oracle: Oracle,
    power: watch::Sender<PowerState>,
    firmware: std::sync::Mutex<Firmware>,
    running: Mutex<Running>,
}

/// The state guarded by the lock for power changes.
#[derive(Debug, Default)]
struct Running {
    guest: Option<Guest>,
    /// Cause of a pending graceful restart: boot again once the guest has powered off.
    boot_after_off: Option<Cause>,
    booted: Option<Instant>,
    short_boots: u32,
    /// The next reset by the guest leaves the machine off.
    stays_off: bool,
    closed: bool,
}

impl Machine {
    /// Builds a machine that is off.
    pub fn new(
        plan: MachinePlan,
        dir: PathBuf,
        launcher: Arc<dyn Launcher>,
        clock: Clock,
    ) -> Result<Arc<Self>, LabError> {
        let oracle = Oracle::open(&dir, clock)?;
        let firmware = std::sync::Mutex::new(Firmware::open(plan.firmware, &dir)?);
        let power = watch::Sender::new(PowerState::Off);
        Ok(Arc::new(Self {
            plan,
            dir,
            launcher,
            oracle,
            power,
            firmware,
            running: Mutex::default(),
        }))
    }

    /// Returns whether the machine has power now.
    pub fn power(&self) -> PowerState {
        *self.power.borrow()
    }

    /// Waits until the power is as wanted; fails with a timeout after `limit`.
    pub async fn wait_for_power(
        &self,
        wanted: PowerState,
        limit: Duration,
    ) -> Result<(), LabError> {
        let mut power = self.power.subscribe();
        let seen = tokio::time::timeout(limit, power.wait_for(|now| *now == wanted)).await;
        let late = || LabError::Timeout {
            what: format!("{} to be {wanted:?}", self.plan.name),
            after: limit,
        };
        seen.map(drop).map_err(|_| late())
    }

    /// Returns the number of boots over the life of the machine.
    pub fn boots(&self) -> u64 {
        self.firmware().boots()
    }

    /// Returns the active boot override.
    pub fn boot_override(&self) -> BootOverride {
        self.firmware().boot_override()
    }

    /// Sets or clears the boot override; takes effect at the next boot.
    pub fn set_boot_override(&self, boot_override: BootOverride) -> Result<(), LabError> {
        self.firmware().set_override(boot_override)
    }

    /// Returns the log of power changes and faults, oldest first.
    pub fn oracle(&self) -> Result<Vec<Entry>, LabError> {
        self.oracle.read()
    }

    /// Subscribes to the entries written to the log from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Entry> {
        self.oracle.subscribe()
    }

    /// Returns the process id of the guest; `None` while the machine is off.
    pub async fn pid(&self) -> Option<u32> {
        self.running
            .lock()
            .await
            .guest
            .as_ref()
            .and_then(|guest| guest.pid)
    }

    /// Switches the machine on; does nothing if the machine is on.
    pub async fn power_on(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        match running.guest {
            Some(_) => Ok(()),
            None => {
                self.boot(&mut running, cause, |order| Happening::PowerOn { order })
                    .await
            }
        }
    }

    /// Cuts the power; does nothing if the machine is off.
    pub async fn power_off(&self, cause: Cause) -> Result<(), LabError> {
        self.stop(&mut *self.running.lock().await, cause).await
    }

    /// Resets the machine: the guest is killed and started again, power stays on. Fails if the
    /// machine is off.
    pub async fn reset(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        let Some(guest) = running.guest.take() else {
            return Err(self.refusal("it is off"));
        };
        self.kill(&guest).await?;
        self.boot(&mut running, cause, |order| Happening::Reboot { order })
            .await
    }

    /// Cuts the power, then switches the machine on.
    pub async fn power_cycle(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        self.stop(&mut running, cause.clone()).await?;
        self.boot(&mut running, cause, |order| Happening::PowerOn { order })
            .await
    }

    /// Requests a shutdown from the operating system, which may ignore the request.
    pub async fn shut_down(&self, cause: Cause) -> Result<(), LabError> {
        let running = self.running.lock().await;
        self.press(&running, cause).await
    }

    /// Requests a shutdown from the operating system, and boots the machine after the shutdown.
    pub async fn restart_gracefully(&self, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        self.press(&running, cause.clone()).await?;
        running.boot_after_off = Some(cause);
        Ok(())
    }

    /// Presses the power button briefly: switches a machine on, or requests a shutdown from a
    /// running machine.
    pub async fn press_button(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        match self.power() {
            PowerState::Off => self.power_on(cause).await,
            PowerState::On => self.shut_down(cause).await,
        }
    }

    /// Performs an act without change of power on the running guest, and logs the act.
    pub async fn inflict(&self, act: GuestAct) -> Result<(), LabError> {
        let running = self.running.lock().await;
        let Some(guest) = &running.guest else {
            return Err(self.refusal("it is off"));
        };
        guest
            .act(act.clone())
            .await
            .map_err(|why| self.refusal(why))?;
        self.oracle.append(
            self.boots(),
            Happening::Fault {
                what: format!("{act:?}"),
            },
            Cause::Lab,
        );
        Ok(())
    }

    /// Sets the SMART critical warning of an NVMe disk, given by serial.
    pub async fn set_nvme_warning(&self, serial: &str, warning: u8) -> Result<(), LabError> {
        let disk = self
            .plan
            .disks
            .iter()
            .position(|disk| disk.serial == serial);
        let disk = disk.ok_or_else(|| LabError::Unknown(format!("disk {serial}")))?;
        self.inflict(GuestAct::SetNvmeWarning { disk, warning })
            .await
    }

    /// Makes the next reset by the operating system leave the machine off. Applies once.
    pub async fn stay_off_once(&self) {
        self.running.lock().await.stays_off = true;
        let what = "its next reset will leave it off".to_owned();
        self.oracle
            .append(self.boots(), Happening::Fault { what }, Cause::Lab);
    }

    /// Cuts the power for good, because the rack is being taken down.
    pub(crate) async fn close(&self) {
        let mut running = self.running.lock().await;
        running.closed = true;
        if let Err(error) = self.stop(&mut running, Cause::Lab).await {
            tracing::warn!(machine = %self.plan.name, %error, "a guest had to be left to the cleaning");
        }
    }

    async fn press(&self, running: &Running, cause: Cause) -> Result<(), LabError> {
        let Some(guest) = &running.guest else {
            return Err(self.refusal("it is off"));
        };
        self.oracle
            .append(self.boots(), Happening::ButtonPressed, cause);
        guest
            .act(GuestAct::PressPowerButton)
            .await
            .map(drop)
            .map_err(|why| self.refusal(why))
    }

    async fn stop(&self, running: &mut Running, cause: Cause) -> Result<(), LabError> {
        running.boot_after_off = None;
        let Some(guest) = running.guest.take() else {
            return Ok(());
        };
        self.kill(&guest).await?;
        self.went_off(cause);
        Ok(())
    }

    async fn kill(&self, guest: &Guest) -> Result<(), LabError> {
        // An error here means that the guest ended in between, which is fine; `ended` below
        // confirms the end.
        let _ = guest.act(GuestAct::Kill).await;
        let limit = Duration::from_secs(10);
        let late = |_| LabError::Timeout {
            what: format!("{} to lose its power", self.plan.name),
            after: limit,
        };
        tokio::time::timeout(limit, guest.ended())
            .await
            .map(drop)
            .map_err(late)
    }

    fn went_off(&self, cause: Cause) {
        self.oracle.append(self.boots(), Happening::PowerOff, cause);
        self.power.send_replace(PowerState::Off);
    }

    async fn boot(
        self: &Arc<Self>,
        running: &mut Running,
        cause: Cause,
        happening: fn(BootOrder) -> Happening,
    ) -> Result<(), LabError> {
        if running.closed {
            return Err(self.refusal("the rack is being taken down"));
        }
        let (number, order) = self.firmware().begin_boot()?;
        self.oracle.append(number, happening(order), cause);
        let guest = match self.launcher.launch(Boot { number, order }).await {
            Ok(guest) => guest,
            Err(error) => {
                self.oracle.append(
                    number,
                    Happening::Failed {
                        why: error.to_string(),
                    },
                    Cause::Lab,
                );
                self.power.send_replace(PowerState::Off);
                return Err(error);
            }
        };
        running.guest = Some(guest.clone());
        running.booted = Some(Instant::now());
        self.power.send_replace(PowerState::On);
        #[expect(
            clippy::disallowed_methods,
            reason = "the watch of a guest ends with the guest"
        )]
        tokio::spawn(Arc::clone(self).watch(guest, number));
        Ok(())
    }

    /// Waits for the end of a guest, then handles the exit. The future is boxed because the watch
    /// of a guest may boot and watch the next guest.
    fn watch(self: Arc<Self>, guest: Guest, number: u64) -> BoxFuture<'static, ()> {
        async move {
            let exit = guest.ended().await;
            let mut running = self.running.lock().await;
            if running.guest.is_some() && self.boots() == number {
                running.guest = None;
                if let Err(error) = self.after_exit(&mut running, exit).await {
                    tracing::warn!(machine = %self.plan.name, %error, "a machine did not boot again");
                }
            }
        }
        .boxed()
    }

    async fn after_exit(
        self: &Arc<Self>,
        running: &mut Running,
        exit: Exit,
    ) -> Result<(), LabError> {
        let short = running
            .booted
            .is_some_and(|booted| booted.elapsed() < SHORT_BOOT);
        running.short_boots = if short { running.short_boots + 1 } else { 0 };
        let stays_off = exit == Exit::Reset && std::mem::take(&mut running.stays_off);
        match exit {
            _ if stays_off => {}
            Exit::Reset if running.short_boots < MAX_SHORT_BOOTS => {
                running.boot_after_off = None;
                return self
                    .boot(running, Cause::Guest, |order| Happening::Reboot { order })
                    .await;
            }
            Exit::Reset => {
                let why =
                    format!("{MAX_SHORT_BOOTS} resets, each within {SHORT_BOOT:?}: switched off");
                self.oracle
                    .append(self.boots(), Happening::Failed { why }, Cause::Lab);
            }
            Exit::Lost(why) => {
                self.oracle
                    .append(self.boots(), Happening::Failed { why }, Cause::Lab)
            }
            Exit::PoweredOff => {}
        }
        self.went_off(Cause::Guest);
        match running.boot_after_off.take() {
            Some(cause) => {
                self.boot(running, cause, |order| Happening::PowerOn { order })
                    .await
            }
            None => Ok(()),
        }
    }

    fn firmware(&self) -> std::sync::MutexGuard<'_, Firmware> {
        self.firmware
            .lock()
            .expect("no holder of the firmware settings panics")
    }

    fn refusal(&self, why: impl Into<String>) -> LabError {
        LabError::Machine {
            machine: self.plan.name.to_string(),
            why: why.into(),
        }
    }
}
