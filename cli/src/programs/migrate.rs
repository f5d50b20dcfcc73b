//! Brings the schema up to this version. Safe to run twice and concurrently: sqlx holds an advisory lock.

use anyhow::Context;
use sqlx::PgPool;

/// Where the database is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Database {
    /// Such as `postgres://muster@db/muster`, or `postgresql:///muster?host=/run/postgresql`.
    #[arg(long, env = "MUSTER_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
}

impl Database {
    /// Connects.
    ///
    /// # Errors
    /// When the database cannot be reached in ten seconds.
    pub(crate) async fn connect(&self) -> anyhow::Result<PgPool> {
        sqlx::postgres::PgPoolOptions::new()
            .max_connections(24)
            .acquire_timeout(std::time::Duration::from_secs(10))
            .connect(&self.database_url)
            .await
            .context("the database cannot be reached; check --database-url")
    }
}

/// Runs every migration that has not run.
///
/// # Errors
/// When the database is away, or a migration that ran was changed since.
pub(crate) async fn run(database: &Database) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    muster_server::MIGRATOR.run(&pool).await.context("migrate the schema")?;
    println!("the schema is up to date");
    Ok(())
}
