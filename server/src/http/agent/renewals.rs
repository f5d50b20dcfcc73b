//! The right to renew an agent's certificate. Each renewal moves the right to the key of the new
//! certificate. A request with another key shows that the agent's identity exists twice.

use jiff::{SignedDuration, Timestamp};
use muster_core::values::Digest;

use crate::db::enrolments::EnrolRow;
use crate::keys::authority::EARLIER;

/// Time after a renewal in which the former key may renew once more: the answer may be lost.
const LOST_ANSWER: SignedDuration = SignedDuration::from_hours(1);

/// The key behind a request for a certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownKey {
    pub key: Digest,
    /// The start of the certificate with the key. `None`: the request came with a token.
    pub certified_from: Option<Timestamp>,
}

/// Returns whether a key may request a certificate for the key `requested`.
pub(super) fn may_renew(
    agent: &EnrolRow,
    shown: ShownKey,
    requested: Digest,
    now: Timestamp,
) -> bool {
    let (Some(newest), Some(newest_at)) = (&agent.newest_key, agent.newest_key_at) else {
        // The certificate was issued by a server of the previous version.
        return true;
    };
    let newest_at = newest_at.to_jiff();
    let is_newest = newest[..] == shown.key.0;
    // A repeated request: the request is signed by the newest key, and its answer was lost.
    let is_repeated = newest[..] == requested.0;
    // An agent of the previous version makes another key for each request.
    let is_former =
        shown.certified_from.is_some() && agent.former_key.as_deref() == Some(&shown.key.0[..]);
    let is_recent = now.duration_since(newest_at) <= LOST_ANSWER + EARLIER;
    // A restored database lacks the renewal. A server of the previous version records no key.
    let is_later = shown.certified_from.is_some_and(|from| from > newest_at);
    is_newest || is_repeated || is_later || (is_former && is_recent)
}

#[cfg(test)]
mod tests {
    use jiff_sqlx::ToSqlx as _;
    use muster_core::ids::{AgentId, ObjectId};

    use super::*;

    fn key(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    /// An agent whose certificate was renewed from the key `former` to the key `newest`.
    fn renewed(at: Timestamp) -> EnrolRow {
        EnrolRow {
            id: AgentId::new(),
            name: "a".into(),
            site: ObjectId::new(),
            site_name: "lab".into(),
            token_until: None,
            token_key: None,
            newest_key: Some(key("newest").0.to_vec()),
            former_key: Some(key("former").0.to_vec()),
            newest_key_at: Some((at - EARLIER).to_sqlx()),
            refused: None,
        }
    }

    #[test]
    fn the_newest_key_renews_and_a_former_key_only_for_an_hour() {
        let at: Timestamp = "2026-01-05T08:00:00Z".parse().unwrap();
        let agent = renewed(at);
        let from = |name: &str, minutes: i64| {
            let shown = ShownKey {
                key: key(name),
                certified_from: Some(at - SignedDuration::from_hours(84)),
            };
            may_renew(
                &agent,
                shown,
                key("next"),
                at + SignedDuration::from_mins(minutes),
            )
        };
        assert!(from("newest", 0) && from("newest", 9999));
        assert!(from("former", 0) && from("former", 60) && !from("former", 61));
        assert!(!from("stolen", 0));
    }

    #[test]
    fn a_repeated_request_and_a_lost_certificate_lock_no_agent_out() {
        let at: Timestamp = "2026-01-05T08:00:00Z".parse().unwrap();
        let later = at + SignedDuration::from_hours(80);
        let shown = |name: &str, from| ShownKey {
            key: key(name),
            certified_from: from,
        };
        let agent = renewed(at);
        assert!(may_renew(
            &agent,
            shown("former", None),
            key("newest"),
            later
        ));
        assert!(!may_renew(
            &agent,
            shown("former", None),
            key("next"),
            later
        ));
        assert!(may_renew(
            &agent,
            shown("lost", Some(later)),
            key("next"),
            later
        ));
        assert!(!may_renew(
            &agent,
            shown("lost", Some(at - EARLIER)),
            key("next"),
            later
        ));
        let unknown = EnrolRow {
            newest_key: None,
            former_key: None,
            newest_key_at: None,
            ..agent
        };
        assert!(may_renew(&unknown, shown("any", None), key("next"), later));
    }
}
