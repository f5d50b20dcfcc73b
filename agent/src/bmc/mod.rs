//! Power and boot order through BMCs: by Redfish, or by IPMI where there is no better.

mod error; // What can go wrong
mod evidence; // Event log, sensors, power drawn
mod ipmi; // By ipmitool
mod pace; // What is remembered per BMC
mod redfish; // By HTTPS
mod system; // Power and boot order
#[cfg(test)]
pub(crate) mod tests;

pub use error::BmcError;
pub use evidence::{EventEntry, Sensor};
pub use pace::{Bmcs, Limits, Target};
pub use system::{Bmc, BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset};
