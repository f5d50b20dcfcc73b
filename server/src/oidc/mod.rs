//! The protocol of an OpenID provider: authorization code with PKCE, state and nonce. The
//! provider's metadata and keys are fetched for each login. A newly rotated key is therefore
//! accepted immediately, and a withdrawn key is rejected immediately.

mod logout; // The provider's token about the end of a login

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use muster_api::tokens::Role;
use muster_core::values::Secret;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType,
    CoreGenderClaim, CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm,
    CoreProviderMetadata, CoreRevocableToken, CoreRevocationErrorResponse,
    CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken,
    EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpClientError,
    HttpRequest, HttpResponse, IdTokenFields, IssuerUrl, Nonce, PkceCodeChallenge,
    PkceCodeVerifier, RedirectUrl, Scope, StandardErrorResponse, StandardTokenResponse,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use self::logout::{Expected, LogoutToken};

pub(crate) use self::logout::FRESH;
pub use self::logout::Logout;

/// Largest answer of the provider, in bytes.
const LONGEST: usize = 1 << 20;
/// Logins calling the provider at once. A storm of logins must not become a storm at the provider.
const TURNS: usize = 4;
/// Logout tokens checked at the provider at once. Their turns are separate: a flood of tokens must
/// not hold up logins.
const LOGOUT_TURNS: usize = 2;
/// The longest wait of a logout token for a turn.
const LOGOUT_WAIT: Duration = Duration::from_secs(10);

/// The time for which the provider vouches for a person after a sign-in, unless set otherwise.
pub const VOUCHES_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The provider's address and credentials, and the roles of the provider's groups.
#[derive(Clone, Debug)]
pub struct Settings {
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Secret,
    /// Public address of this server for browsers: `https://muster.example`.
    pub public_url: String,
    /// Groups of the provider, with the role of the members. A person in none of the groups is a
    /// guest.
    pub roles: Vec<(String, Role)>,
}

/// A client of the provider, one per replica.
pub struct Provider {
    settings: Settings,
    http: reqwest::Client,
    turns: Semaphore,
    logout_turns: Semaphore,
    host: String,
    /// Names of administrators' tokens without a person that count beside the provider.
    keeps_tokens: Vec<String>,
    vouches_for: SignedDuration,
}

/// Claims about a person, beside the standard claims.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Claims {
    #[serde(default)]
    groups: Vec<String>,
    /// The provider's id of the session.
    #[serde(default)]
    sid: Option<String>,
}

impl AdditionalClaims for Claims {}

type Tokens = StandardTokenResponse<
    IdTokenFields<
        Claims,
        EmptyExtraTokenFields,
        CoreGenderClaim,
        CoreJweContentEncryptionAlgorithm,
        CoreJwsSigningAlgorithm,
    >,
    CoreTokenType,
>;

type Relying = Client<
    Claims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    Tokens,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The secrets of one login: the nonce of the ID token and the PKCE verifier of the code.
pub struct Secrets {
    nonce: Nonce,
    verifier: PkceCodeVerifier,
}

impl Secrets {
    /// Wraps secrets derived by the caller.
    pub fn new(nonce: String, verifier: String) -> Self {
        Self {
            nonce: Nonce::new(nonce),
            verifier: PkceCodeVerifier::new(verifier),
        }
    }
}

/// A person authenticated by the provider.
#[derive(Clone, Debug)]
pub struct Person {
    /// The provider's own id of the person.
    pub subject: String,
    /// The name at the provider, with the provider's host.
    pub name: String,
    pub role: Role,
    /// Names of the person's groups at the provider.
    pub groups: Vec<String>,
    /// The provider's id of the session, where the ID token has one.
    pub session: Option<String>,
}

