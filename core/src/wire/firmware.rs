//! Firmware and BIOS of one machine, as required by an order.

use serde::{Deserialize, Serialize};

use crate::firmware::Wanted;
use crate::ids::PermitId;
use crate::wire::bmc::Power;
use crate::wire::login::Login;

/// Sets firmware and BIOS to the wanted values, and reads the resulting values from the BMC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetFirmware {
    pub power: Power,
    /// Permit for changes. Without a permit, the job only reads, also on a running machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitId>,
    /// Login to a possibly running system. The agent requests a shutdown there before restarting
    /// the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    pub wanted: Wanted,
    /// Base URL of firmware images for the BMC: `http://AGENT:8090/boot/v1/blob/sha256`. A slash
    /// and the hex digits of the digest are appended.
    pub images: String,
}
