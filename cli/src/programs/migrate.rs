//! Migrates the schema to this version. Repeated and concurrent runs are safe: sqlx holds an
//! advisory lock.

use muster_server::db::primary::Servers;
use sqlx::PgPool;

/// Number of connections of one replica.
pub(crate) const CONNECTIONS: u32 = 24;

/// The address of the database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Database {
    /// Database URL, such as `postgres://muster@db/muster` or
    /// `postgresql:///muster?host=/run/postgresql`. Several servers, of which a single one takes
    /// writes: `postgres://muster@db1,db2/muster`
    #[arg(long, env = "MUSTER_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
}

impl Database {
    /// Connects to the server taking writes.
    ///
    /// # Errors
    /// When no server takes writes within ten seconds.
    pub(crate) async fn connect(&self) -> anyhow::Result<PgPool> {
        self.servers()?.connect(CONNECTIONS).await
    }

    /// Returns the servers named by the URL.
    ///
    /// # Errors
    /// When the URL is not a Postgres URL.
    pub(crate) fn servers(&self) -> anyhow::Result<Servers> {
        Servers::parse(&self.database_url)
    }
}

/// Runs all outstanding migrations.
///
/// # Errors
/// When the database is unreachable, or an applied migration was changed afterwards.
pub(crate) async fn run(database: &Database) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let migrated = muster_server::schema::migrate(&pool)
        .await
        .map_err(|error| anyhow::anyhow!("{}: {error}", muster_server::schema::explain(&error)))?;
    match migrated.newer {
        0 => print_line!("the schema is up to date"),
        newer => print_line!("the schema is newer than this version by {newer} migrations"),
    }
    Ok(())
}
