//! The first administrator and the first token, made beside the database: whoever can reach it that way needs no permission from the API.

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use muster_core::values::Secret;
use muster_server::auth::{passwords, tokens};
use muster_server::db;
use sqlx::PgPool;

use super::migrate::Database;

/// How long a token made this way lasts.
const TOKEN_LASTS: SignedDuration = SignedDuration::from_hours(24 * 90);

/// What to make.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum AdminVerb {
    /// Print a new API token with every permission; it lasts 90 days.
    Token {
        #[command(flatten)]
        database: Database,
        /// Its name, as events tell it.
        #[arg(long, default_value = "bootstrap")]
        name: String,
    },
    /// Set the password of a local administrator, read from standard input.
    Password {
        #[command(flatten)]
        database: Database,
        /// Who signs in.
        #[arg(long, default_value = "admin")]
        user: String,
    },
}

/// Does it.
///
/// # Errors
/// When the database is away or the name is taken.
pub(crate) async fn run(verb: AdminVerb, now: Timestamp) -> anyhow::Result<()> {
    match verb {
        AdminVerb::Token { database, name } => {
            let token = token(&database.connect().await?, &name, now).await?;
            println!("{}", token.reveal());
        }
        AdminVerb::Password { database, user } => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).context("read the password")?;
            anyhow::ensure!(line.trim().len() >= 12, "a password has at least 12 characters");
            password(&database.connect().await?, &user, Secret::new(line.trim()), now).await?;
            println!("{user} can sign in");
        }
    }
    Ok(())
}

/// Makes a token with every permission.
///
/// # Errors
/// When the database is away or the name is taken.
pub(crate) async fn token(pool: &PgPool, name: &str, now: Timestamp) -> anyhow::Result<Secret> {
    let minted = tokens::mint();
    let token = db::tokens::NewToken {
        id: minted.id,
        name: name.to_owned(),
        hash: minted.hash,
        role: "admin",
        created_at: now,
        expires_at: now + TOKEN_LASTS,
    };
    let mut tx = pool.begin().await?;
    db::tokens::insert(&mut tx, &token).await?;
    tx.commit().await?;
    Ok(minted.secret)
}

/// Makes a local administrator or gives an existing one another password, which ends their sessions.
///
/// # Errors
/// When the database is away.
pub(crate) async fn password(pool: &PgPool, user: &str, password: Secret, now: Timestamp) -> anyhow::Result<()> {
    let hash = passwords::hash(password).await?;
    let mut tx = pool.begin().await?;
    match db::users::find(&mut tx, user).await? {
        Some(known) => db::users::set_password(&mut tx, known.id, &hash).await?,
        None => {
            db::users::insert(&mut tx, user, &hash, "admin", now).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}
