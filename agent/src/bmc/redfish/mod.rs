//! Redfish over HTTPS. A narrow client of our own: what it sends is what is written here. It never follows redirects, never goes through a proxy,
//! trusts one certificate, and never repeats a power act.

mod accounts; // The password that it logs in with
mod client; // Calls over HTTPS, bounded and judged
mod evidence; // Event log, sensors, power drawn
mod inventory; // Firmware and BIOS as it tells them
mod system; // Power and boot order
mod tls; // One trusted certificate
mod update; // Firmware updates, BIOS settings, tasks

pub(super) use client::Redfish;
pub(super) use system::boot_ways;
