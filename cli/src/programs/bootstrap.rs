//! Creates the first administrator and the first token directly in the database. Access to the
//! database replaces a permission of the API.

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

/// Lifetime of a token created here.
const TOKEN_LASTS: SignedDuration = SignedDuration::from_hours(24 * 90);

/// The object to create.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum AdminVerb {
    /// Create an API token with every permission, valid for 90 days, and print the token
    Token {
        #[command(flatten)]
        database: Database,
        /// Name of the token in events
        #[arg(long, default_value = "bootstrap")]
        name: String,
        /// The server's master key. Without the key, the token is stored as a plain hash until its
        /// first use
        #[arg(long, env = "MUSTER_KEY_FILE")]
        key_file: Option<PathBuf>,
    },
    /// Protect tokens by a new key. A token changes to the new key on its next use. Requires the
    /// database and the master key
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
        /// Refuse tokens unused since the last rotation
        #[arg(long)]
        forget: bool,
    },
    /// Allow the local administrator to sign in for a limited time beside an identity provider.
    /// Requires the database and the master key
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
        /// Duration, such as `1h` or `30m`; at most twelve hours
        #[arg(long = "for", default_value = "1h", value_parser = span)]
        lasts: SignedDuration,
        /// Reason, recorded in the history
        #[arg(long)]
        reason: String,
    },
    /// End the local administrator's access early
    Disarm {
        #[command(flatten)]
        database: Database,
    },
    /// Set the password of a local administrator, read from standard input
    Password {
        #[command(flatten)]
        database: Database,
        /// Name of the user
        #[arg(long, default_value = "admin")]
        user: String,
    },
}

/// Executes the subcommand.
///
/// # Errors
/// When the database is unreachable or the name is taken.
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
            print_line!("{}", token.reveal());
            crate::printing::ensure_read("the token")?;
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
            print_line!("{user} can sign in");
        }
    }
    Ok(())
}

/// Disarms the local administrator, by the database's clock.
async fn disarm(pool: &PgPool) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    let now = db::monitoring::read_clock(&mut tx).await?;
    let was = break_glass::disarm(&mut tx, &whoami()?, now).await?;
    tx.commit().await?;
    print_line!(
        "{}",
        if was {
            "the local administrator is disarmed"
        } else {
            "it was not armed"
        }
    );
    Ok(())
}

/// Arms the local administrator, by the database's clock.
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
    // A seal made with a wrong key would be rejected by every server.
    let keys = Keys::load(key, pool, &Clock::System).await?;
    let mut tx = pool.begin().await?;
    let now = db::monitoring::read_clock(&mut tx).await?;
    let armed = Armed {
        armed_at: now,
        until: now + lasts,
        by: whoami()?,
        reason: reason.to_owned(),
    };
    break_glass::arm(&mut tx, &keys.master, &armed).await?;
    tx.commit().await?;
    print_line!(
        "the local administrator may sign in until {:.0}",
        armed.until
    );
    Ok(())
}

/// Switches to a new key for tokens.
async fn rotate(pool: &PgPool, key_file: &Path, forget: Forget) -> anyhow::Result<()> {
    let master = MasterKey::load(key_file, Create::Never)?;
    let mut tx = pool.begin().await?;
    let now = db::monitoring::read_clock(&mut tx).await?;
    let forgotten = keys::rotate(&master, &mut tx, forget, now).await?;
    let summary = format!(
        "the token key is changed; {forgotten} tokens unused since the last rotation are refused"
    );
    db::events::insert(
        &mut tx,
        NewEvent::new(now, whoami()?, "token.key_rotated", summary),
    )
    .await?;
    tx.commit().await?;
    print_line!(
        "the token key is changed; {forgotten} tokens unused since the last rotation are refused"
    );
    Ok(())
}

/// `USER@HOST` of this shell, and the user before `sudo`.
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

/// Creates a token with every permission.
///
/// # Errors
/// When the database is unreachable or the name is taken.
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

/// Creates a local administrator, or changes the password of an existing one, which ends all
/// sessions.
///
/// # Errors
/// When the database is unreachable.
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
