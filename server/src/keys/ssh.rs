//! SSH user certificates of orders: an end by the node's clock, the allowed sources, a serial, and
//! a name for the log of sshd.

use ipnet::Ipv4Net;
use jiff::Timestamp;
use muster_core::values::Secret;
use muster_core::wire::login::UserKey;
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::ssh_key::{Algorithm, LineEnding, PrivateKey};

/// Seconds from the longest end of the job to the end of the certificate: a job collects its logs
/// and tells the node to stop after its own end.
const LATER_S: i64 = 60 * 60;

/// Seconds by which a board's clock in local time is ahead of UTC at most. A system has the board's
/// clock after a boot, until NTP answers.
const BOOT_AHEAD_S: i64 = 14 * 60 * 60;

/// The most seconds by which a clock is believed to be ahead: ten years. A larger offset counts as
/// unknown.
const BELIEVED_S: i64 = 10 * 366 * 24 * 60 * 60;

/// The server's knowledge of the clock that checks a certificate. Offsets are in seconds, and
/// positive for a clock that is ahead of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeClock {
    /// A live image takes the time from its agent before sshd starts.
    Set,
    /// The latest report of the running system.
    Seen { offset_s: i64 },
    /// The system boots during the order, or has booted since the report.
    Booted { offset_s: i64 },
    /// No report of the installed system, or a login was refused since.
    Unknown,
}

/// The end of a certificate. Each certificate begins in 1970: the key is new, so a begin protects
/// from no attack, and a board with an empty battery starts in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Seconds since the Unix epoch. `None`: the certificate has no end.
    pub before_s: Option<i64>,
}

impl Validity {
    /// Returns the end of a certificate for a job of `lasts_s` seconds. Of the ends by the node's
    /// clock and by the server's, the later one counts.
    pub fn of(clock: NodeClock, now: Timestamp, lasts_s: u64) -> Self {
        let lasts = i64::try_from(lasts_s).unwrap_or(i64::MAX);
        let end = |ahead: i64| {
            now.as_second()
                .saturating_add(ahead.max(0))
                .saturating_add(lasts)
                .saturating_add(LATER_S)
        };
        let before_s = match clock {
            NodeClock::Set => Some(end(0)),
            NodeClock::Seen { offset_s } if offset_s <= BELIEVED_S => Some(end(offset_s)),
            NodeClock::Booted { offset_s } if offset_s <= BELIEVED_S => {
                Some(end(offset_s).saturating_add(BOOT_AHEAD_S))
            }
            NodeClock::Seen { .. } | NodeClock::Booted { .. } | NodeClock::Unknown => None,
        };
        Self { before_s }
    }
}

/// The content of a certificate.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    pub principal: &'a str,
    /// The name in the log of the node's sshd.
    pub key_id: &'a str,
    pub validity: Validity,
    /// Networks from which sshd accepts the certificate. Empty: every network.
    pub sources: &'a [Ipv4Net],
}

/// A certified key, and the serial of its certificate.
#[derive(Clone, Debug)]
pub struct SignedKey {
    pub key: UserKey,
    /// Random, from 1.
    pub serial: i64,
}

