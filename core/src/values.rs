//! Values parsed once at the edge and valid ever after.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// The reason why a text is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct InvalidValue {
    /// The expected kind of value.
    pub what: &'static str,
    /// The problem, in words explaining how to correct the text.
    pub why: String,
}

fn invalid(what: &'static str, why: impl Into<String>) -> InvalidValue {
    InvalidValue {
        what,
        why: why.into(),
    }
}

/// Serializes a parsed value as its text form in JSON, and publishes the text's pattern in the API
/// schema.
macro_rules! as_text {
    ($name:ident, $pattern:literal) => {
        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some($pattern))
                    .into()
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

/// An Ethernet address, shown as `52:54:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns whether a machine can have the address: neither all zeros nor the address of a
    /// group.
    pub fn is_of_machine(self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separated = text.len() == 17
            && text
                .as_bytes()
                .iter()
                .skip(2)
                .step_by(3)
                .all(|b| matches!(b, b':' | b'-'));
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let mut bytes = [0; 6];
        match separated && hex::decode_to_slice(&hex, &mut bytes).is_ok() {
            true => Ok(Self(bytes)),
            false => Err(invalid(
                "MAC address",
                format!("{text:?} is not six hex pairs such as 52:54:00:12:34:56"),
            )),
        }
    }
}
as_text!(Mac, "^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$");

/// A SHA-256 digest, shown as `sha256:<64 hex>`; the name of a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Returns the digest of bytes held in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the 64 hex digits alone, as used in paths.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        hex::decode_to_slice(hex, &mut bytes).map_err(|_| {
            invalid(
                "digest",
                "expected sha256: followed by 64 hex digits".to_owned(),
            )
        })?;
        Ok(Self(bytes))
    }
}
as_text!(Digest, "^sha256:[0-9a-f]{64}$");

/// A name for people and Terraform: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`, never a text that parses
/// as a UUID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Returns the text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let chars_fit = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if text.is_empty()
            || text.len() > 63
            || !chars_fit
            || text.starts_with('-')
            || text.ends_with('-')
        {
            let why = "1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit";
            return Err(invalid("name", why));
        }
        if uuid::Uuid::parse_str(text).is_ok() {
            return Err(invalid("name", "a name must not read as a UUID"));
        }
        Ok(Self(text.to_owned()))
    }
}
as_text!(Name, "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$");

/// Confidential text: printed as dots, never compared, and readable only through
/// [`Secret::reveal`].
///
/// Serialization is allowed, because secrets travel to agents in jobs and to nodes over the pinned
/// SSH channel. Types holding a secret are never stored or logged unchanged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret where the text enters the program.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret itself; every call needs a security review.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("••••••")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_reads_both_separators_and_prints_one() {
        assert_eq!(
            "52-54-00-AB-cd-01".parse::<Mac>().unwrap().to_string(),
            "52:54:00:ab:cd:01"
        );
        for bad in [
            "",
            "52:54:00:ab:cd",
            "5254.00ab.cd01",
            "52:54:00:ab:cd:0g",
            "525400abcd01xxxxx",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_dns_like_and_not_a_uuid() {
        assert!("gpu-a1".parse::<Name>().is_ok());
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a_b",
            "a.b",
            &"a".repeat(64),
            "0197b0f2-9a3c-7000-8000-000000000000",
        ] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_digest_round_trips_and_a_secret_does_not_print() {
        let digest = Digest::of(b"muster");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert!("sha256:00".parse::<Digest>().is_err());
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "••••••");
    }
}
