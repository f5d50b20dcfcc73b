//! Options of the OpenID provider for sign-in.

use std::path::PathBuf;

use anyhow::Context;
use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::values::Secret;
use muster_server::oidc::{Provider, Settings};

use crate::duration::parse_duration;

/// Sign-in by an OpenID provider. Without an issuer, only local sign-in works.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sign-in by an OpenID provider")]
pub(crate) struct OidcArgs {
    /// The provider, as its metadata names it: `https://login.example/realms/fleet`.
    #[arg(long, env = "MUSTER_OIDC_ISSUER", requires_all = ["oidc_client_id", "oidc_client_secret_file", "public_url"])]
    pub oidc_issuer: Option<String>,
    /// Client id of this installation at the provider
    #[arg(long, env = "MUSTER_OIDC_CLIENT_ID")]
    pub oidc_client_id: Option<String>,
    /// File with the client secret
    #[arg(long, env = "MUSTER_OIDC_CLIENT_SECRET_FILE")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// Public URL of this server. The provider redirects browsers to `/sign-in/oidc/callback` below
    /// the URL
    #[arg(long, env = "MUSTER_PUBLIC_URL")]
    pub public_url: Option<String>,
    /// `GROUP=ROLE`: the role for members of a group in the claim `groups`. Repeatable. A user
    /// without a group is a guest
    #[arg(long, env = "MUSTER_OIDC_ROLES", value_delimiter = ',', value_parser = group_role)]
    pub oidc_role: Vec<(String, Role)>,
    /// Name of an administrator's token without a person that counts beside the provider, although
    /// the local administrator is not armed. Tokens made with the token count too. Repeatable
    #[arg(
        long,
        env = "MUSTER_OIDC_KEEPS_TOKENS",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub oidc_keeps_token: Vec<String>,
    /// Time for which a sign-in by the provider is valid, such as 12h or 7d. Later, sessions and
    /// tokens of the person have no effect until the next sign-in. 1h to 90d
    #[arg(long, env = "MUSTER_OIDC_SIGN_IN_LASTS", value_name = "DURATION", default_value = "7d", value_parser = sign_in_time)]
    pub oidc_sign_in_lasts: SignedDuration,
}

impl OidcArgs {
    /// Returns the provider, if configured.
    ///
    /// # Errors
    /// When a URL is malformed, or the secret is unreadable.
    pub(crate) fn provider(&self) -> anyhow::Result<Option<Provider>> {
        let Some(issuer) = self.oidc_issuer.clone() else {
            return Ok(None);
        };
        let file = self
            .oidc_client_secret_file
            .as_ref()
            .context("--oidc-client-secret-file")?;
        let secret =
            std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        anyhow::ensure!(!secret.trim().is_empty(), "{} is empty", file.display());
        let settings = Settings {
            issuer,
            client_id: self.oidc_client_id.clone().context("--oidc-client-id")?,
            client_secret: Secret::new(secret.trim()),
            public_url: self.public_url.clone().context("--public-url")?,
            roles: self.oidc_role.clone(),
        };
        let provider = Provider::new(settings)?;
        Ok(Some(
            provider
                .keeping(self.oidc_keeps_token.clone())
                .vouching_for(self.oidc_sign_in_lasts),
        ))
    }
}

/// Parses the time for which a sign-in is valid.
fn sign_in_time(text: &str) -> Result<SignedDuration, String> {
    let length =
        SignedDuration::try_from(parse_duration(text)?).map_err(|error| error.to_string())?;
    let allowed = SignedDuration::from_hours(1)..=SignedDuration::from_hours(90 * 24);
    match allowed.contains(&length) {
        true => Ok(length),
        false => Err(format!("{text:?} is not between 1h and 90d")),
    }
}

fn group_role(text: &str) -> Result<(String, Role), String> {
    let (group, role) = text.rsplit_once('=').ok_or("GROUP=ROLE")?;
    let role = role.parse::<Role>().map_err(|error| error.to_string())?;
    Ok((group.to_owned(), role))
}
