//! People whom an OpenID provider vouches for: authorization code with PKCE, state and nonce. What is secret about a login under way is derived
//! from a random value in the browser's own cookie, so nothing of it is stored. The provider's metadata and keys are fetched for each login: a
//! key that it rotated in is known at once, one that it took back is worth nothing.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use futures::future::BoxFuture;
use http::HeaderMap;
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
use serde_json::json;
use tokio::sync::Semaphore;

use super::sessions;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::users::Vouched;

/// Of a login under way.
const COOKIE: &str = "muster_sign_in";
/// Answers of the provider, in bytes.
const LONGEST: usize = 1 << 20;
/// Logins that talk to the provider at once: a storm of them must not become one there.
const TURNS: usize = 4;

/// Which provider, and what its groups are here.
#[derive(Clone, Debug)]
pub struct Settings {
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Secret,
    /// Where browsers reach this server: `https://muster.example`.
    pub public_url: String,
    /// A group of the provider, and the role of its members. Who is in none is a guest.
    pub roles: Vec<(String, Role)>,
}

/// The provider, as a replica talks to it.
pub struct Provider {
    settings: Settings,
    http: reqwest::Client,
    turns: Semaphore,
    host: String,
}

/// What the provider says of a person beside the standard claims.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Claims {
    #[serde(default)]
    groups: Vec<String>,
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

/// Where the provider sent the browser back to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answered {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

impl Provider {
    /// Nothing is asked of the provider yet: a server starts without it.
    ///
    /// # Errors
    /// When a URL is none, or would carry secrets in the clear beyond this machine.
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
            host,
        })
    }

    /// How people know it: the host of its address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where the browser goes to log in, and the cookie that ties the way back to it. `next` is the page that it wanted.
    ///
    /// # Errors
    /// When the provider does not answer as one.
    pub async fn begin(
        &self,
        app: &App,
        headers: &HeaderMap,
        next: &str,
    ) -> anyhow::Result<(String, Cookie<'static>)> {
        let state = hex::encode(rand::random::<[u8; 32]>());
        let (nonce, verifier) = secrets(app, &state);
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        let value = format!("{state}.{}", hex::encode(next));
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
        Ok((url.to_string(), cookie(value, headers)))
    }

    /// The session of whoever comes back, the page that they wanted, and the cookie that makes the browser forget the way.
    ///
    /// # Errors
    /// When this browser did not begin it, or the provider does not vouch for anybody. For the log, not for the page.
    pub async fn finish(
        &self,
        app: &App,
        headers: &HeaderMap,
        answered: Answered,
    ) -> anyhow::Result<(Cookie<'static>, Cookie<'static>, String)> {
        let jar = CookieJar::from_headers(headers);
        let begun = jar.get(COOKIE).context("this browser began no login")?;
        let (state, next) = begun
            .value()
            .split_once('.')
            .context("the cookie of the login is none of ours")?;
        let shown = answered.state.unwrap_or_default();
        aws_lc_rs::constant_time::verify_slices_are_equal(state.as_bytes(), shown.as_bytes())
            .map_err(|_| anyhow::anyhow!("another login than the one that this browser began"))?;
        ensure!(
            answered.error.is_none(),
            "the provider said {:?}",
            answered.error.unwrap_or_default()
        );
        let code = AuthorizationCode::new(answered.code.context("no code")?);
        let (nonce, verifier) = secrets(app, state);
        let client = self.discover().await?;
        let fetch = fetcher(self.http.clone());
        let tokens = client
            .exchange_code(code)?
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
        let name = self.name(shown)?;
        let role = role(&self.settings.roles, groups);
        let now = app.clock.now();
        let mut tx = app.pool.begin().await?;
        let vouched = Vouched {
            issuer: &self.settings.issuer,
            subject,
            name: &name,
            role: role.as_str(),
            groups,
        };
        let (user, disabled) = db::users::set_vouched(&mut tx, vouched, now).await?;
        anyhow::ensure!(!disabled, "{name} is kept out by an administrator");
        let session = sessions::open(&mut tx, app, headers, user).await?;
        let event = NewEvent::new(
            now,
            format!("user:{name}"),
            "user.signed_in",
            format!("{name} signed in with the role {}", role.as_str()),
        )
        .asked(crate::http::request_id::of(headers))
        .with(json!({ "issuer": self.settings.issuer, "subject": subject, "groups": groups }));
        db::events::insert(&mut tx, event).await?;
        tx.commit().await?;
        let mut gone = cookie(String::new(), headers);
        gone.make_removal();
        Ok((session, gone, String::from_utf8(hex::decode(next)?)?))
    }

    /// A name that no local person has: those have no @.
    fn name(&self, shown: &str) -> anyhow::Result<String> {
        let fits = (1..=200).contains(&shown.len()) && !shown.chars().any(char::is_control);
        ensure!(fits, "the provider's name for them cannot be shown");
        Ok(format!("{shown}@{}", self.host))
    }

    async fn discover(&self) -> anyhow::Result<Relying> {
        let _turn = self.turns.acquire().await?;
        let fetch = fetcher(self.http.clone());
        let issuer = IssuerUrl::new(self.settings.issuer.clone())?;
        let metadata = CoreProviderMetadata::discover_async(issuer, &fetch)
            .await
            .context("discover the provider")?;
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
}

type Fetched = BoxFuture<'static, Result<HttpResponse, HttpClientError<reqwest::Error>>>;

/// What the library asks the provider with.
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

/// Nonce and PKCE verifier of a login: only this fleet's servers, and only for the browser that holds the state, can tell them.
fn secrets(app: &App, state: &str) -> (Nonce, PkceCodeVerifier) {
    let derived = |use_: &str| {
        app.keys
            .master
            .keyed_hash(&format!("oidc/{use_}"), state.as_bytes())
    };
    (
        Nonce::new(derived("nonce")),
        PkceCodeVerifier::new(derived("verifier") + &derived("verifier/2")),
    )
}

/// The most that any of the groups gives.
fn role(roles: &[(String, Role)], groups: &[String]) -> Role {
    let best = [Role::Admin, Role::Operator, Role::Automation, Role::Viewer];
    let has = |role: &Role| {
        roles
            .iter()
            .any(|(group, given)| given == role && groups.contains(group))
    };
    best.into_iter().find(has).unwrap_or(Role::Guest)
}

fn cookie(value: String, headers: &HeaderMap) -> Cookie<'static> {
    let cookie = Cookie::build((COOKIE, value))
        .path("/sign-in")
        .http_only(true)
        .same_site(SameSite::Lax);
    cookie.secure(sessions::came_by_tls(headers)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_all_groups_counts_and_no_group_is_a_guest() {
        let roles = [
            ("a".to_owned(), Role::Viewer),
            ("b".to_owned(), Role::Admin),
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
