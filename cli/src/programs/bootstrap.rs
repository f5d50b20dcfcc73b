//! The first administrator and the first token, made beside the database: whoever can reach it that way needs no permission from the API.

use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_server::access::Armed;
use muster_server::auth::break_glass;
use muster_server::auth::{passwords, tokens};
use muster_server::db;
use muster_server::db::events::NewEvent;
use muster_server::keys::{self, Create, Forget, Keys, MasterKey};
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
        /// The server's master key. Without it the token is kept by a plain hash until it is first used.
        #[arg(long, env = "MUSTER_KEY_FILE")]
        key_file: Option<PathBuf>,
    },
    /// Keep tokens by another key from now on; each goes over to it when it is next used. Needs the database and the master key.
    RotateTokenKey {
        #[command(flatten)]
        database: Database,
        /// The server's master key.
        #[arg(
            long,
            env = "MUSTER_KEY_FILE",
            default_value = "/etc/muster/master.key"
        )]
        key_file: PathBuf,
        /// Also where tokens were not used since the last time: they are refused from now on.
        #[arg(long)]
        forget: bool,
    },
    /// Let the local administrator sign in for a time, although an identity provider vouches for people. Needs the database and the master key.
    Arm {
        #[command(flatten)]
        database: Database,
        /// The server's master key.
        #[arg(
            long,
            env = "MUSTER_KEY_FILE",
            default_value = "/etc/muster/master.key"
        )]
        key_file: PathBuf,
        /// For how long: `1h`, `30m`; twelve hours at most.
        #[arg(long = "for", default_value = "1h", value_parser = span)]
        lasts: SignedDuration,
        /// Why, for the history.
        #[arg(long)]
        reason: String,
    },
    /// End that before its time.
    Disarm {
        #[command(flatten)]
        database: Database,
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
        AdminVerb::Token {
            database,
            name,
            key_file,
        } => {
            let pool = database.connect().await?;
            let keys = match key_file {
                Some(file) => Some(
                    Keys::load(
                        MasterKey::load(&file, Create::Never)?,
                        &pool,
                        &Clock::System,
                    )
                    .await?,
                ),
                None => None,
            };
            let token = token(&pool, keys.as_ref(), &name, now).await?;
            println!("{}", token.reveal());
        }
        AdminVerb::RotateTokenKey {
            database,
            key_file,
            forget,
        } => {
            let forget = if forget { Forget::Yes } else { Forget::No };
            rotate(&database.connect().await?, &key_file, forget).await?;
        }
        AdminVerb::Arm {
            database,
            key_file,
            lasts,
            reason,
        } => {
            arm(&database.connect().await?, &key_file, lasts, reason.trim()).await?;
        }
        AdminVerb::Disarm { database } => disarm(&database.connect().await?).await?,
        AdminVerb::Password { database, user } => {
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .context("read the password")?;
            anyhow::ensure!(
                line.trim().len() >= 12,
                "a password has at least 12 characters"
            );
            password(
                &database.connect().await?,
                &user,
                Secret::new(line.trim()),
                now,
            )
            .await?;
            println!("{user} can sign in");
        }
    }
    Ok(())
}

/// Disarms the local administrator, by the database's time.
async fn disarm(pool: &PgPool) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    let now = db::monitoring::time(&mut tx).await?;
    let was = break_glass::disarm(&mut tx, &whoami()?, now).await?;
    tx.commit().await?;
    println!(
        "{}",
        if was {
            "the local administrator is disarmed"
        } else {
            "it was not armed"
        }
    );
    Ok(())
}

/// Arms the local administrator, by the database's time.
async fn arm(
    pool: &PgPool,
    key_file: &Path,
    lasts: SignedDuration,
    reason: &str,
) -> anyhow::Result<()> {
    let fits = (1..=break_glass::REASON).contains(&reason.len());
    anyhow::ensure!(fits, "say why, in at most {} bytes", break_glass::REASON);
    anyhow::ensure!(
        lasts.is_positive() && lasts <= break_glass::LONGEST,
        "for at most {:#}",
        break_glass::LONGEST
    );
    let key = MasterKey::load(key_file, Create::Never)?;
    // The wrong key would make a seal that no server believes.
    let keys = Keys::load(key, pool, &Clock::System).await?;
    let mut tx = pool.begin().await?;
    let now = db::monitoring::time(&mut tx).await?;
    let armed = Armed {
        armed_at: now,
        until: now + lasts,
        by: whoami()?,
        reason: reason.to_owned(),
    };
    break_glass::arm(&mut tx, &keys.master, &armed).await?;
    tx.commit().await?;
    println!(
        "the local administrator may sign in until {:.0}",
        armed.until
    );
    Ok(())
}

/// Makes another key the one that tokens are kept by.
async fn rotate(pool: &PgPool, key_file: &Path, forget: Forget) -> anyhow::Result<()> {
    let master = MasterKey::load(key_file, Create::Never)?;
    let mut tx = pool.begin().await?;
    let now = db::monitoring::time(&mut tx).await?;
    let forgotten = keys::rotate(&master, &mut tx, forget, now).await?;
    let summary = format!(
        "tokens are kept by another key; {forgotten} that were not used since the last time are refused"
    );
    db::events::insert(
        &mut tx,
        NewEvent::new(now, whoami()?, "token.key_rotated", summary),
    )
    .await?;
    tx.commit().await?;
    println!(
        "tokens are kept by another key from now on; {forgotten} that were not used since the last time are refused"
    );
    Ok(())
}

/// `USER@HOST` of this shell, and who became that user.
fn whoami() -> anyhow::Result<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid())?
        .map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name);
    let host = nix::unistd::gethostname()?.to_string_lossy().into_owned();
    let before = std::env::var("SUDO_USER")
        .ok()
        .filter(|name| *name != user && name.len() <= 64);
    Ok(before.map_or_else(
        || format!("{user}@{host}"),
        |before| format!("{user}@{host} (sudo by {before})"),
    ))
}

fn span(text: &str) -> Result<SignedDuration, jiff::Error> {
    text.parse()
}

/// Makes a token with every permission.
///
/// # Errors
/// When the database is away or the name is taken.
pub(crate) async fn token(
    pool: &PgPool,
    keys: Option<&Keys>,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Secret> {
    let minted = tokens::mint(keys.map(|keys| &keys.tokens));
    let token = db::tokens::NewToken {
        id: minted.id,
        name: name.to_owned(),
        mac: minted.mac,
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
pub(crate) async fn password(
    pool: &PgPool,
    user: &str,
    password: Secret,
    now: Timestamp,
) -> anyhow::Result<()> {
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
