//! Power and boot order of the machine behind a BMC, whatever it speaks. Every change is read back: that a BMC said yes proves nothing.

use std::time::Duration;

use muster_core::values::{Digest, Secret};
use tokio::time::Instant;

use super::error::BmcError;
use super::evidence::{EventEntry, Sensor};
use super::ipmi::{self, Ipmi};
use super::pace::Limits;
use super::redfish::{self, Redfish};
use super::view::{BmcView, BootOnce, BootOverride, PowerState, Reset};
use crate::watch::{Stopped, Watch};

/// One BMC, for one job. Cheap to clone; all handles on one address share its pace and its writer.
#[derive(Clone, Debug)]
pub struct Bmc {
    pub(super) driver: Driver,
    pub(super) limits: Limits,
}

/// What it speaks.
#[derive(Clone, Debug)]
pub(super) enum Driver {
    Redfish(Redfish),
    Ipmi(Ipmi),
}

impl Bmc {
    /// The certificate that is trusted: the pinned one, or after the first call the one that was shown then. IPMI has none.
    pub fn certificate(&self) -> Option<Digest> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.certificate(),
            Driver::Ipmi(_) => None,
        }
    }

    /// What the BMC says now.
    ///
    /// # Errors
    /// [`BmcError`]
    pub async fn observe(&self) -> Result<BmcView, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.observe().await,
            Driver::Ipmi(bmc) => bmc.observe().await,
        }
    }

    /// Sets where the next boot goes and reads it back; returns what was read.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] when it does not read back as asked: some BMCs change it only while the machine is off.
    pub async fn set_boot_once(&self, boot: BootOnce) -> Result<BootOverride, BmcError> {
        let done = match boot {
            BootOnce::Pxe => BootOverride::network,
            BootOnce::None => BootOverride::local,
        };
        let (_alone, ways) = match &self.driver {
            Driver::Redfish(bmc) => (bmc.writer().await, redfish::boot_ways(boot).len()),
            Driver::Ipmi(bmc) => (bmc.writer().await, ipmi::boot_ways(boot).len()),
        };
        let mut refusal = None;
        // In turn, until one reads back.
        for way in 0..ways {
            let set = match &self.driver {
                Driver::Redfish(bmc) => bmc.set_boot(boot, way).await,
                Driver::Ipmi(bmc) => bmc.set_boot(boot, way).await,
            };
            match set {
                Ok(()) => match self.read_back(done).await? {
                    Ok(set) => return Ok(set),
                    Err(unchanged) => refusal = Some(unchanged),
                },
                Err(unsupported @ BmcError::Unsupported { .. }) => {
                    refusal = refusal.or(Some(unsupported))
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal
            .expect("there is at least one way, and every way that did not return left its reason"))
    }

    /// The override once it is as wanted, or why it is taken for ignored.
    async fn read_back(
        &self,
        done: fn(&BootOverride) -> bool,
    ) -> Result<Result<BootOverride, BmcError>, BmcError> {
        let started = Instant::now();
        loop {
            let seen = match &self.driver {
                Driver::Redfish(bmc) => bmc.boot_override().await?,
                Driver::Ipmi(bmc) => bmc.boot_override().await?,
            };
            let waited = started.elapsed();
            if done(&seen) {
                return Ok(Ok(seen));
            }
            if waited >= self.limits.settle {
                let call = "the change of the boot override".into();
                return Ok(Err(BmcError::NothingHappened {
                    call,
                    waited,
                    seen: seen.to_string(),
                }));
            }
            tokio::time::sleep(self.limits.poll).await;
        }
    }

    /// Asks for a power act. Never sent twice by itself: after [`BmcError::Timeout`] look at the power first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC does not offer the act.
    pub async fn reset(&self, act: Reset) -> Result<(), BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.reset(act).await,
            Driver::Ipmi(bmc) => bmc.reset(act).await,
        }
    }

    /// Gives the account that this handle logs in with another password. That it says yes proves nothing: log in with it.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when it has no accounts that can be changed, or not this one.
    pub async fn set_password(&self, password: &Secret) -> Result<(), BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.set_password(password).await,
            Driver::Ipmi(bmc) => bmc.set_password(password).await,
        }
    }

    /// The event log's latest `max` entries, oldest first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when there is no log.
    pub async fn event_log(&self, max: usize) -> Result<Vec<EventEntry>, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.event_log(max).await,
            Driver::Ipmi(bmc) => bmc.event_log(max).await,
        }
    }

    /// Temperatures and fans.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when it offers no way to read them.
    pub async fn sensors(&self) -> Result<Vec<Sensor>, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.sensors().await,
            Driver::Ipmi(bmc) => bmc.sensors().await,
        }
    }

    /// Watts the chassis draws now.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when it has no meter.
    pub async fn power_watts(&self) -> Result<f64, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => bmc.power_watts().await,
            Driver::Ipmi(bmc) => bmc.power_watts().await,
        }
    }

    /// Looks until the power is as wanted. BMCs that are busy, slow or away for a moment are asked again.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] at the deadline, or the last error when there was no view at all; at once what no retry mends.
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
                Ok(seen) => watch.waiting_for(format!(
                    "waiting for the BMC to show power {wanted}; it shows {seen}"
                )),
                Err(error) => watch.waiting_for(format!(
                    "waiting for the BMC to show power {wanted}; {error}"
                )),
            }
            let pause = match &seen {
                Err(BmcError::Busy {
                    retry_after: Some(after),
                    ..
                }) => (*after).max(self.limits.poll),
                Ok(_) | Err(_) => self.limits.poll,
            };
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

    /// After `ForceRestart`: waits through off to on again. `false`: it showed on all through `settle` (some never show the dip, and none shows
    /// it later than eleven seconds), so only the booted system can tell whether it restarted.
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
