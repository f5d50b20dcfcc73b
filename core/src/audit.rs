//! Verifiable history: the canonical bytes of an event, its digest, and the seal over a run of
//! events and the previous seal. A verifier needs only this file and SHA-256; docs/audit.md
//! describes the format in prose.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The previous-seal value of the first seal.
pub const BEGINNING: [u8; 32] = [0; 32];

/// An event with every stored member.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'event> {
    pub seq: i64,
    pub id: Uuid,
    pub at: Timestamp,
    pub actor: &'event str,
    pub kind: &'event str,
    pub node: Option<Uuid>,
    pub object: Option<Uuid>,
    pub operation: Option<Uuid>,
    pub request_id: Option<&'event str>,
    pub summary: &'event str,
    /// JSON text as printed by Postgres for `jsonb`. Postgres keeps every digit of a number; a
    /// parse in Rust might not.
    pub detail: &'event str,
}

impl Entry<'_> {
    /// Returns the canonical bytes: a first line naming the format, then every member in this order
    /// as `length:bytes,`, or `-,` for an absent member. Times are microseconds since 1970 in
    /// decimal.
    pub fn canonical(&self) -> Vec<u8> {
        let id = |id: Uuid| id.hyphenated().to_string();
        let members = [
            Some(self.seq.to_string()),
            Some(id(self.id)),
            Some(self.at.as_microsecond().to_string()),
            Some(self.actor.to_owned()),
            Some(self.kind.to_owned()),
            self.node.map(id),
            self.object.map(id),
            self.operation.map(id),
            self.request_id.map(ToOwned::to_owned),
            Some(self.summary.to_owned()),
            Some(self.detail.to_owned()),
        ];
        let mut bytes = b"muster event 1\n".to_vec();
        for member in members {
            match member {
                Some(text) => bytes.extend_from_slice(format!("{}:{text},", text.len()).as_bytes()),
                None => bytes.extend_from_slice(b"-,"),
            }
        }
        bytes
    }

    /// Returns the SHA-256 of the canonical bytes.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.canonical()).into()
    }
}

/// The content covered by a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Sequence number, starting at 1 without gaps.
    pub number: i64,
    pub previous: [u8; 32],
    pub sealed_at: Timestamp,
    /// The sequence number and digest of each event, in order.
    pub events: Vec<(i64, [u8; 32])>,
}

impl Seal {
    /// Returns the SHA-256 of `muster seal 1\n`, the number, the previous seal, the time in
    /// microseconds, and each event's number and digest. Every number is written as eight bytes,
    /// big-endian.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"muster seal 1\n");
        hash.update(self.number.to_be_bytes());
        hash.update(self.previous);
        hash.update(self.sealed_at.as_microsecond().to_be_bytes());
        for (seq, digest) in &self.events {
            hash.update(seq.to_be_bytes());
            hash.update(digest);
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry<'static> {
        Entry {
            seq: 7,
            id: Uuid::from_u128(1),
            at: Timestamp::from_second(1).unwrap(),
            actor: "user:ada",
            kind: "node.wish",
            node: None,
            object: None,
            operation: None,
            request_id: None,
            summary: "é",
            detail: "{}",
        }
    }

    #[test]
    fn the_canonical_form_is_what_the_document_says() {
        let expected = "muster event 1\n1:7,36:00000000-0000-0000-0000-000000000001,7:1000000,8:user:ada,9:node.wish,-,-,-,-,2:é,2:{},";
        assert_eq!(String::from_utf8(entry().canonical()).unwrap(), expected);
    }

    #[test]
    fn no_two_events_have_the_same_bytes() {
        let one = entry();
        let moved = Entry {
            actor: "user:ada,9:node.wish",
            ..one
        };
        let absent = Entry {
            request_id: Some("-"),
            ..one
        };
        let empty = Entry {
            request_id: Some(""),
            ..one
        };
        let node = Entry {
            node: Some(Uuid::from_u128(2)),
            ..one
        };
        let object = Entry {
            object: Some(Uuid::from_u128(2)),
            ..one
        };
        let digests = [one, moved, absent, empty, node, object].map(|entry| entry.digest());
        assert_eq!(
            digests
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            digests.len()
        );
    }

    #[test]
    fn a_seal_covers_each_of_its_members() {
        let seal = Seal {
            number: 1,
            previous: BEGINNING,
            sealed_at: Timestamp::UNIX_EPOCH,
            events: vec![(1, [1; 32])],
        };
        let others = [
            Seal {
                number: 2,
                ..seal.clone()
            },
            Seal {
                previous: [1; 32],
                ..seal.clone()
            },
            Seal {
                sealed_at: Timestamp::from_second(1).unwrap(),
                ..seal.clone()
            },
            Seal {
                events: vec![(2, [1; 32])],
                ..seal.clone()
            },
            Seal {
                events: vec![(1, [2; 32])],
                ..seal.clone()
            },
            Seal {
                events: vec![(1, [1; 32]), (2, [1; 32])],
                ..seal.clone()
            },
        ];
        assert!(others.iter().all(|other| other.hash() != seal.hash()));
    }
}
