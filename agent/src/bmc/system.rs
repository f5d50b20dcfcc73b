//! Power and boot order of the machine behind a BMC, for both protocols. Every change is read back,
//! because a success answer of a BMC proves no change.

use std::time::Duration;

use muster_core::values::{Digest, Secret};
use tokio::time::Instant;

use super::error::BmcError;
use super::evidence::{EventEntry, Sensor};
use super::ipmi::Ipmi;
use super::pace::Limits;
use super::redfish::Redfish;
use super::view::{BmcView, BootOnce, BootOverride, PowerState, Reset};
use crate::watch::{Stopped, Watch};

/// A BMC handle for a job. The handle is cheap to clone. All handles on an address share the pace
/// and the writer lock.
#[derive(Clone, Debug)]
pub struct Bmc {
    pub(super) driver: Driver,
    pub(super) limits: Limits,
}

/// The driver for the protocol of the BMC.
#[derive(Clone, Debug)]
pub(super) enum Driver {
    Redfish(Redfish),
    Ipmi(Ipmi),
}

impl Bmc {
    /// Returns the trusted certificate: the pinned certificate, or the certificate shown on the
    /// first call. IPMI has no certificate.
    pub fn certificate(&self) -> Option<Digest> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.certificate(),
            Driver::Ipmi(_) => None,
        }
    }

    /// Reads the current state of the machine from the BMC.
    ///
    /// # Errors
    /// [`BmcError`]
    pub async fn observe(&self) -> Result<BmcView, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.observe().await,
            Driver::Ipmi(bmc) => bmc.observe().await,
        }
    }

    /// Sets the target of the next boot, reads the override back, and returns the override read.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] when the override reads back different from the request. Some
    /// BMCs change the override only while the machine is off. [`BmcError::Unsupported`] when the
    /// BMC would boot the target by another mode, BIOS for UEFI.
    pub async fn set_boot_once(&self, boot: BootOnce) -> Result<BootOverride, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.set_boot_once(boot).await,
            Driver::Ipmi(bmc) => bmc.set_boot_once(boot).await,
        }
    }

    /// Sends a power action. The agent never repeats the request by itself: after
    /// [`BmcError::Timeout`] read the power state first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC does not offer the action.
    pub async fn reset(&self, act: Reset) -> Result<(), BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.reset(act).await,
            Driver::Ipmi(bmc) => bmc.reset(act).await,
        }
    }

    /// Changes the password of the login account. A success answer proves no change, so log in with
    /// the new password afterwards.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC cannot change accounts, or cannot change the login
    /// account.
    pub async fn set_password(&self, password: &Secret) -> Result<(), BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.set_password(password).await,
            Driver::Ipmi(bmc) => bmc.set_password(password).await,
        }
    }

    /// Returns the latest `max` entries of the event log, oldest first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC has no log.
    pub async fn event_log(&self, max: usize) -> Result<Vec<EventEntry>, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.event_log(max).await,
            Driver::Ipmi(bmc) => bmc.event_log(max).await,
        }
    }

    /// Returns the readings of temperature and fan sensors.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC has no readable sensors.
    pub async fn sensors(&self) -> Result<Vec<Sensor>, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.sensors().await,
            Driver::Ipmi(bmc) => bmc.sensors().await,
        }
    }

    /// Returns the power currently drawn by the chassis, in watts.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC has no power meter.
    pub async fn power_watts(&self) -> Result<f64, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.power_watts().await,
            Driver::Ipmi(bmc) => bmc.power_watts().await,
        }
    }

    /// Polls the power state until it equals `wanted`. Retries a BMC that is busy, slow or briefly
    /// unreachable.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] at the deadline, or the latest error when the last poll
    /// failed. Errors that no retry can fix are returned at once.
    pub async fn wait_power(&self, wanted: PowerState, watch: &Watch) -> Result<BmcView, BmcError> {
        let started = Instant::now();
        loop {
            let seen = match self.observe().await {
                Ok(view) if view.power == wanted => return Ok(view),
                Ok(view) => Ok(view.power),
                Err(error) if !error.retryable() => return Err(error),
                Err(error) => Err(error),
            };
            match &seen {
                Ok(seen) => {
                    watch.waiting_for(format!("the BMC to show power {wanted}; it shows {seen}"))
                }
                Err(error) => watch.waiting_for(format!("the BMC to show power {wanted}; {error}")),
            }
            let poll = self.limits.poll;
            let pause = seen.as_ref().err().map_or(poll, |error| error.pause(poll));
            match watch.pause(pause).await {
                Ok(()) => {}
                Err(Stopped::Cancelled) => return Err(BmcError::Cancelled),
                Err(Stopped::DeadlinePassed) => {
                    let call = format!("the change to power {wanted}");
                    return Err(match seen {
                        Ok(seen) => BmcError::NothingHappened {
                            call,
                            waited: started.elapsed(),
                            seen: seen.to_string(),
                        },
                        Err(error) => error,
                    });
                }
            }
        }
    }

    /// Waits after `ForceRestart` for power off and then for power on. Returns `false` when the
    /// power stayed on during `settle`, so that only the booted system can confirm the restart.
    /// Some BMCs never report the dip, and the slowest reports it after eleven seconds.
    ///
    /// # Errors
    /// As [`Bmc::wait_power`].
    pub async fn wait_restart(&self, settle: Duration, watch: &Watch) -> Result<bool, BmcError> {
        let mut dip = watch.clone();
        dip.deadline = dip.deadline.min(Instant::now() + settle);
        match self.wait_power(PowerState::Off, &dip).await {
            Ok(_) => self.wait_power(PowerState::On, watch).await.map(|_| true),
            Err(BmcError::NothingHappened { .. }) => {
                self.wait_power(PowerState::On, watch).await.map(|_| false)
            }
            Err(error) => Err(error),
        }
    }
}
