//! Firmware and BIOS of one machine, as an order wants them.

use serde::{Deserialize, Serialize};

use crate::firmware::Wanted;
use crate::ids::PermitId;
use crate::wire::bmc::Power;
use crate::wire::login::Login;

/// Brings firmware and BIOS to what is wanted, and reads back what the BMC then says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetFirmware {
    pub power: Power,
    /// To change something. Without one it is a look, at whatever runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitId>,
    /// A system that may run, and is asked to shut down before the machine is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    pub wanted: Wanted,
    /// Where the BMC gets images: `http://AGENT:8090/boot/v1/blob/sha256`, to which a slash and the digest's hex digits are added.
    pub images: String,
}
