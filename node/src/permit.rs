//! The challenge before a disk is written, and the check of the answer. Every write needs the
//! server's signature over the place and the kind of act.

use std::time::{Duration, Instant};

use muster_core::ids::{OperationId, PermitId};
use muster_core::permits::{self, PermitError, PermitKind};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Answer, Challenge, Failure, FailureCode, Line, Plan, SiteTrust};

use crate::failure::{fatal, retryable};
use crate::files;
use crate::inventory;
use crate::job::JobContext;
use crate::paths;

/// Interval between two checks for the answer file.
const POLL: Duration = Duration::from_millis(100);
/// Polls between two progress lines, so that a waiting job is visibly alive.
const REMIND_EVERY: u32 = 100;

/// Lifetime of an answer, counted from its challenge. A later answer (the network was away) causes
/// a new challenge, and the server decides again by the state at that time.
const FRESH: Duration = Duration::from_secs(120);

/// The permit named by a plan.
#[derive(Clone, Debug)]
pub struct Demand {
    pub kind: PermitKind,
    pub permit: PermitId,
    pub operation: OperationId,
    /// Serials of the disks about to be written.
    pub disk_serials: Vec<String>,
}

/// Prints a challenge and waits for an answer granting the work. A new challenge is printed for
/// each newer attempt, and after two minutes without an answer. An answer to an earlier challenge
/// also counts within two minutes, because both challenges prove the same facts.
///
/// # Errors
/// `permit_refused` with the server's reason or for a wrong signature; `deadline`; `cancelled`;
/// `no_trust` when the site's key is absent.
pub fn redeem(plan: &Plan, demand: &Demand, cx: &JobContext) -> Result<(), Failure> {
    let spool = cx.spool().ok_or_else(|| {
        fatal(
            FailureCode::NoSpool,
            "a disk is only written by a job of `muster-node run`",
        )
    })?;
    let trust = site_trust()?;
    let mut asked = Asked::default();
    for turn in 0_u32.. {
        cx.check()?;
        let attempt = spool.attempt().unwrap_or(plan.attempt);
        if asked.is_due(attempt, Instant::now()) {
            let challenge = challenge(plan, attempt, demand)?;
            cx.emit(&Line::Challenge(challenge.clone()));
            asked.note(challenge, Instant::now());
        }
        match files::read_json(&spool.answer(), 64 << 10)? {
            Some(Answer::Granted { signature }) => {
                let _ = std::fs::remove_file(spool.answer());
                match asked.accept(&trust, demand.kind, &signature, Instant::now())? {
                    Accepted::Now => return Ok(()),
                    Accepted::TooLate => cx.log(
                        "the answer came too late; the server is asked again with a new challenge",
                    ),
                }
            }
            Some(Answer::Refused { reason }) => {
                let _ = std::fs::remove_file(spool.answer());
                return Err(fatal(
                    FailureCode::PermitRefused,
                    format!("the server refused the permit: {}", text(&reason)),
                ));
            }
            None => {}
        }
        if turn % REMIND_EVERY == REMIND_EVERY - 1 {
            cx.progress("waiting for the permit", None, None, None);
        }
        std::thread::sleep(POLL.min(cx.remaining()));
    }
    Err(retryable(
        FailureCode::Deadline,
        "no answer to the permit's challenge came",
    ))
}

/// The printed challenges, oldest first; the job's deadline bounds their number. Old challenges are
/// kept to distinguish a late answer from a wrong answer.
#[derive(Debug, Default)]
struct Asked(Vec<(Instant, Challenge)>);

/// The result for an answer with a valid signature.
#[derive(Debug, PartialEq, Eq)]
enum Accepted {
    Now,
    /// The answer's challenge is older than [`FRESH`].
    TooLate,
}

impl Asked {
    /// Whether a new challenge is due.
    fn is_due(&self, attempt: i32, now: Instant) -> bool {
        self.0
            .last()
            .is_none_or(|(at, last)| last.attempt != attempt || now.duration_since(*at) >= FRESH)
    }

    fn note(&mut self, challenge: Challenge, now: Instant) {
        self.0.push((now, challenge));
    }

    fn accept(
        &self,
        trust: &SiteTrust,
        kind: PermitKind,
        signature: &str,
        now: Instant,
    ) -> Result<Accepted, Failure> {
        let mut refusal = None;
        for (at, challenge) in &self.0 {
            match verify_any(trust, kind, challenge, signature) {
                Ok(()) if now.duration_since(*at) < FRESH => return Ok(Accepted::Now),
                Ok(()) => return Ok(Accepted::TooLate),
                Err(error) => refusal = Some(error),
            }
        }
        let why = refusal.map(|error| error.to_string()).unwrap_or_default();
        Err(fatal(
            FailureCode::PermitRefused,
            format!("the signature of the answer does not match the challenge: {why}"),
        ))
    }
}