impl Provider {
    /// Builds the client without a call to the provider, so the server starts even when the
    /// provider is down.
    ///
    /// # Errors
    ///
    /// When a URL is invalid, or would carry secrets unencrypted beyond this machine.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let issuer = reqwest::Url::parse(&settings.issuer).context("the issuer is no URL")?;
        let public = reqwest::Url::parse(&settings.public_url).context("the public URL is none")?;
        for url in [&issuer, &public] {
            let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
            ensure!(url.scheme() == "https" || here, "{url} is not https");
        }
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(10))
            .build()?;
        let host = issuer.host_str().unwrap_or_default().to_owned();
        Ok(Self {
            settings,
            http,
            turns: Semaphore::new(TURNS),
            logout_turns: Semaphore::new(LOGOUT_TURNS),
            host,
            keeps_tokens: Vec::new(),
            vouches_for: VOUCHES_FOR,
        })
    }

    /// Returns the same provider, beside which the named tokens count without a person.
    #[must_use]
    pub fn keeping(self, keeps_tokens: Vec<String>) -> Self {
        Self {
            keeps_tokens,
            ..self
        }
    }

    /// Sets the time for which the provider vouches for a person after a sign-in.
    #[must_use]
    pub fn vouching_for(self, vouches_for: SignedDuration) -> Self {
        Self {
            vouches_for,
            ..self
        }
    }

    /// Returns whether an administrator's token without a person counts beside the provider.
    pub fn keeps_token(&self, name: &str) -> bool {
        self.keeps_tokens.iter().any(|kept| kept == name)
    }

    /// Returns the time for which the provider vouches for a person after a sign-in.
    pub fn vouches_for(&self) -> SignedDuration {
        self.vouches_for
    }

    /// Returns the host of the provider's address, the name shown to people.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the issuer's address, as written in the settings.
    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Returns the provider's login address for the browser.
    ///
    /// # Errors
    ///
    /// When the provider's answer is missing or invalid.
    pub async fn authorize(&self, state: String, secrets: Secrets) -> anyhow::Result<String> {
        let Secrets { nonce, verifier } = secrets;
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        let client = self.discover().await?;
        let (url, _, _) = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                move || CsrfToken::new(state),
                move || nonce,
            )
            .set_pkce_challenge(challenge)
            .add_scopes(["profile", "groups"].map(|scope| Scope::new(scope.into())))
            .url();
        Ok(url.to_string())
    }

    /// Exchanges the code of a login for the authenticated person.
    ///
    /// # Errors
    ///
    /// When the provider does not confirm a person.
    pub async fn exchange(&self, code: String, secrets: Secrets) -> anyhow::Result<Person> {
        let Secrets { nonce, verifier } = secrets;
        let client = self.discover().await?;
        let fetch = fetcher(self.http.clone());
        let tokens = client
            .exchange_code(AuthorizationCode::new(code))?
            .set_pkce_verifier(verifier)
            .request_async(&fetch)
            .await?;
        let id_token = tokens.extra_fields().id_token().context("no ID token")?;
        let claims = id_token
            .claims(&client.id_token_verifier(), &nonce)
            .context("the ID token")?;
        let groups = &claims.additional_claims().groups;
        let subject = claims.subject().as_str();
        let shown = claims
            .preferred_username()
            .map_or(subject, |name| name.as_str());
        Ok(Person {
            subject: subject.to_owned(),
            name: self.name(shown)?,
            role: role(&self.settings.roles, groups),
            groups: groups.clone(),
            session: claims.additional_claims().sid.clone(),
        })
    }

    /// Checks a logout token by the provider's present keys. A token that fails the other checks
    /// causes no call to the provider.
    ///
    /// # Errors
    ///
    /// When the token is not the provider's, or the provider's keys cannot be fetched.
    pub async fn check_logout(&self, token: &str, now: Timestamp) -> anyhow::Result<Logout> {
        let token = LogoutToken::read(token)?;
        token.check(Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            now,
        })?;
        let turn = tokio::time::timeout(LOGOUT_WAIT, self.logout_turns.acquire());
        let _turn = turn.await.context("too many logout tokens wait")??;
        let metadata = self.fetch_metadata().await?;
        token.verify(
            metadata.jwks().keys(),
            metadata.id_token_signing_alg_values_supported(),
        )
    }

    /// Returns a name distinct from every local name, because local names contain no `@`.
    fn name(&self, shown: &str) -> anyhow::Result<String> {
        let fits = (1..=200).contains(&shown.len()) && !shown.chars().any(char::is_control);
        ensure!(fits, "the provider's name for them cannot be shown");
        Ok(format!("{shown}@{}", self.host))
    }

    async fn discover(&self) -> anyhow::Result<Relying> {
        let _turn = self.turns.acquire().await?;
        let metadata = self.fetch_metadata().await?;
        let (id, secret) = (
            self.settings.client_id.clone(),
            self.settings.client_secret.reveal().to_owned(),
        );
        let back = format!(
            "{}/sign-in/oidc/callback",
            self.settings.public_url.trim_end_matches('/')
        );
        let client = Relying::from_provider_metadata(
            metadata,
            ClientId::new(id),
            Some(ClientSecret::new(secret)),
        );
        Ok(client.set_redirect_uri(RedirectUrl::new(back)?))
    }

    /// Fetches the provider's metadata and keys.
    async fn fetch_metadata(&self) -> anyhow::Result<CoreProviderMetadata> {
        let fetch = fetcher(self.http.clone());
        let issuer = IssuerUrl::new(self.settings.issuer.clone())?;
        CoreProviderMetadata::discover_async(issuer, &fetch)
            .await
            .context("discover the provider")
    }
}

