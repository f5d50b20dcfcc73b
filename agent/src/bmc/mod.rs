//! Power and boot order through BMCs, by Redfish, or by IPMI where there is no better; firmware and BIOS by Redfish.

mod error; // What can go wrong
mod evidence; // Event log, sensors, power drawn
mod firmware; // Firmware and BIOS
mod ipmi; // By ipmitool
mod open; // Handles on BMCs
mod pace; // What is remembered per BMC
mod redfish; // By HTTPS
mod system; // Power and boot order
#[cfg(test)]
pub(crate) mod tests;
mod view; // What is shown, and what can be told

pub use error::BmcError;
pub use evidence::{EventEntry, Sensor};
pub use open::{Bmcs, Target};
pub use pace::Limits;
pub use system::Bmc;
pub use view::{
    BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset, TaskState, TaskView,
};
