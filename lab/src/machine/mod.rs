//! One machine: its power, what its firmware remembers, and what can be done to it.
//!
//! Every boot is a new guest process, so that each boot gets the order its firmware settings say and the settings are read at
//! the moment of booting, as a real machine does. All power changes go through one lock, in the order they are asked for.

pub mod accel; // KVM or emulation
pub mod console; // The serial console
pub mod disks; // The files behind the disks, read from outside
pub mod firmware; // What it remembers about booting
pub mod launch; // The seam to what runs it
pub mod oracle; // Its own account of its power
mod ovmf; // Files of OVMF
pub mod qemu; // Running it in QEMU
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

/// A guest that resets this often, each time within [`SHORT_BOOT`], is switched off instead of spinning the host.
const MAX_SHORT_BOOTS: u32 = 20;
const SHORT_BOOT: Duration = Duration::from_secs(3);

/// Whether a machine has power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerState {
    /// It runs.
    On,
    /// It does not.
    Off,
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// What it is made of.
    pub plan: MachinePlan,
    /// Where its disks, firmware variables, console and logs are.
    pub dir: PathBuf,
    launcher: Arc<dyn Launcher>,
    oracle: Oracle,
    power: watch::Sender<PowerState>,
    firmware: std::sync::Mutex<Firmware>,
    running: Mutex<Running>,
}

/// What changes when power changes.
#[derive(Debug, Default)]
struct Running {
    guest: Option<Guest>,
    /// Boot again once the guest has switched itself off: a graceful restart is under way.
    boot_after_off: Option<Cause>,
    booted: Option<Instant>,
    short_boots: u32,
    /// Its next reset leaves it off.
    stays_off: bool,
    closed: bool,
}

impl Machine {
    /// A machine that is off.
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

    /// Whether it has power now.
    pub fn power(&self) -> PowerState {
        *self.power.borrow()
    }

    /// Waits until its power is as wanted.
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

    /// How often it has booted.
    pub fn boots(&self) -> u64 {
        self.firmware().boots()
    }

    /// The boot override in force.
    pub fn boot_override(&self) -> BootOverride {
        self.firmware().boot_override()
    }

    /// Sets or clears the boot override; it counts from the next boot.
    pub fn set_boot_override(&self, boot_override: BootOverride) -> Result<(), LabError> {
        self.firmware().set_override(boot_override)
    }

    /// What happened to it, oldest first.
    pub fn oracle(&self) -> Result<Vec<Entry>, LabError> {
        self.oracle.read()
    }

    /// What happens to it from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Entry> {
        self.oracle.subscribe()
    }

    /// The process of its guest while it runs.
    pub async fn pid(&self) -> Option<u32> {
        self.running
            .lock()
            .await
            .guest
            .as_ref()
            .and_then(|guest| guest.pid)
    }

    /// Switches it on; nothing happens when it is on.
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

    /// Takes its power away; nothing happens when it is off.
    pub async fn power_off(&self, cause: Cause) -> Result<(), LabError> {
        self.stop(&mut *self.running.lock().await, cause).await
    }

    /// Resets it: the guest is lost, power stays.
    pub async fn reset(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        let Some(guest) = running.guest.take() else {
            return Err(self.refusal("it is off"));
        };
        self.kill(&guest).await?;
        self.boot(&mut running, cause, |order| Happening::Reboot { order })
            .await
    }

    /// Takes its power away and gives it back.
    pub async fn power_cycle(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        self.stop(&mut running, cause.clone()).await?;
        self.boot(&mut running, cause, |order| Happening::PowerOn { order })
            .await
    }

    /// Asks the operating system to switch off; it may ignore that.
    pub async fn shut_down(&self, cause: Cause) -> Result<(), LabError> {
        let running = self.running.lock().await;
        self.press(&running, cause).await
    }

    /// Asks the operating system to switch off, and switches on again when it has.
    pub async fn restart_gracefully(&self, cause: Cause) -> Result<(), LabError> {
        let mut running = self.running.lock().await;
        self.press(&running, cause.clone()).await?;
        running.boot_after_off = Some(cause);
        Ok(())
    }

    /// A short press of the power button: on when off, else a polite request to switch off.
    pub async fn press_button(self: &Arc<Self>, cause: Cause) -> Result<(), LabError> {
        match self.power() {
            PowerState::Off => self.power_on(cause).await,
            PowerState::On => self.shut_down(cause).await,
        }
    }

    /// Does something to the running guest that is not a change of power, and notes it.
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

    /// Sets the SMART critical warning of one of its NVMe disks, by serial.
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

    /// Has it not come back from the next reset that its operating system asks for: it is off then, once.
    pub async fn stay_off_once(&self) {
        self.running.lock().await.stays_off = true;
        let what = "its next reset will leave it off".to_owned();
        self.oracle
            .append(self.boots(), Happening::Fault { what }, Cause::Lab);
    }

    /// Cuts the power for good: the rack is being taken down.
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
        // A guest that ended in between is what is wanted; `ended` below tells.
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

    /// Follows one guest to its end. A boxed future, because a reset boots again and each boot is watched in turn.
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
