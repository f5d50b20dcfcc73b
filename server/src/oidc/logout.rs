//! The logout token of a provider: a signed JWT with the person or the session whose login ended
//! (OpenID Connect Back-Channel Logout 1.0, section 2.6).

use anyhow::{Context as _, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use openidconnect::core::{CoreJsonWebKey, CoreJwsSigningAlgorithm};
use openidconnect::{JsonWebKey as _, JwsSigningAlgorithm as _};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The event of a logout token.
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The longest time between the issue of a logout token and its receipt, in both directions: the
/// clocks of provider and fleet may differ.
pub(crate) const FRESH: SignedDuration = SignedDuration::from_mins(5);

/// The longest id of a token, person or session, in bytes.
const LONGEST_ID: usize = 1000;

/// The end of a login at the provider, by a token with a valid signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logout {
    /// The id of the token. The provider sends a token with this id once.
    pub id: String,
    /// The provider's id of the person. Absent: the session names the person.
    pub subject: Option<String>,
    /// The provider's id of the session.
    pub session: Option<String>,
}

/// A logout token before the check of its signature.
#[derive(Debug)]
pub(super) struct LogoutToken<'text> {
    /// Header and claims, as signed.
    signed: &'text str,
    signature: Vec<u8>,
    header: Header,
    claims: Claims,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: CoreJwsSigningAlgorithm,
    kid: Option<String>,
    typ: Option<String>,
    /// Names of further members that a reader must understand. This server understands none.
    crit: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    iat: i64,
    exp: Option<i64>,
    jti: String,
    events: Map<String, Value>,
    sub: Option<String>,
    sid: Option<String>,
    nonce: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn names(&self, client: &str) -> bool {
        match self {
            Self::One(name) => name == client,
            Self::Several(names) => names.iter().any(|name| name == client),
        }
    }
}

/// The values expected in a logout token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) now: Timestamp,
}

impl<'text> LogoutToken<'text> {
    /// Parses a token. The errors quote no part of the token.
    ///
    /// # Errors
    /// When the text is no signed JWT, or a claim is missing.
    pub(super) fn read(text: &'text str) -> anyhow::Result<Self> {
        let (signed, signature) = text.rsplit_once('.').context("no signature")?;
        let (header, claims) = signed.split_once('.').context("no claims")?;
        let header = serde_json::from_slice(&decode(header)?)
            .map_err(|_| anyhow!("the header is not that of a signed JWT"))?;
        let claims = serde_json::from_slice(&decode(claims)?)
            .map_err(|_| anyhow!("the claims are not those of a logout token"))?;
        Ok(Self {
            signed,
            signature: decode(signature)?,
            header,
            claims,
        })
    }

    /// Checks everything but the signature, before a call to the provider.
    ///
    /// # Errors
    /// When the token is of another issuer, for another client, too old, or no logout token.
    pub(super) fn check(&self, expected: Expected<'_>) -> anyhow::Result<()> {
        let claims = &self.claims;
        let kind = self.header.typ.as_deref().unwrap_or("JWT");
        let is_kind = |name: &str| kind.eq_ignore_ascii_case(name);
        ensure!(
            is_kind("logout+jwt") || is_kind("JWT"),
            "the header names another type of token"
        );
        ensure!(
            self.header.crit.is_none(),
            "the header has critical members"
        );
        ensure!(claims.iss == expected.issuer, "another issuer");
        ensure!(claims.aud.names(expected.client_id), "another audience");
        let seconds = expected.now.as_second();
        let apart = seconds.abs_diff(claims.iat);
        ensure!(
            i64::try_from(apart).is_ok_and(|apart| apart <= FRESH.as_secs()),
            "issued at another time"
        );
        ensure!(
            claims
                .exp
                .is_none_or(|end| end > seconds.saturating_sub(FRESH.as_secs())),
            "the token has expired"
        );
        ensure!(
            claims.events.get(EVENT).is_some_and(Value::is_object),
            "the event of a logout is missing"
        );
        ensure!(claims.nonce.is_none(), "a logout token has no nonce");
        ensure!(
            claims.sub.is_some() || claims.sid.is_some(),
            "neither a person nor a session"
        );
        let ids = [Some(&claims.jti), claims.sub.as_ref(), claims.sid.as_ref()];
        ensure!(
            ids.into_iter()
                .flatten()
                .all(|id| (1..=LONGEST_ID).contains(&id.len())),
            "an id is empty or too long"
        );
        Ok(())
    }

