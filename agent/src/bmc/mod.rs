//! Reads and changes power and boot order through BMCs, by Redfish or, without Redfish, by IPMI.
//! Firmware and BIOS settings need Redfish.

mod error; // Errors of a BMC call
mod evidence; // Event log, sensors, power drawn
mod firmware; // Firmware and BIOS
mod ipmi; // By ipmitool
mod open; // Handles on BMCs
mod pace; // Rate limits and refused logins per BMC
mod read_back; // Reads a changed boot override back
mod redfish; // By HTTPS
mod system; // Power and boot order
#[cfg(test)]
pub(crate) mod tests;
mod view; // Power, boot and task states read from a BMC

pub use error::BmcError;
pub use evidence::{EventEntry, Sensor};
pub use open::{Bmcs, Target};
pub use pace::Limits;
pub use system::Bmc;
pub use view::{
    BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset, TaskState, TaskView,
};
