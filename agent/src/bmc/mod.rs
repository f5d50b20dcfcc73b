//! Power and boot order through Redfish. A narrow client of our own: what it sends is what is written here.
//!
//! It never follows redirects, never goes through a proxy, trusts one certificate, and never repeats a power act.

mod client; // Calls over HTTPS, bounded and judged
mod error; // What can go wrong
mod evidence; // Event log, sensors, power drawn
mod pace; // What is remembered per BMC
mod system; // Power and boot order
#[cfg(test)]
pub(crate) mod tests;
mod tls; // One trusted certificate

pub use client::Bmc;
pub use error::BmcError;
pub use evidence::{EventEntry, Sensor};
pub use pace::{Bmcs, Limits};
pub use system::{BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset};
