//! The signature of an image, checked before the first byte is written. A live image may have
//! trusted keys of its own: every image then needs a signature of such a key, by every order.

use muster_core::signatures::{PublicKey, SignatureError, verify_order};
use muster_core::wire::node::{Failure, FailureCode, WriteImage};

use crate::failure::{fatal, io};
use crate::{files, paths};

/// The keys of the live image, one in a line. Put into the live image by its build.
const OWN_KEYS: &str = "/etc/muster/image-keys";
/// The largest file of keys in bytes.
const LONGEST: u64 = 64 << 10;
/// Start of the comment lines of minisign's files.
const COMMENT: &str = "untrusted comment:";

/// Checks the signature of the image of an order. Without a signature in the order, and without
/// keys of the live image, no signature is needed.
///
/// # Errors
/// `image_unsigned` for a missing or wrong signature; `malformed` for unreadable keys; `io`.
pub(super) fn check_signature(image: &WriteImage) -> Result<(), Failure> {
    let own = read_own_keys()?;
    let (signed, keys) = match (&image.signed_image, own) {
        (None, None) => return Ok(()),
        (None, Some(_)) => {
            return Err(fatal(
                FailureCode::ImageUnsigned,
                "the live image writes signed images only, and the order has no signature: set require_signature of the pool",
            ));
        }
        (Some(signed), Some(own)) => (signed, own),
        (Some(signed), None) => (signed, parse_keys(&signed.keys.join("\n"))?),
    };
    verify_order(image, signed, &keys).map_err(|error| {
        fatal(
            FailureCode::ImageUnsigned,
            format!("the signature of the image is not valid: {error}"),
        )
    })
}

/// Reads the keys of the live image; `None` for a live image without keys.
fn read_own_keys() -> Result<Option<Vec<PublicKey>>, Failure> {
    let path = paths::at(OWN_KEYS);
    let bytes = match files::read_capped(&path, LONGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(path.display())(error)),
    };
    parse_keys(&String::from_utf8_lossy(&bytes)).map(Some)
}

fn parse_keys(text: &str) -> Result<Vec<PublicKey>, Failure> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(COMMENT));
    let keys: Result<Vec<PublicKey>, SignatureError> = lines.map(str::parse::<PublicKey>).collect();
    keys.map_err(|error| {
        let message = format!("the trusted keys cannot be read: {error}");
        fatal(FailureCode::Malformed, message)
    })
}
