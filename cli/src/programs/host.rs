//! The host of an act beside the database: database, master key, and the name for the history.

use std::path::PathBuf;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_server::db;
use muster_server::keys::{Create, Keys, MasterKey};
use sqlx::{PgPool, Postgres, Transaction};

use super::migrate::Database;

/// Database and master key. An act of an administrator on the host needs both.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HostArgs {
    #[command(flatten)]
    pub database: Database,
    /// The server's master key.
    #[arg(
        long,
        env = "MUSTER_KEY_FILE",
        default_value = "/etc/muster/master.key"
    )]
    pub key_file: PathBuf,
    /// The master key before, during a rotation.
    #[arg(long, env = "MUSTER_FORMER_KEY_FILE", value_name = "FILE")]
    pub former_key_file: Option<PathBuf>,
}

/// An opened host.
pub(crate) struct Host {
    pool: PgPool,
    pub(crate) keys: Keys,
    /// `host:USER@HOST`, the actor of events.
    pub(crate) actor: String,
}

/// A transaction, with the database's time at its start.
pub(crate) struct Act {
    pub(crate) tx: Transaction<'static, Postgres>,
    pub(crate) now: Timestamp,
}

impl HostArgs {
    /// Connects to the database, and checks that the master key is the installation's.
    ///
    /// # Errors
    /// When the database is unreachable, or the key file is missing or of another installation.
    pub(crate) async fn open(&self) -> anyhow::Result<Host> {
        let master = self.load()?;
        Host::open(self.database.connect().await?, master).await
    }

    /// Reads the key files.
    ///
    /// # Errors
    /// When a key file cannot be read.
    pub(crate) fn load(&self) -> anyhow::Result<MasterKey> {
        MasterKey::load_both(&self.key_file, self.former_key_file.as_deref(), Create::Never).context(
            "an act on the host needs the server's master key: run the command as the server's user, or name the file with --key-file",
        )
    }
}

impl Host {
    /// Opens a host with a connected database.
    ///
    /// # Errors
    /// When the master key is of another installation.
    pub(crate) async fn open(pool: PgPool, master: MasterKey) -> anyhow::Result<Self> {
        // A key of another installation is refused here: the stored keys do not open.
        let keys = Keys::load(master, &pool, &Clock::System).await?;
        let actor = format!("host:{}", whoami()?);
        Ok(Self { pool, keys, actor })
    }

    /// The database, for acts of several transactions.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Begins the transaction of an act.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn begin(&self) -> anyhow::Result<Act> {
        let mut tx = self.pool.begin().await?;
        let now = db::monitoring::read_clock(&mut tx).await?;
        Ok(Act { tx, now })
    }
}

/// `USER@HOST` of this shell, and the user before `sudo`.
pub(crate) fn whoami() -> anyhow::Result<String> {
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

/// Parses a duration of an option.
pub(super) fn span(text: &str) -> Result<SignedDuration, jiff::Error> {
    text.parse()
}
