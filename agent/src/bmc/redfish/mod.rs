//! Redfish over HTTPS, with a small client of our own, so that every request sent is written in
//! this module. The client follows no redirect but to the same path with another slash at the end,
//! never uses a proxy, trusts a single certificate, and never repeats a power action.

mod accounts; // The password of the login account
mod boot; // The boot override
mod client; // Calls over HTTPS, bounded and checked
mod etags; // Values of `If-Match`
mod evidence; // Event log, sensors, power drawn
mod inventory; // Inventory of firmware and BIOS settings
mod links; // Paths inside of a service
mod replies; // The meaning of an answer
mod system; // State and power
mod tls; // Trust in a single certificate
mod update; // Firmware updates, BIOS settings, tasks

pub(super) use client::Redfish;
