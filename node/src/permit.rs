//! The challenge before a disk is touched, and the check of its answer. Without the server's signature over where and what, nothing is written.

use std::time::Duration;

use muster_core::ids::{OperationId, PermitId};
use muster_core::permits::{self, PermitKind};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Answer, Challenge, Failure, Line, Plan, SiteTrust};

use crate::failure::{fatal, retryable};
use crate::files;
use crate::inventory;
use crate::job::JobContext;
use crate::paths;

/// How often the answer is looked for.
const POLL: Duration = Duration::from_millis(100);
/// A progress line while waiting, so that nobody takes silence for death.
const REMIND_EVERY: u32 = 100;

/// The permit a plan names.
#[derive(Clone, Debug)]
pub struct Demand {
    pub kind: PermitKind,
    pub permit: PermitId,
    pub operation: OperationId,
    /// Serials of the disks about to be written.
    pub disk_serials: Vec<String>,
}

/// Prints a challenge and waits until its answer lets the work go on. A newer attempt that attaches gets a challenge of its own; answers to earlier
/// ones of this process still count, for they proved the same.
///
/// # Errors
/// `permit_refused` with the server's reason or for a wrong signature; `deadline`; `cancelled`; `no_trust` where the site's key is absent.
pub fn redeem(plan: &Plan, demand: &Demand, cx: &JobContext) -> Result<(), Failure> {
    let spool = cx.spool().ok_or_else(|| fatal("no_spool", "disks are only written by jobs"))?;
    let trust = site_trust()?;
    let mut asked: Vec<Challenge> = Vec::new();
    for turn in 0_u32.. {
        cx.check()?;
        let attempt = spool.attempt().unwrap_or(plan.attempt);
        if asked.last().is_none_or(|last| last.attempt != attempt) {
            let challenge = challenge(plan, attempt, demand)?;
            cx.emit(&Line::Challenge(challenge.clone()));
            asked.push(challenge);
        }
        match files::read_json(&spool.answer(), 64 << 10)? {
            Some(Answer::Granted { signature }) => {
                let _ = std::fs::remove_file(spool.answer());
                return accept(&trust, demand.kind, &asked, &signature);
            }
            Some(Answer::Refused { reason }) => {
                let _ = std::fs::remove_file(spool.answer());
                return Err(fatal("permit_refused", format!("the server refused the permit: {}", text(&reason))));
            }
            None => {}
        }
        if turn % REMIND_EVERY == REMIND_EVERY - 1 {
            cx.progress("waiting for the permit", None, None, None);
        }
        std::thread::sleep(POLL.min(cx.remaining()));
    }
    Err(retryable("deadline", "no answer came"))
}

fn accept(trust: &SiteTrust, kind: PermitKind, asked: &[Challenge], signature: &str) -> Result<(), Failure> {
    let mut refusal = None;
    for challenge in asked {
        match permits::verify(&trust.permit_public_key, kind, challenge, signature) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = Some(error),
        }
    }
    let why = refusal.map(|error| error.to_string()).unwrap_or_default();
    Err(fatal("permit_refused", format!("the answer does not fit the challenge: {why}")))
}

fn challenge(plan: &Plan, attempt: i32, demand: &Demand) -> Result<Challenge, Failure> {
    let mut disk_serials = demand.disk_serials.clone();
    disk_serials.sort();
    Ok(Challenge {
        protocol: PROTOCOL,
        permit: demand.permit,
        operation: demand.operation,
        job: plan.job,
        attempt,
        node: plan.node,
        epoch: plan.epoch,
        boot_id: inventory::boot_id(),
        chassis_serial: inventory::smbios::read().identity.chassis_serial,
        disk_serials,
        nonce: hex::encode(files::random::<32>()?),
    })
}

/// `/etc/muster/site.json`: there only in the live image.
///
/// # Errors
/// `no_trust` when it is absent or not ours.
pub fn site_trust() -> Result<SiteTrust, Failure> {
    let trust: Option<SiteTrust> = files::read_json(&paths::at("/etc/muster/site.json"), 64 << 10)?;
    let trust = trust.ok_or_else(|| fatal("no_trust", "there is no /etc/muster/site.json: not our live image"))?;
    match trust.protocol == PROTOCOL {
        true => Ok(trust),
        false => Err(fatal("protocol", format!("site.json speaks protocol {}", trust.protocol))),
    }
}

fn text(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(512).collect()
}