/// Verifies a signature by the trusted keys: during a rotation, the former key and the new key.
fn verify_any(
    trust: &SiteTrust,
    kind: PermitKind,
    challenge: &Challenge,
    signature: &str,
) -> Result<(), PermitError> {
    let mut refusal = PermitError::NotSigned;
    for key in permits::list_keys(trust) {
        match permits::verify(key, kind, challenge, signature) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
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

/// Reads `/etc/muster/site.json`, a file of the live image only.
///
/// # Errors
/// `no_trust` when the file is absent, `malformed` or `protocol` when the file is of another
/// version.
pub fn site_trust() -> Result<SiteTrust, Failure> {
    let trust: Option<SiteTrust> = files::read_json(&paths::at("/etc/muster/site.json"), 64 << 10)?;
    let trust = trust.ok_or_else(|| {
        fatal(
            FailureCode::NoTrust,
            "/etc/muster/site.json is missing: this system is not Muster's live image",
        )
    })?;
    match trust.protocol == PROTOCOL {
        true => Ok(trust),
        false => Err(fatal(
            FailureCode::Protocol,
            format!(
                "/etc/muster/site.json has protocol {}, this muster-node {PROTOCOL}",
                trust.protocol
            ),
        )),
    }
}

fn text(reason: &str) -> String {
    reason
        .chars()
        .filter(|c| !c.is_control())
        .take(512)
        .collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use ed25519_dalek::SigningKey;
    use muster_core::ids::{JobId, NodeId};

    use super::*;

    fn challenge(attempt: i32) -> Challenge {
        Challenge {
            protocol: PROTOCOL,
            permit: PermitId::new(),
            operation: OperationId::new(),
            job: JobId::new(),
            attempt,
            node: NodeId::new(),
            epoch: 1,
            boot_id: "b".into(),
            chassis_serial: None,
            disk_serials: vec!["S1".into()],
            nonce: "00".into(),
        }
    }

    #[test]
    fn during_a_rotation_the_former_and_the_new_key_sign_and_another_does_not() {
        let [former, new, other] = [7, 8, 9].map(|byte| SigningKey::from_bytes(&[byte; 32]));
        let public = |key: &SigningKey| STANDARD.encode(key.verifying_key().as_bytes());
        let further = permits::write_further(&public(&new));
        let trust = |user_ca: String| SiteTrust {
            protocol: PROTOCOL,
            permit_public_key: public(&former),
            user_ca,
            agent_url: String::new(),
        };
        let rotating = trust(format!("ssh-ed25519 AAAA\nssh-ed25519 BBBB\n{further}"));
        let before = trust("ssh-ed25519 AAAA".to_owned());
        let (begin, mut asked) = (Instant::now(), Asked::default());
        let challenge = challenge(1);
        asked.note(challenge.clone(), begin);
        for (key, trust, accepted) in [
            (&former, &before, true),
            (&new, &before, false),
            (&former, &rotating, true),
            (&new, &rotating, true),
            (&other, &rotating, false),
        ] {
            let signed = permits::sign(key, PermitKind::Image, &challenge);
            let answer = asked.accept(trust, PermitKind::Image, &signed, begin);
            assert_eq!(answer.is_ok(), accepted, "{answer:?}");
        }
    }

    #[test]
    fn an_answer_is_good_for_two_minutes_and_then_the_server_is_asked_again() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let trust = SiteTrust {
            protocol: PROTOCOL,
            permit_public_key: STANDARD.encode(key.verifying_key().as_bytes()),
            user_ca: String::new(),
            agent_url: String::new(),
        };
        let (begin, mut asked) = (Instant::now(), Asked::default());
        assert!(asked.is_due(1, begin));
        let first = challenge(1);
        asked.note(first.clone(), begin);
        assert!(!asked.is_due(1, begin + FRESH - POLL));
        assert!(asked.is_due(2, begin) && asked.is_due(1, begin + FRESH));

        let signed = permits::sign(&key, PermitKind::Wipe, &first);
        let accept = |asked: &Asked, signature: &str, after| {
            asked.accept(&trust, PermitKind::Wipe, signature, begin + after)
        };
        assert_eq!(
            accept(&asked, &signed, FRESH - POLL).unwrap(),
            Accepted::Now
        );
        assert_eq!(accept(&asked, &signed, FRESH).unwrap(), Accepted::TooLate);
        let second = challenge(1);
        asked.note(second.clone(), begin + FRESH);
        assert_eq!(accept(&asked, &signed, FRESH).unwrap(), Accepted::TooLate);
        let anew = permits::sign(&key, PermitKind::Wipe, &second);
        assert_eq!(accept(&asked, &anew, FRESH + POLL).unwrap(), Accepted::Now);
        let other = permits::sign(&key, PermitKind::Wipe, &challenge(1));
        assert_eq!(
            accept(&asked, &other, FRESH).unwrap_err().code,
            FailureCode::PermitRefused
        );
    }
}
