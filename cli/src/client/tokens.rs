//! `muster token`.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use muster_api::access::Scope;
use muster_api::tokens::{CreateToken, DEFAULT_RELEASES_PER_HOUR, Role, Token};
use muster_core::values::Name;
use uuid::Uuid;

use super::Session;
use super::output::{Rows, age};
use super::progress::parse_duration;

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// List tokens, without their secrets.
    List,
    /// Make a token and print it, this once.
    Create {
        name: Name,
        #[arg(long, value_enum)]
        role: RoleName,
        /// Only in this site.
        #[arg(long)]
        site: Option<String>,
        /// Only in this rack.
        #[arg(long)]
        rack: Option<String>,
        /// Only in this pool.
        #[arg(long)]
        pool: Option<String>,
        /// How long it lasts.
        #[arg(long, default_value = "168h", value_parser = parse_duration)]
        lasts: Duration,
        /// How many nodes it may release in an hour before each needs a second person.
        #[arg(long, default_value_t = DEFAULT_RELEASES_PER_HOUR)]
        releases_per_hour: u32,
    },
    /// End a token at once.
    Revoke { id: Uuid },
}

/// What a token may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    Guest,
    Viewer,
    Automation,
    Operator,
    Admin,
}

pub(super) async fn run(session: &Session, verb: TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::List => {
            let page = session.client.list_tokens().await?;
            session.output.print(&page.items, || table(session, &page.items))
        }
        TokenVerb::Create { name, role, site, rack, pool, lasts, releases_per_hour } => {
            let role = match role {
                RoleName::Guest => Role::Guest,
                RoleName::Automation => Role::Automation,
                RoleName::Viewer => Role::Viewer,
                RoleName::Operator => Role::Operator,
                RoleName::Admin => Role::Admin,
            };
            let expires_in_s = u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX);
            let scope = Scope { site, rack, pool, labels: std::collections::BTreeMap::new() };
            let request = CreateToken { name, role, scope, expires_in_s, releases_per_hour };
            let created = session.client.create_token(&request).await?;
            session.output.print_lines(&created, || vec![created.secret.reveal().to_owned()])
        }
        TokenVerb::Revoke { id } => Ok(session.client.revoke_token(id).await?),
    }
}

fn table(session: &Session, tokens: &[Token]) -> Rows<6> {
    let now = session.clock.now();
    let row = |token: &Token| {
        let state = match token.revoked_at {
            Some(_) => "revoked",
            None if token.expires_at <= now => "over",
            None => "valid",
        };
        [
            token.id.to_string(),
            token.name.clone(),
            token.role.as_str().into(),
            state.into(),
            token.expires_at.strftime("%F").to_string(),
            age(now, token.last_used),
        ]
    };
    Rows {
        headings: ["ID", "NAME", "ROLE", "STATE", "UNTIL", "USED"],
        rows: tokens.iter().map(row).collect(),
        wide_from: 6,
    }
}
