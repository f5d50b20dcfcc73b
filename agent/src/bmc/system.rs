//! Power and boot order of the machine behind a BMC. Every change is read back; a BMC's 2xx proves nothing.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Bmc, shortened};
use super::error::BmcError;
use crate::watch::{Stopped, Watch};

/// Power as the BMC shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
    /// It said something else, or nothing.
    Unknown,
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::PoweringOn => "powering on",
            Self::PoweringOff => "powering off",
            Self::Unknown => "an unknown power state",
        })
    }
}

/// How long a boot override holds. Some BMCs show `Continuous` for one that was set `Once`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideEnabled {
    Disabled,
    Once,
    Continuous,
    Unknown,
}

/// The boot override as it reads back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootOverride {
    pub enabled: OverrideEnabled,
    pub target: String,
}

impl BootOverride {
    /// Whether the next boot goes to the network.
    pub fn network(&self) -> bool {
        matches!(self.enabled, OverrideEnabled::Once | OverrideEnabled::Continuous) && self.target == "Pxe"
    }

    /// Whether the next boot follows the firmware's own order, or goes to the disk.
    pub fn local(&self) -> bool {
        self.enabled == OverrideEnabled::Disabled || matches!(self.target.as_str(), "None" | "Hdd")
    }
}

impl fmt::Display for BootOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot override {:?} to {:?}", self.enabled, self.target)
    }
}

/// What a BMC says of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BmcView {
    pub power: PowerState,
    pub boot_override: BootOverride,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub bios_version: Option<String>,
    /// `OK`, `Warning`, `Critical`.
    pub health: Option<String>,
}

/// Where the next boot goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOnce {
    Pxe,
    /// No override: the firmware's own order.
    None,
}

/// Power acts (DSP0268, `ResetType`). The BMC answers at once and the power changes seconds later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    On,
    ForceOff,
    ForceRestart,
    GracefulShutdown,
}

impl Reset {
    fn word(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOff => "ForceOff",
            Self::ForceRestart => "ForceRestart",
            Self::GracefulShutdown => "GracefulShutdown",
        }
    }
}

impl Bmc {
    /// What the BMC says now.
    ///
    /// # Errors
    /// [`BmcError`]
    pub async fn observe(&self) -> Result<BmcView, BmcError> {
        Ok(view(&self.get(self.system_path().await?).await?))
    }

    /// Sets where the next boot goes and reads it back; returns what was read.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] when it does not read back as asked.
    pub async fn set_boot_once(&self, boot: BootOnce) -> Result<BootOverride, BmcError> {
        let _alone = self.writer().await;
        let path = self.system_path().await?.to_owned();
        match boot {
            BootOnce::Pxe => {
                let wanted = [json!({"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"})];
                self.set_override(&path, &wanted, BootOverride::network).await
            }
            // Each refused or ignored by some: with a target, without one, and not at all but then by pointing to the disk.
            BootOnce::None => {
                let wanted = [
                    json!({"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}),
                    json!({"BootSourceOverrideEnabled": "Disabled"}),
                    json!({"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Hdd"}),
                ];
                self.set_override(&path, &wanted, BootOverride::local).await
            }
        }
    }

    /// Tries the ways in turn until one reads back.
    async fn set_override(
        &self,
        path: &str,
        ways: &[Value],
        done: fn(&BootOverride) -> bool,
    ) -> Result<BootOverride, BmcError> {
        let mut refusal = None;
        for way in ways {
            match self.patch(path, &json!({ "Boot": way })).await {
                Ok(()) => match self.read_back(path, done).await? {
                    Ok(set) => return Ok(set),
                    Err(unchanged) => refusal = Some(unchanged),
                },
                Err(unsupported @ BmcError::Unsupported { .. }) => refusal = refusal.or(Some(unsupported)),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.expect("there is at least one way, and every way that did not return left its reason"))
    }

    /// The override once it is as wanted, or why it is taken for ignored.
    async fn read_back(
        &self,
        path: &str,
        done: fn(&BootOverride) -> bool,
    ) -> Result<Result<BootOverride, BmcError>, BmcError> {
        let started = Instant::now();
        loop {
            let seen = view(&self.get(path).await?).boot_override;
            let waited = started.elapsed();
            if done(&seen) {
                return Ok(Ok(seen));
            }
            if waited >= self.limits().settle {
                let call = "the change of the boot override".into();
                return Ok(Err(BmcError::NothingHappened { call, waited, seen: seen.to_string() }));
            }
            tokio::time::sleep(self.limits().poll).await;
        }
    }

    /// Asks for a power act. Never sent twice by itself: after [`BmcError::Timeout`] look at the power first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC does not offer the act.
    pub async fn reset(&self, act: Reset) -> Result<(), BmcError> {
        let _alone = self.writer().await;
        let path = self.system_path().await?;
        let action = &self.get(path).await?["Actions"]["#ComputerSystem.Reset"];
        let offered = action["ResetType@Redfish.AllowableValues"].as_array();
        if offered.is_some_and(|offered| !offered.iter().any(|word| word == act.word())) {
            return Err(BmcError::Unsupported { what: format!("it does not offer {}", act.word()) });
        }
        let target = match &action["target"] {
            Value::Null => format!("{path}/Actions/ComputerSystem.Reset"),
            target => super::client::link(&json!({ "@odata.id": target }))?,
        };
        self.post(&target, &json!({ "ResetType": act.word() })).await
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
                Ok(seen) => watch.waiting_for(format!("waiting for the BMC to show power {wanted}; it shows {seen}")),
                Err(error) => watch.waiting_for(format!("waiting for the BMC to show power {wanted}; {error}")),
            }
            let pause = match &seen {
                Err(BmcError::Busy { retry_after: Some(after), .. }) => (*after).max(self.limits().poll),
                Ok(_) | Err(_) => self.limits().poll,
            };
            match watch.pause(pause).await {
                Ok(()) => {}
                Err(Stopped::Cancelled) => return Err(BmcError::Cancelled),
                Err(Stopped::DeadlinePassed) => {
                    let call = format!("the change to power {wanted}");
                    return Err(match seen {
                        Ok(seen) => {
                            BmcError::NothingHappened { call, waited: started.elapsed(), seen: seen.to_string() }
                        }
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
            Err(BmcError::NothingHappened { .. }) => self.wait_power(PowerState::On, watch).await.map(|_| false),
            Err(error) => Err(error),
        }
    }
}

fn view(system: &Value) -> BmcView {
    let text = |value: &Value| value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(shortened);
    let boot = &system["Boot"];
    BmcView {
        power: match system["PowerState"].as_str() {
            Some("On") => PowerState::On,
            Some("Off") => PowerState::Off,
            Some("PoweringOn") => PowerState::PoweringOn,
            Some("PoweringOff") => PowerState::PoweringOff,
            Some(_) | None => PowerState::Unknown,
        },
        boot_override: BootOverride {
            enabled: match boot["BootSourceOverrideEnabled"].as_str() {
                Some("Disabled") => OverrideEnabled::Disabled,
                Some("Once") => OverrideEnabled::Once,
                Some("Continuous") => OverrideEnabled::Continuous,
                Some(_) | None => OverrideEnabled::Unknown,
            },
            target: text(&boot["BootSourceOverrideTarget"]).unwrap_or_default(),
        },
        uuid: text(&system["UUID"]).map(|uuid| uuid.to_lowercase()),
        serial: text(&system["SerialNumber"]),
        manufacturer: text(&system["Manufacturer"]),
        model: text(&system["Model"]),
        bios_version: text(&system["BiosVersion"]),
        health: text(&system["Status"]["Health"]),
    }
}
