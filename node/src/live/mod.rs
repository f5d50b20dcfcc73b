//! What the live image does once it has a network: clock, host key, sshd, report. Returns when the agent has accepted the report; then the machine
//! can be commanded over SSH, by certificates for this boot's nonce alone.

pub mod boot; // What the kernel command line says
pub mod clock; // Sets the clock from the agent's
pub mod report; // Tells the agent our host key
pub mod sshd; // The one way in

use std::time::{Duration, Instant};

use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, LiveReport};

use crate::failure::retryable;
use crate::job::JobContext;
use crate::permit;
use boot::Boot;

/// After this the image restarts the machine, which then boots its own disk.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Makes this machine ready to be commanded.
///
/// # Errors
/// `not_live` where there is no nonce; `already_reported` when another machine used it; `report_failed` after half an hour without the agent.
pub fn run() -> Result<(), Failure> {
    let started = Instant::now();
    let cx = JobContext::foreground(PATIENCE);
    let boot = Boot::read()?;
    let trust = permit::site_trust()?;
    raise_links(&cx);
    crate::inventory::neighbours::start();

    retry(&cx, || clock::set(&cx, &boot.url))?;
    let host_key = sshd::make_host_key(&cx)?;
    let sshd = sshd::start(&cx, &trust.user_ca, &boot.nonce)?;
    let report = LiveReport { protocol: PROTOCOL, nonce: boot.nonce, mac: boot.mac, host_key };
    if let Err(failure) = retry(&cx, || report::send(&boot.url, &report)) {
        sshd.stop(&cx);
        return Err(failure);
    }
    cx.log(&format!("muster: reported after {:.1} s", started.elapsed().as_secs_f32()));
    Ok(())
}

/// Tries until it works, it cannot work, or [`PATIENCE`] is over.
fn retry(cx: &JobContext, mut attempt: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    // Many machines boot at once: none asks more than every few seconds.
    let pauses = [1, 1, 2, 3].into_iter().chain(std::iter::repeat(3));
    let mut last = retryable("report_failed", "the agent was never asked");
    for pause in pauses {
        match attempt() {
            Err(failure) if failure.retryable => last = failure,
            done => return done,
        }
        if cx.remaining().is_zero() {
            break;
        }
        cx.log(&format!("muster: {}; trying again", last.message));
        std::thread::sleep(Duration::from_secs(pause));
    }
    Err(Failure { retryable: false, ..last })
}

/// Without a link there is no speed to tell and no switch to hear. No addresses are given, so nothing else changes.
fn raise_links(cx: &JobContext) {
    for nic in crate::inventory::nics::list() {
        for word in [["up"].as_slice(), &["allmulticast", "on"]] {
            let argv = [["ip", "link", "set", "dev", nic.name.as_str()].as_slice(), word].concat();
            if let Err(failure) = crate::tool::output(cx, &argv) {
                cx.log(&format!("muster: {}", failure.message));
            }
        }
    }
}