/// Makes an ephemeral key, and a certificate for one principal.
///
/// # Errors
/// When the certificate cannot be built or encoded.
pub fn sign(ca: &PrivateKey, grant: &Grant<'_>) -> anyhow::Result<SignedKey> {
    let rng = &mut rand::rng();
    let key = PrivateKey::random(rng, Algorithm::Ed25519)?;
    let serial = (rand::random::<u64>() >> 1).max(1);
    let mut builder = Builder::new_with_random_nonce(
        rng,
        key.public_key().key_data().clone(),
        0,
        u64::try_from(grant.validity.before_s.unwrap_or(i64::MAX))?,
    )?;
    builder.serial(serial)?;
    builder.cert_type(CertType::User)?;
    builder.key_id(grant.key_id)?;
    builder.valid_principal(grant.principal)?;
    if !grant.sources.is_empty() {
        // sshd refuses a network with bits of a host.
        let sources: Vec<String> = grant
            .sources
            .iter()
            .map(|network| network.trunc().to_string())
            .collect();
        builder.critical_option("source-address", sources.join(","))?;
    }
    let certificate = builder.sign(ca)?;
    Ok(SignedKey {
        key: UserKey {
            private_key: Secret::new(key.to_openssh(LineEnding::LF)?.as_str()),
            certificate: certificate.to_openssh()?,
        },
        serial: i64::try_from(serial)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: u64 = 60 * 60;

    fn now() -> Timestamp {
        "2026-01-05T08:00:00Z".parse().unwrap()
    }

    fn validity(clock: NodeClock) -> Validity {
        Validity::of(clock, now(), 2 * HOUR_S)
    }

    fn ends(clock: NodeClock) -> Option<i64> {
        validity(clock).before_s
    }

    #[test]
    fn a_certificate_ends_after_its_job_where_the_clock_is_right_or_behind() {
        let end = now().as_second() + 3 * 3600;
        assert_eq!(ends(NodeClock::Set), Some(end));
        assert_eq!(ends(NodeClock::Seen { offset_s: 0 }), Some(end));
        for behind in [-200, -24 * 3600, -now().as_second(), i64::MIN] {
            assert_eq!(ends(NodeClock::Seen { offset_s: behind }), Some(end));
        }
    }

    #[test]
    fn a_node_with_a_clock_ahead_gets_a_later_end_and_an_unknown_clock_none() {
        let end = now().as_second() + 3 * 3600;
        for ahead in [200, 24 * 3600] {
            let clock = NodeClock::Seen { offset_s: ahead };
            assert_eq!(ends(clock), Some(end + ahead));
        }
        let booted = |offset_s| ends(NodeClock::Booted { offset_s });
        assert_eq!(booted(0), Some(end + 14 * 3600));
        assert_eq!(booted(-7), Some(end + 14 * 3600));
        assert_eq!(booted(7), Some(end + 14 * 3600 + 7));
        assert_eq!(ends(NodeClock::Unknown), None);
        for offset_s in [BELIEVED_S + 1, i64::MAX] {
            assert_eq!(ends(NodeClock::Seen { offset_s }), None);
            assert_eq!(booted(offset_s), None);
        }
        let longest = Validity::of(NodeClock::Set, now(), u64::MAX);
        assert_eq!(longest.before_s, Some(i64::MAX));
    }

    #[test]
    fn a_certificate_names_its_sources_and_has_a_serial_of_its_own() {
        let pair = russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&[7; 32]);
        let ca = PrivateKey::from(pair);
        let sources: Vec<Ipv4Net> = ["10.7.0.9/24", "10.8.0.4/32"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let grant = |sources| Grant {
            principal: "muster:n1:1",
            key_id: "node n1 job j attempt 2",
            validity: validity(NodeClock::Set),
            sources,
        };
        let read = |signed: &SignedKey| {
            russh::keys::ssh_key::Certificate::from_openssh(&signed.key.certificate).unwrap()
        };
        let (bound, free) = (
            sign(&ca, &grant(&sources)).unwrap(),
            sign(&ca, &grant(&[])).unwrap(),
        );
        let certificate = read(&bound);
        assert_eq!(
            certificate.critical_options().get("source-address"),
            Some(&"10.7.0.0/24,10.8.0.4/32".to_owned())
        );
        assert_eq!(i64::try_from(certificate.serial()).unwrap(), bound.serial);
        assert_eq!(certificate.key_id(), "node n1 job j attempt 2");
        assert_eq!(certificate.valid_principals(), ["muster:n1:1"]);
        assert!(read(&free).critical_options().is_empty());
        assert_ne!(bound.serial, free.serial);
        assert!(bound.serial > 0 && free.serial > 0);
    }
}
