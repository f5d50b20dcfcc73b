//! `If-Match` and `If-None-Match` (RFC 9110, section 13): the expected state of the stored object.
//! The ETags of the server are strong: `"<generation>"`.

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};

use crate::error::Error;
use crate::intents::preconditions::{Expected, Preconditions};

impl<S: Send + Sync> FromRequestParts<S> for Preconditions {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Error> {
        read(&parts.headers)
    }
}

fn read(headers: &HeaderMap) -> Result<Preconditions, Error> {
    let text = |name: HeaderName| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default().trim())
    };
    let matches = match text(header::IF_MATCH) {
        None => None,
        Some("*") => Some(Expected::Any),
        Some(tag) => {
            let generation = tag
                .strip_prefix('"')
                .and_then(|tag| tag.strip_suffix('"'))
                .and_then(|tag| tag.parse().ok());
            let wrong = || {
                Error::invalid(
                    "If-Match",
                    "invalid_etag",
                    "An ETag of Muster is a number in quotes: \"3\".",
                )
            };
            Some(Expected::Generation(generation.ok_or_else(wrong)?))
        }
    };
    let absent = match text(header::IF_NONE_MATCH) {
        None => false,
        Some("*") => true,
        Some(_) => {
            return Err(Error::invalid(
                "If-None-Match",
                "invalid_etag",
                "Only `*` is supported.",
            ));
        }
    };
    Ok(Preconditions { matches, absent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(HeaderName, &'static str)]) -> Result<Preconditions, Error> {
        read(
            &pairs
                .iter()
                .map(|(name, value)| (name.clone(), value.parse().unwrap()))
                .collect(),
        )
    }

    #[test]
    fn writes_and_removals_are_held_to_what_was_read() {
        let three = from(&[(header::IF_MATCH, "\"3\"")]).unwrap();
        assert!(three.allow_write(Some(3)).is_ok() && three.allow_removal(3).is_ok());
        assert!(matches!(three.allow_write(Some(4)), Err(Error::Stale(4))));
        assert!(matches!(three.allow_write(None), Err(Error::Stale(0))));
        let absent = from(&[(header::IF_NONE_MATCH, "*")]).unwrap();
        assert!(absent.allow_write(None).is_ok());
        assert!(matches!(absent.allow_write(Some(7)), Err(Error::Exists(7))));
        let none = from(&[]).unwrap();
        assert!(none.allow_write(None).is_ok() && none.allow_write(Some(1)).is_ok());
        assert!(matches!(
            none.allow_removal(1),
            Err(Error::PreconditionRequired)
        ));
        assert!(
            from(&[(header::IF_MATCH, "*")])
                .unwrap()
                .allow_removal(9)
                .is_ok()
        );
        let any = from(&[(header::IF_MATCH, "*")]).unwrap();
        assert!(three.allow_erasure(3).is_ok() && any.allow_erasure(3).is_err());
        assert!(matches!(three.allow_erasure(4), Err(Error::Stale(4))));
        assert!(matches!(
            none.allow_erasure(1),
            Err(Error::PreconditionRequired)
        ));
        for bad in ["3", "W/\"3\"", "\"x\"", "\"1\", \"2\""] {
            assert!(from(&[(header::IF_MATCH, bad)]).is_err(), "{bad}");
        }
    }
}
