//! What the live image does once it has a network: clock, host key, sshd, report. Returns when the agent has accepted the report; then the machine
//! can be commanded over SSH, by certificates for this boot's nonce alone.

pub mod boot; // What the kernel command line says
pub mod clock; // Sets the clock from the agent's
pub mod report; // Tells the agent our host key
pub mod sshd; // The one way in

use std::time::{Duration, Instant};

use muster_core::facts::Nic;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, LiveReport};

use crate::failure::retryable;
use crate::job::JobContext;
use crate::permit;
use boot::Boot;

/// After this the image restarts the machine, which then boots its own disk.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// What cards may take from being raised until they have a link: autonegotiation takes some seconds. One without a cable costs a boot no more than this.
const LINKING: Duration = Duration::from_secs(5);

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
    let raised = Instant::now();
    crate::inventory::neighbours::start();

    retry(&cx, || clock::set(&cx, &boot.url))?;
    let host_key = sshd::make_host_key(&cx)?;
    let sshd = sshd::start(&cx, &trust.user_ca, &boot.nonce)?;
    // Whoever takes the inventory comes after the report, and a card whose link is only late counts as one without.
    let dark = dark_after(raised, LINKING, crate::inventory::nics::list);
    if !dark.is_empty() {
        cx.log(&format!("muster: no link: {}", dark.join(", ")));
    }
    let report = LiveReport {
        protocol: PROTOCOL,
        nonce: boot.nonce,
        mac: boot.mac,
        host_key,
    };
    if let Err(failure) = retry(&cx, || report::send(&boot.url, &report)) {
        sshd.stop(&cx);
        return Err(failure);
    }
    cx.log(&format!(
        "muster: reported after {:.1} s",
        started.elapsed().as_secs_f32()
    ));
    Ok(())
}

/// Tries until it works, it cannot work, or [`PATIENCE`] is over.
fn retry(cx: &JobContext, mut attempt: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    // Many machines boot at once: none asks more than every few seconds.
    let pauses = [1, 1, 2, 3].into_iter().chain(std::iter::repeat(3));
    let mut last = retryable(FailureCode::ReportFailed, "the agent was never asked");
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
    Err(Failure {
        retryable: false,
        ..last
    })
}

/// Without a link there is no speed to tell and no switch to hear. No addresses are given, so nothing else changes.
fn raise_links(cx: &JobContext) {
    for nic in crate::inventory::nics::list() {
        for word in [["up"].as_slice(), &["allmulticast", "on"]] {
            let argv = [
                ["ip", "link", "set", "dev", nic.name.as_str()].as_slice(),
                word,
            ]
            .concat();
            if let Err(failure) = crate::tool::output(cx, &argv) {
                cx.log(&format!("muster: {}", failure.message));
            }
        }
    }
}

/// Waits until all cards have a link, but no longer than `patience` from when they were raised; the names of those that have none.
fn dark_after(raised: Instant, patience: Duration, list: impl Fn() -> Vec<Nic>) -> Vec<String> {
    loop {
        let dark: Vec<String> = list()
            .into_iter()
            .filter(|nic| !nic.link_up)
            .map(|nic| nic.name)
            .collect();
        if dark.is_empty() || raised.elapsed() >= patience {
            return dark;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use muster_core::values::Mac;

    use super::*;

    fn nic(name: &str, link_up: bool) -> Nic {
        Nic {
            name: name.into(),
            mac: Mac([2, 0, 0, 0, 0, 0]),
            driver: None,
            pci_address: None,
            speed_mbps: None,
            link_up,
        }
    }

    #[test]
    fn a_link_that_is_late_is_waited_for_and_one_that_never_comes_is_not() {
        let looks = Cell::new(0);
        let look = |late: u32| {
            looks.set(looks.get() + 1);
            vec![nic("eth0", true), nic("eth1", looks.get() > late)]
        };
        assert_eq!(
            dark_after(Instant::now(), Duration::from_secs(60), || look(2)),
            [""; 0]
        );
        assert_eq!(looks.replace(0), 3, "it ends as soon as all have one");
        assert_eq!(
            dark_after(Instant::now(), Duration::from_millis(150), || look(
                u32::MAX
            )),
            ["eth1"]
        );
        assert!(looks.replace(0) <= 3, "it ends with its time");
        assert_eq!(
            dark_after(Instant::now(), Duration::ZERO, || look(u32::MAX)),
            ["eth1"]
        );
        assert_eq!(looks.get(), 1);
    }
}
