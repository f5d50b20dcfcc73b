//! Redfish over HTTPS, with a small client of our own, so that every request sent is written in
//! this module. The client never follows redirects, never uses a proxy, trusts a single
//! certificate, and never repeats a power action.

mod accounts; // The password of the login account
mod client; // Calls over HTTPS, bounded and checked
mod evidence; // Event log, sensors, power drawn
mod inventory; // Inventory of firmware and BIOS settings
mod system; // Power and boot order
mod tls; // Trust in a single certificate
mod update; // Firmware updates, BIOS settings, tasks

pub(super) use client::Redfish;
pub(super) use system::boot_ways;
