//! Signatures of images by release owners: Ed25519, in the format of minisign. Defines the signed
//! texts, the keys, and the check before a disk is written.
//!
//! `minisign -Vm FILE -P KEY` checks the same signatures.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::images::{ImageManifest, ImagePartitions};
use crate::values::Digest;
use crate::wire::node::{SignedImage, WriteImage};

/// First bytes of a key or signature over the text itself.
const PLAIN: [u8; 2] = *b"Ed";
/// First bytes of a signature over a hash of the text.
const HASHED: [u8; 2] = *b"ED";
const ID_BYTES: usize = 8;
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// Start of the comment lines of minisign's files.
const COMMENT: &str = "untrusted comment:";
/// The word of an image's statement. A signature of any other text is no signature of an image.
const IMAGE: &str = "muster image v1";

/// The word of a live image's statement.
const LIVE: &str = "muster live image v1";

/// The reason for rejecting a key or a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error(
        "no public key of minisign: write the line that begins with RW, as `muster image key` prints"
    )]
    MalformedKey,
    #[error("no Ed25519 private key in PEM, as `muster image key` writes")]
    MalformedSecret,
    #[error(
        "no signature of minisign: write the line that begins with RU or RW, as `muster image sign` prints"
    )]
    MalformedSignature,
    #[error(
        "the signature covers a hash of the text: sign with `minisign -S -l`, or `muster image sign`"
    )]
    Hashed,
    #[error("the key of the signature is not trusted, or has ended")]
    Untrusted,
    #[error("the signature is of another text")]
    OtherText,
    #[error("the signed text is no statement about an image")]
    NoStatement,
    #[error("the signed text is about another image")]
    OtherImage,
}

/// A public key with its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey {
    id: [u8; ID_BYTES],
    key: VerifyingKey,
}

impl FromStr for PublicKey {
    type Err = SignatureError;

    /// Reads the line of a key, or minisign's file with a comment before the line.
    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let bytes = decode_line(text).ok_or(SignatureError::MalformedKey)?;
        let parts = bytes
            .strip_prefix(&PLAIN)
            .and_then(|rest| rest.split_first_chunk::<ID_BYTES>())
            .and_then(|(id, key)| Some((*id, <[u8; KEY_BYTES]>::try_from(key).ok()?)));
        let (id, key) = parts.ok_or(SignatureError::MalformedKey)?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| SignatureError::MalformedKey)?;
        Ok(Self { id, key })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&PLAIN[..], &self.id, self.key.as_bytes()].concat();
        f.write_str(&STANDARD.encode(bytes))
    }
}

impl PublicKey {
    /// Returns the file of the key, as minisign writes it.
    pub fn render_file(&self) -> String {
        format!("{COMMENT} key of a release owner\n{self}\n")
    }
}

/// A private key.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Builds the key from 32 random bytes.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Reads a key in PKCS#8 and PEM.
    ///
    /// # Errors
    /// When the text is of another form.
    pub fn from_pem(text: &str) -> Result<Self, SignatureError> {
        let key = SigningKey::from_pkcs8_pem(text);
        key.map(Self).map_err(|_| SignatureError::MalformedSecret)
    }

    /// Returns the key in PKCS#8 and PEM.
    pub fn to_pem(&self) -> String {
        let pem = self.0.to_pkcs8_pem(LineEnding::LF);
        pem.expect("a key of 32 bytes fits into PEM").to_string()
    }

    /// Returns the public half. The id is the beginning of the digest of the key.
    pub fn public(&self) -> PublicKey {
        let key = self.0.verifying_key();
        let digest = Digest::of(key.as_bytes()).0;
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&digest[..ID_BYTES]);
        PublicKey { id, key }
    }

    /// Signs a text. Returns one line.
    pub fn sign(&self, text: &str) -> String {
        let signature = self.0.sign(text.as_bytes()).to_bytes();
        STANDARD.encode([&PLAIN[..], &self.public().id, &signature].concat())
    }

    /// Signs a text. Returns minisign's file: the line of [`SecretKey::sign`], and a signed comment
    /// of one line.
    pub fn sign_file(&self, text: &str, comment: &str) -> String {
        let signature = self.0.sign(text.as_bytes()).to_bytes();
        let comment: String = comment.chars().filter(|c| !c.is_control()).collect();
        let whole = self.0.sign(&[&signature[..], comment.as_bytes()].concat());
        format!(
            "{COMMENT} signature of a release owner\n{}\ntrusted comment: {comment}\n{}\n",
            self.sign(text),
            STANDARD.encode(whole.to_bytes())
        )
    }
}

