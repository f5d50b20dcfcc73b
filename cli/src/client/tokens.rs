//! `muster token`.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use muster_api::access::Scope;
use muster_api::tokens::{CreateToken, DEFAULT_RELEASES_PER_HOUR, Role};
use muster_core::values::Name;

use super::asking;
use super::session::Session;
use crate::duration::parse_duration;

/// Subcommands of tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Create a token, and print the token once
    Create {
        name: Name,
        #[arg(long, value_enum)]
        role: RoleName,
        /// Limit the token to a site
        #[arg(long)]
        site: Option<String>,
        /// Limit the token to a rack
        #[arg(long)]
        rack: Option<String>,
        /// Limit the token to a pool
        #[arg(long)]
        pool: Option<String>,
        /// Lifetime, such as 12h or 168h
        #[arg(long, default_value = "168h", value_parser = parse_duration)]
        lasts: Duration,
        /// Number of nodes released per hour without a second person
        #[arg(long, default_value_t = DEFAULT_RELEASES_PER_HOUR)]
        releases_per_hour: u32,
    },
    /// Revoke a token at once
    Revoke {
        /// Name or id
        token: String,
        /// Skip the confirmation. Scripts without a terminal are never asked
        #[arg(short, long)]
        yes: bool,
    },
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    Guest,
    Viewer,
    Automation,
    Operator,
    #[value(name = "release_owner")]
    ReleaseOwner,
    Admin,
}

pub(super) async fn run(session: &Session, verb: TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::Create {
            name,
            role,
            site,
            rack,
            pool,
            lasts,
            releases_per_hour,
        } => {
            let role = match role {
                RoleName::Guest => Role::Guest,
                RoleName::Automation => Role::Automation,
                RoleName::Viewer => Role::Viewer,
                RoleName::Operator => Role::Operator,
                RoleName::ReleaseOwner => Role::ReleaseOwner,
                RoleName::Admin => Role::Admin,
            };
            let expires_in_s = u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX);
            let scope = Scope {
                site,
                rack,
                pool,
                labels: std::collections::BTreeMap::new(),
            };
            let request = CreateToken {
                name,
                role,
                scope,
                expires_in_s,
                releases_per_hour,
            };
            let created = session.client.create_token(&request).await?;
            session
                .output
                .print_lines(&created, || vec![created.secret.reveal().to_owned()])?;
            crate::printing::ensure_read("the token")
        }
        TokenVerb::Revoke { token, yes } => {
            if asking::agreed(
                "Programs using this token, or a token created with it, lose access at once. Revoke the token?",
                yes,
            )? {
                session.client.revoke_token(&token).await?;
                session.output.note("revoked");
            }
            Ok(())
        }
    }
}