type Fetched = BoxFuture<'static, Result<HttpResponse, HttpClientError<reqwest::Error>>>;

/// Returns the HTTP function used by the library.
fn fetcher(http: reqwest::Client) -> impl Fn(HttpRequest) -> Fetched + Send + Sync {
    move |request| Box::pin(fetch(http.clone(), request))
}

async fn fetch(
    http: reqwest::Client,
    request: HttpRequest,
) -> Result<HttpResponse, HttpClientError<reqwest::Error>> {
    let failed = |error| HttpClientError::Reqwest(Box::new(error));
    let (parts, body) = request.into_parts();
    let request = http
        .request(parts.method, parts.uri.to_string())
        .headers(parts.headers)
        .body(body);
    let mut response = request.send().await.map_err(failed)?;
    let mut answer = openidconnect::http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        answer = answer.header(name, value);
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > LONGEST {
            return Err(HttpClientError::Other(
                "the provider's answer is too long".into(),
            ));
        }
        bytes.extend_from_slice(&chunk);
    }
    answer.body(bytes).map_err(HttpClientError::Http)
}

/// Returns the highest role given by any of the groups. An operator in the group of a release owner
/// stays an operator, because a further group must take no action on nodes away.
fn role(roles: &[(String, Role)], groups: &[String]) -> Role {
    let best = [
        Role::Admin,
        Role::Operator,
        Role::ReleaseOwner,
        Role::Automation,
        Role::Viewer,
    ];
    let has = |role: &Role| {
        roles
            .iter()
            .any(|(group, given)| given == role && groups.contains(group))
    };
    best.into_iter().find(has).unwrap_or(Role::Guest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_all_groups_counts_and_no_group_is_a_guest() {
        let roles = [
            ("a".to_owned(), Role::Viewer),
            ("b".to_owned(), Role::Admin),
            ("releases".to_owned(), Role::ReleaseOwner),
            ("night".to_owned(), Role::Operator),
        ];
        let groups = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(role(&roles, &groups(&["a", "b"])), Role::Admin);
        assert_eq!(role(&roles, &groups(&["a", "c"])), Role::Viewer);
        assert_eq!(role(&roles, &groups(&["A", "admin"])), Role::Guest);
        assert_eq!(
            role(&roles, &groups(&["a", "releases"])),
            Role::ReleaseOwner
        );
        let both = groups(&["releases", "night"]);
        assert_eq!(role(&roles, &both), Role::Operator);
    }

    #[test]
    fn secrets_never_go_in_the_clear_beyond_this_machine() {
        let settings = |issuer: &str, public_url: &str| Settings {
            issuer: issuer.into(),
            client_id: "muster".into(),
            client_secret: Secret::new("s"),
            public_url: public_url.into(),
            roles: Vec::new(),
        };
        assert!(Provider::new(settings("https://login.example", "https://muster.example")).is_ok());
        assert!(Provider::new(settings("http://127.0.0.1:3000", "http://localhost:8080")).is_ok());
        assert!(Provider::new(settings("http://login.example", "https://muster.example")).is_err());
        assert!(Provider::new(settings("https://login.example", "http://muster.example")).is_err());
        assert!(Provider::new(settings("login.example", "https://muster.example")).is_err());
    }
}
