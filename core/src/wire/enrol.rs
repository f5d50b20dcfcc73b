//! How an agent comes by its certificate: once with the token that it was enrolled with, afterwards with the certificate before. The private
//! key is made where the agent runs and never leaves it: what is sent is a PKCS#10 request, which its holder signed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::values::{Digest, Secret};

/// What the server's certificate is for, at whatever address it answers: agents ask for this name, and trust one authority alone.
pub const SERVER_NAME: &str = "agents.muster.internal";

/// Hex digits of a checksum at a token's end.
const CRC_HEX: usize = 8;

/// `POST /agent/v1/enrol`, without a certificate. The same again, with the same key, is answered again; with another key the token is used up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    pub token: Secret,
    /// PKCS#10, PEM, of an Ed25519 key. Only its key counts: whose the certificate is, the token says.
    pub request: String,
}

/// `POST /agent/v1/certificate`, under a certificate that has not ended: another one for the same agent. The former stays valid until its end.
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
    /// That of the authority which signed it, and which signs the server's: PEM.
    pub authority: String,
    /// By the server's time, as is all that is decided by them.
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Issued {
    /// From when on it is to be renewed: half of its life.
    pub fn renew_at(&self) -> Timestamp {
        self.not_before + self.not_after.duration_since(self.not_before) / 2
    }
}

/// The SHA-256 of the authority's certificate, which an enrolment token carries: `msa_<id>_<secret>_<authority><crc>`. It is how the first contact knows
/// the server; `None` of what is no such token.
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
