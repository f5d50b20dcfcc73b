//! The start of the live image after the network is up: clock, host key, sshd, report. The verb
//! returns after the agent has accepted the report. From then on the machine accepts SSH, only with
//! certificates for this boot's nonce.

pub mod boot; // Parses the kernel command line
pub mod clock; // Sets the clock from the agent's
pub mod report; // Reports the host key to the agent
pub mod sshd; // sshd, the only access to the machine

use std::time::{Duration, Instant};

use muster_core::facts::Nic;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, LiveReport};

use crate::failure::retryable;
use crate::job::JobContext;
use crate::permit;
use boot::Boot;

/// Longest wait for the agent. Afterwards the image restarts the machine, and the machine boots its
/// own disk.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Longest wait for links after the cards are raised: autonegotiation takes some seconds. A card
/// without a cable delays the boot by no more than this time.
const LINKING: Duration = Duration::from_secs(5);

/// Prepares the machine for commands over SSH.
///
/// # Errors
/// `not_live` without a nonce; `already_reported` when another machine used the nonce;
/// `report_failed` after half an hour without the agent.
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
    // The inventory follows the report, and would record a late link as a missing link.
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

/// Retries until success, a final failure, or the end of [`PATIENCE`].
fn retry(cx: &JobContext, mut attempt: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    // Many machines boot at once, so each machine asks only every few seconds.
    let pauses = [1, 1, 2, 3].into_iter().chain(std::iter::repeat(3));
    let mut last = retryable(FailureCode::ReportFailed, "the agent was not asked yet");
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

/// Raises all cards: without a link, speed and switch are unknown. No address is set, so the
/// machine's network is otherwise unchanged.
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

/// Waits until all cards have a link, at most `patience` after the raising; returns the names of
/// the cards without a link.
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
