//! State and power by Redfish (DSP0268, `ComputerSystem`).

use serde_json::{Value, json};

use super::client::Redfish;
use super::links::{bare, link};
use crate::bmc::error::{BmcError, shortened};
use crate::bmc::view::{BmcView, PowerState, Reset};

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

impl Redfish {
    pub(in crate::bmc) async fn observe(&self) -> Result<BmcView, BmcError> {
        Ok(view(&self.get(self.system_path().await?).await?))
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
            Value::Null => format!("{}/Actions/ComputerSystem.Reset", bare(path)),
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

/// Returns a text of the BMC, or `None` for an empty text.
pub(super) fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(shortened)
}
