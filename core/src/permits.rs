//! Permits: permission to power, image or wipe a node, for a single operation. Defines the signed
//! bytes and their verification.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::wire::node::{Challenge, SiteTrust};
use crate::words;

words! {
    /// The action allowed by a permit.
    PermitKind, "kind of permit" {
        Power = "power",
        Image = "image",
        Wipe = "wipe",
    }
}

/// The reason for rejecting a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermitError {
    #[error("the permit key or signature is not base64 of the right length")]
    Malformed,
    #[error("the permit's signature is not the server's")]
    NotSigned,
}

/// Returns the canonical bytes covered by a permit's signature: a domain word, then the challenge
/// in a fixed field order.
pub fn signed_bytes(kind: PermitKind, challenge: &Challenge) -> Vec<u8> {
    let mut bytes = format!("muster permit v1 {}\n", kind.as_str()).into_bytes();
    bytes
        .extend(serde_json::to_vec(challenge).expect("a challenge holds only strings and numbers"));
    bytes
}

/// Signs a challenge. Called by the server after the permit was checked and marked as used.
pub fn sign(key: &SigningKey, kind: PermitKind, challenge: &Challenge) -> String {
    STANDARD.encode(key.sign(&signed_bytes(kind, challenge)).to_bytes())
}

/// Verifies the server's signature. Called by muster-node before the first byte is written.
///
/// # Errors
/// Returns [`PermitError`] if the key or the signature is unreadable, or the signature does not
/// match.
pub fn verify(
    public_key: &str,
    kind: PermitKind,
    challenge: &Challenge,
    signature: &str,
) -> Result<(), PermitError> {
    let key: [u8; 32] = decode(public_key)?;
    let signature: [u8; 64] = decode(signature)?;
    let key = VerifyingKey::from_bytes(&key).map_err(|_| PermitError::Malformed)?;
    key.verify_strict(
        &signed_bytes(kind, challenge),
        &Signature::from_bytes(&signature),
    )
    .map_err(|_| PermitError::NotSigned)
}

/// The start of a comment line with a further permit key, beside the SSH user CAs of a live image.
/// sshd skips comments, and an earlier live image refuses a new member.
const FURTHER: &str = "# muster-permit-key ";

/// Returns the comment line with a further permit key, for the SSH user CAs of a live image.
pub fn write_further(public_key: &str) -> String {
    format!("{FURTHER}{public_key}")
}

/// Returns the permit keys that a live image trusts: the former key first, and during a rotation
/// the new key.
pub fn list_keys(trust: &SiteTrust) -> Vec<&str> {
    let further = trust.user_ca.lines();
    let further = further.filter_map(|line| line.strip_prefix(FURTHER));
    std::iter::once(trust.permit_public_key.as_str())
        .chain(further.map(str::trim))
        .collect()
}

fn decode<const N: usize>(text: &str) -> Result<[u8; N], PermitError> {
    let bytes = STANDARD.decode(text).map_err(|_| PermitError::Malformed)?;
    bytes.try_into().map_err(|_| PermitError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobId, NodeId, OperationId, PermitId};

    #[test]
    fn only_the_same_kind_and_challenge_verify() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let public = STANDARD.encode(key.verifying_key().as_bytes());
        let challenge = Challenge {
            protocol: 1,
            permit: PermitId::new(),
            operation: OperationId::new(),
            job: JobId::new(),
            attempt: 1,
            node: NodeId::new(),
            epoch: 3,
            boot_id: "b".into(),
            chassis_serial: None,
            disk_serials: vec!["S1".into()],
            nonce: "00".into(),
        };
        let signature = sign(&key, PermitKind::Image, &challenge);
        assert_eq!(
            verify(&public, PermitKind::Image, &challenge, &signature),
            Ok(())
        );
        assert_eq!(
            verify(&public, PermitKind::Wipe, &challenge, &signature),
            Err(PermitError::NotSigned)
        );
        let other = Challenge {
            disk_serials: vec!["S2".into()],
            ..challenge.clone()
        };
        assert_eq!(
            verify(&public, PermitKind::Image, &other, &signature),
            Err(PermitError::NotSigned)
        );
        assert_eq!(
            verify("!", PermitKind::Image, &challenge, &signature),
            Err(PermitError::Malformed)
        );
    }
}
