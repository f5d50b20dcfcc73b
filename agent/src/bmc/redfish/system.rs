//! Power and boot order by Redfish (DSP0268, `ComputerSystem`). Every change is read back, because
//! a 2xx answer of a BMC proves no change.

use muster_core::facts::Firmware;
use serde_json::{Value, json};

use super::client::{Redfish, link};
use crate::bmc::error::{BmcError, shortened};
use crate::bmc::view::{BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset};

/// Returns the `ResetType` of the action. The BMC answers at once, and the power changes seconds
/// later.
fn word(act: Reset) -> &'static str {
    match act {
        Reset::On => "On",
        Reset::ForceOff => "ForceOff",
        Reset::ForceRestart => "ForceRestart",
        Reset::GracefulShutdown => "GracefulShutdown",
    }
}

/// Returns the request bodies for a boot target, best first. Some BMCs refuse or ignore a cleared
/// override. The bodies disable it with a target, then without a target, and finally set the disk
/// as target.
pub(in crate::bmc) fn boot_ways(boot: BootOnce) -> Vec<Value> {
    match boot {
        BootOnce::Pxe => {
            vec![json!({"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"})]
        }
        BootOnce::None => vec![
            json!({"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}),
            json!({"BootSourceOverrideEnabled": "Disabled"}),
            json!({"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Hdd"}),
        ],
    }
}

impl Redfish {
    pub(in crate::bmc) async fn observe(&self) -> Result<BmcView, BmcError> {
        Ok(view(&self.get(self.system_path().await?).await?))
    }

    pub(in crate::bmc) async fn boot_override(&self) -> Result<BootOverride, BmcError> {
        Ok(boot_override(
            &self.get(self.system_path().await?).await?["Boot"],
        ))
    }

    /// Writes the body at index `way` of [`boot_ways`].
    pub(in crate::bmc) async fn set_boot(
        &self,
        boot: BootOnce,
        way: usize,
    ) -> Result<(), BmcError> {
        let path = self.system_path().await?;
        self.patch(path, &json!({ "Boot": boot_ways(boot)[way] }))
            .await
    }

    /// Sends a power action offered by the BMC.
    pub(in crate::bmc) async fn reset(&self, act: Reset) -> Result<(), BmcError> {
        let _alone = self.writer().await;
        let path = self.system_path().await?;
        let action = &self.get(path).await?["Actions"]["#ComputerSystem.Reset"];
        let offered = action["ResetType@Redfish.AllowableValues"].as_array();
        if offered.is_some_and(|offered| !offered.iter().any(|offer| offer == word(act))) {
            return Err(BmcError::Unsupported {
                what: format!("it does not offer {}", word(act)),
            });
        }
        let target = match &action["target"] {
            Value::Null => format!("{path}/Actions/ComputerSystem.Reset"),
            target => link(&json!({ "@odata.id": target }))?,
        };
        self.post(&target, &json!({ "ResetType": word(act) })).await
    }
}

fn view(system: &Value) -> BmcView {
    BmcView {
        power: match system["PowerState"].as_str() {
            Some("On") => PowerState::On,
            Some("Off") => PowerState::Off,
            Some("PoweringOn") => PowerState::PoweringOn,
            Some("PoweringOff") => PowerState::PoweringOff,
            Some(_) | None => PowerState::Unknown,
        },
        uuid: text(&system["UUID"]).map(|uuid| uuid.to_lowercase()),
        serial: text(&system["SerialNumber"]),
        sku: text(&system["SKU"]),
        manufacturer: text(&system["Manufacturer"]),
        model: text(&system["Model"]),
        bios_version: text(&system["BiosVersion"]),
        health: text(&system["Status"]["Health"]),
    }
}

fn boot_override(boot: &Value) -> BootOverride {
    BootOverride {
        enabled: match boot["BootSourceOverrideEnabled"].as_str() {
            Some("Disabled") => OverrideEnabled::Disabled,
            Some("Once") => OverrideEnabled::Once,
            Some("Continuous") => OverrideEnabled::Continuous,
            Some(_) | None => OverrideEnabled::Unknown,
        },
        target: text(&boot["BootSourceOverrideTarget"]).unwrap_or_default(),
        mode: match boot["BootSourceOverrideMode"].as_str() {
            Some("UEFI") => Some(Firmware::Uefi),
            Some("Legacy") => Some(Firmware::Bios),
            Some(_) | None => None,
        },
    }
}

fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(shortened)
}
