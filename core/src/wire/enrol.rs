//! Issue of an agent's certificate: the first for an enrolment token, later ones for the previous
//! certificate. The private key is generated on the agent's machine and never leaves the machine.
//! The agent sends a PKCS#10 request signed with the key.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::values::{Digest, Secret};

/// DNS name in the server's certificate, for every server address. Agents check this name and trust
/// a single authority, or two during a rotation.
pub const SERVER_NAME: &str = "agents.muster.internal";

/// Number of hex digits of the checksum at the end of a token.
const CRC_HEX: usize = 8;

/// `POST /agent/v1/enrol`, without a client certificate. A repeated request with the same key
/// receives the same response. A request with another key is rejected, because a token works once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    pub token: Secret,
    /// PKCS#10, PEM, for an Ed25519 key. Only the key is used; the token determines the
    /// certificate's subject.
    pub request: String,
}

/// `POST /agent/v1/certificate`, under a valid certificate: requests another certificate for the
/// same agent. The previous certificate stays valid until expiry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    pub request: String,
}

/// A certificate for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    pub agent: AgentId,
    pub site: String,
    /// X.509, PEM.
    pub certificate: String,
    /// Certificate (PEM) of the authority that has signed the certificate. During a rotation the
    /// server may show a certificate of another authority.
    pub authority: String,
    /// Validity by the server's clock. Decisions about validity use the server's clock.
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Issued {
    /// Returns the time for renewal: half of the certificate's lifetime.
    pub fn renew_at(&self) -> Timestamp {
        self.not_before + self.not_after.duration_since(self.not_before) / 2
    }
}

/// Most authorities at a time: the present one, and the successor during a rotation.
const AUTHORITIES: usize = 2;

/// Writes the SHA-256 of the certificates of authorities: `sha256:…,sha256:…`, the one that
/// certifies the server first.
pub fn write_authorities(authorities: &[Digest]) -> String {
    let words: Vec<String> = authorities.iter().map(Digest::to_string).collect();
    words.join(",")
}

/// Reads a list of [`write_authorities`]. Returns `None` for an empty list, a longer list and other
/// texts.
pub fn read_authorities(text: &str) -> Option<Vec<Digest>> {
    let words = text.split(',').take(AUTHORITIES + 1);
    let read = words.map(|word| word.parse::<Digest>().ok());
    let read: Vec<Digest> = read.collect::<Option<_>>()?;
    (read.len() <= AUTHORITIES).then_some(read)
}

/// Returns the SHA-256 of the authority's certificate, contained in an enrolment token:
/// `msa_<id>_<secret>_<authority><crc>`. The agent uses the digest to authenticate the server at
/// first contact. Returns `None` for other texts.
pub fn authority_of(token: &str) -> Option<Digest> {
    let (body, last) = token.rsplit_once('_')?;
    let hex = last
        .len()
        .checked_sub(CRC_HEX)
        .and_then(|at| last.get(..at))?;
    body.starts_with("msa_").then_some(())?;
    format!("sha256:{hex}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_authority_and_other_texts_name_none() {
        let digest = Digest::of(b"ca");
        let token = format!("msa_0190_beef_{}0badcafe", digest.hex());
        assert_eq!(authority_of(&token), Some(digest));
        for bad in [
            "",
            "msa_",
            "msa_ü_ü",
            "mst_a_b_c",
            &token[1..],
            &token[..token.len() - 1],
            &format!("{token}0"),
        ] {
            assert_eq!(authority_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_list_has_one_authority_or_two() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Digest::of(name.as_bytes()));
        for list in [vec![a], vec![b, a]] {
            assert_eq!(read_authorities(&write_authorities(&list)), Some(list));
        }
        let long = write_authorities(&[a, b, c]);
        for bad in [
            "",
            ",",
            "sha256:",
            &format!("{a},"),
            &format!("{a}, {b}"),
            &long,
        ] {
            assert_eq!(read_authorities(bad), None, "{bad}");
        }
    }

    #[test]
    fn it_is_renewed_at_half_of_its_life() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let issued = Issued {
            agent: AgentId::new(),
            site: "lab".into(),
            certificate: String::new(),
            authority: String::new(),
            not_before: at(1000),
            not_after: at(3000),
        };
        assert_eq!(issued.renew_at(), at(2000));
    }
}
