//! The signature of a live image, checked before a boot is armed. The keys are options of the
//! agent: the server alone cannot boot another live image on nodes of the site.

use muster_core::signatures::{PublicKey, describe_live, verify_text};
use muster_core::wire::job::BootLive;
use muster_core::wire::node::{Failure, FailureCode};

use crate::work::context::fatal;

/// Checks the signature of the live image of an order. Without keys no signature is needed.
///
/// # Errors
/// `image_unsigned` for a missing or wrong signature.
pub(super) fn check_signature(keys: &[PublicKey], spec: &BootLive) -> Result<(), Failure> {
    if keys.is_empty() {
        return Ok(());
    }
    let Some(signature) = &spec.live_signature else {
        return Err(fatal(
            FailureCode::ImageUnsigned,
            "the agent has --live-key, and the live image of the site has no signature: sign with `muster image sign-live`, and set spec.live.signature of the site",
        ));
    };
    let text = describe_live(spec.kernel, spec.initrd);
    verify_text(&text, signature, keys).map_err(|error| {
        fatal(
            FailureCode::ImageUnsigned,
            format!("the signature of the live image is not valid: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use muster_core::signatures::SecretKey;
    use muster_core::values::Digest;

    use super::*;
    use crate::boot::tests::armed_spec;

    #[test]
    fn an_agent_with_keys_boots_signed_live_images_only() {
        let (key, stranger) = (
            SecretKey::from_seed(&[7; 32]),
            SecretKey::from_seed(&[8; 32]),
        );
        let keys = [key.public()];
        let unsigned = armed_spec();
        let text = describe_live(unsigned.kernel, unsigned.initrd);
        let signed = BootLive {
            live_signature: Some(key.sign(&text)),
            ..armed_spec()
        };
        assert_eq!(check_signature(&[], &unsigned), Ok(()));
        assert_eq!(check_signature(&keys, &signed), Ok(()));
        let other = BootLive {
            initrd: Digest::of(b"other"),
            ..signed.clone()
        };
        let untrusted = BootLive {
            live_signature: Some(stranger.sign(&text)),
            ..signed
        };
        for refused in [unsigned, other, untrusted] {
            let failure = check_signature(&keys, &refused).unwrap_err();
            assert_eq!(failure.code, FailureCode::ImageUnsigned);
            assert!(!failure.retryable);
        }
    }
}
