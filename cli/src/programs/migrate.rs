//! Brings the schema up to this version. Safe to run twice and concurrently: sqlx holds an advisory lock.

use anyhow::Context;
use muster_server::db::primary::Servers;
use sqlx::PgPool;

/// Of one replica.
pub(crate) const CONNECTIONS: u32 = 24;

/// Where the database is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Database {
    /// Such as `postgres://muster@db/muster`, or `postgresql:///muster?host=/run/postgresql`. Several servers, one of which takes writes:
    /// `postgres://muster@db1,db2/muster`.
    #[arg(long, env = "MUSTER_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
}

impl Database {
    /// Connects to the server that takes writes.
    ///
    /// # Errors
    /// When there is none for ten seconds.
    pub(crate) async fn connect(&self) -> anyhow::Result<PgPool> {
        self.servers()?.connect(CONNECTIONS).await
    }

    /// The servers the URL names.
    ///
    /// # Errors
    /// When it is no URL of Postgres.
    pub(crate) fn servers(&self) -> anyhow::Result<Servers> {
        Servers::parse(&self.database_url)
    }
}

/// Runs every migration that has not run.
///
/// # Errors
/// When the database is away, or a migration that ran was changed since.
pub(crate) async fn run(database: &Database) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let migrated = muster_server::schema::migrate(&pool)
        .await
        .map_err(|error| anyhow::anyhow!("{}: {error}", muster_server::schema::explain(&error)))?;
    match migrated.newer {
        0 => println!("the schema is up to date"),
        newer => println!("the schema is newer than this version by {newer} migrations"),
    }
    Ok(())
}