    /// Checks the signature by the keys of the provider.
    ///
    /// # Errors
    /// When no key made the signature.
    pub(super) fn verify(
        self,
        keys: &[CoreJsonWebKey],
        supported: &[CoreJwsSigningAlgorithm],
    ) -> anyhow::Result<Logout> {
        let Header { alg, kid, .. } = &self.header;
        // A shared secret proves no provider: the keys of the provider are public.
        let proves = alg.key_type().is_some() && !alg.uses_shared_secret();
        ensure!(
            proves && supported.contains(alg),
            "the provider does not sign by this algorithm"
        );
        let named = |key: &&CoreJsonWebKey| {
            kid.as_ref()
                .is_none_or(|kid| key.key_id().is_some_and(|id| id.as_str() == kid.as_str()))
        };
        let message = self.signed.as_bytes();
        let signed = keys
            .iter()
            .filter(named)
            .any(|key| key.verify_signature(alg, message, &self.signature).is_ok());
        ensure!(signed, "no key of the provider made the signature");
        Ok(Logout {
            id: self.claims.jti,
            subject: self.claims.sub,
            session: self.claims.sid,
        })
    }
}

fn decode(part: &str) -> anyhow::Result<Vec<u8>> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| anyhow!("a part of the token is not base64url"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_770_000_000;

    fn claims() -> Value {
        json!({
            "iss": "https://login.example", "aud": "muster", "iat": NOW, "exp": NOW + 120, "jti": "j1",
            "events": { EVENT: {} }, "sub": "ada", "sid": "s1",
        })
    }

    fn check(header: &Value, claims: &Value) -> anyhow::Result<()> {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}.AAAA", encode(header), encode(claims));
        LogoutToken::read(&text)?.check(Expected {
            issuer: "https://login.example",
            client_id: "muster",
            now: Timestamp::from_second(NOW).unwrap(),
        })
    }

    #[test]
    fn a_logout_token_names_issuer_client_time_event_and_person() {
        let header = json!({ "alg": "RS256", "kid": "k", "typ": "logout+jwt" });
        check(&header, &claims()).unwrap();
        for (member, value) in [
            ("sid", Value::Null),
            ("sub", Value::Null),
            ("exp", Value::Null),
            ("aud", json!(["other", "muster"])),
            ("iat", json!(NOW - 300)),
            ("iat", json!(NOW + 300)),
        ] {
            let mut allowed = claims();
            allowed[member] = value;
            check(&header, &allowed).unwrap_or_else(|error| panic!("{member}: {error}"));
        }
        for (member, value) in [
            ("iss", json!("https://login.example/")),
            ("aud", json!("other")),
            ("aud", json!(["other"])),
            ("aud", json!([])),
            ("iat", json!(NOW - 301)),
            ("iat", json!(NOW + 301)),
            ("iat", json!(i64::MIN)),
            ("iat", json!("now")),
            ("exp", json!(NOW - 300)),
            ("jti", json!("")),
            ("jti", Value::Null),
            ("jti", json!("j".repeat(1001))),
            ("events", json!({})),
            ("events", json!({ EVENT: true })),
            ("events", json!([EVENT])),
            ("nonce", json!("n")),
            ("sub", json!("")),
        ] {
            let mut refused = claims();
            refused[member] = value.clone();
            assert!(check(&header, &refused).is_err(), "{member}: {value}");
        }
        let mut neither = claims();
        (neither["sub"], neither["sid"]) = (Value::Null, Value::Null);
        assert!(check(&header, &neither).is_err());
        for header in [
            json!({ "alg": "RS256", "typ": "at+jwt" }),
            json!({ "alg": "RS256", "crit": ["exp"] }),
            json!({ "kid": "k" }),
        ] {
            assert!(check(&header, &claims()).is_err(), "{header}");
        }
        for text in ["", "a.b", "..", "e30.e30.", "e30=.e30.AAAA"] {
            assert!(LogoutToken::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shared_secret_or_none_is_no_signature() {
        for name in ["none", "HS256"] {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": name }).to_string());
            let claims = URL_SAFE_NO_PAD.encode(claims().to_string());
            let text = format!("{header}.{claims}.");
            let token = LogoutToken::read(&text).unwrap();
            let alg = token.header.alg.clone();
            let keys = [CoreJsonWebKey::new_symmetric(b"public".to_vec())];
            assert!(token.verify(&keys, &[alg]).is_err(), "{name}");
        }
    }
}