/// Checks the form of a signature: a line, or minisign's file.
///
/// # Errors
/// When the text is of another form.
pub fn check_form(signature: &str) -> Result<(), SignatureError> {
    read_signature(signature).map(drop)
}

/// Checks that one of the keys signed the text.
///
/// # Errors
/// When the signature is unreadable, of another key, or of another text.
pub fn verify_text(text: &str, signature: &str, keys: &[PublicKey]) -> Result<(), SignatureError> {
    let (id, signature) = read_signature(signature)?;
    let mut error = SignatureError::Untrusted;
    for key in keys.iter().filter(|key| key.id == id) {
        match key.key.verify_strict(text.as_bytes(), &signature) {
            Ok(()) => return Ok(()),
            Err(_) => error = SignatureError::OtherText,
        }
    }
    Err(error)
}

fn read_signature(text: &str) -> Result<([u8; ID_BYTES], Signature), SignatureError> {
    let bytes = decode_line(text).ok_or(SignatureError::MalformedSignature)?;
    if bytes.starts_with(&HASHED) {
        return Err(SignatureError::Hashed);
    }
    let parts = bytes
        .strip_prefix(&PLAIN)
        .and_then(|rest| rest.split_first_chunk::<ID_BYTES>())
        .and_then(|(id, rest)| Some((*id, <[u8; SIGNATURE_BYTES]>::try_from(rest).ok()?)));
    let (id, signature) = parts.ok_or(SignatureError::MalformedSignature)?;
    Ok((id, Signature::from_bytes(&signature)))
}

/// Decodes the first line that is no comment.
fn decode_line(text: &str) -> Option<Vec<u8>> {
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with(COMMENT))?;
    STANDARD.decode(line).ok()
}

/// The signed text about an image: one line of JSON, without the list of packages. A node compares
/// the order with the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageStatement {
    statement: String,
    name: String,
    version: String,
    digest: Digest,
    size: u64,
    raw_digest: Digest,
    raw_size: u64,
    partitions: ImagePartitions,
    /// Digest of the manifest in one line of JSON, without the signature.
    manifest: Digest,
}

/// Returns the text that a release owner signs.
///
/// A later member of the manifest is left out of the JSON while empty; otherwise the signatures of
/// stored images would end.
pub fn describe_image(image: &ImageManifest) -> String {
    let unsigned = ImageManifest {
        signature: None,
        ..image.clone()
    };
    let manifest = serde_json::to_vec(&unsigned).expect("a manifest is JSON");
    let statement = ImageStatement {
        statement: IMAGE.to_owned(),
        name: image.name.clone(),
        version: image.version.clone(),
        digest: image.digest,
        size: image.size,
        raw_digest: image.raw_digest,
        raw_size: image.raw_size,
        partitions: image.partitions,
        manifest: Digest::of(&manifest),
    };
    serde_json::to_string(&statement).expect("a statement is JSON")
}

/// The signed text about a live image: one line of JSON.
#[derive(Serialize)]
struct LiveStatement {
    statement: &'static str,
    kernel: Digest,
    initrd: Digest,
}

/// Returns the text about a live image that a release owner signs.
pub fn describe_live(kernel: Digest, initrd: Digest) -> String {
    let statement = LiveStatement {
        statement: LIVE,
        kernel,
        initrd,
    };
    serde_json::to_string(&statement).expect("a statement is JSON")
}

/// Checks that one of the keys signed the image of an order. The text is read after its signature.
///
/// # Errors
/// When the signature is not valid, or the text is about another image.
pub fn verify_order(
    order: &WriteImage,
    signed: &SignedImage,
    keys: &[PublicKey],
) -> Result<(), SignatureError> {
    verify_text(&signed.statement, &signed.signature, keys)?;
    let statement: ImageStatement =
        serde_json::from_str(&signed.statement).map_err(|_| SignatureError::NoStatement)?;
    if statement.statement != IMAGE {
        return Err(SignatureError::NoStatement);
    }
    let partitions = ImagePartitions {
        esp: order.esp_partition,
        root: order.root_partition,
    };
    let is_same = statement.digest == order.digest
        && statement.size == order.size
        && statement.raw_digest == order.raw_digest
        && statement.raw_size == order.raw_size
        && statement.partitions == partitions;
    match is_same {
        true => Ok(()),
        false => Err(SignatureError::OtherImage),
    }
}

#[cfg(test)]
mod tests;
