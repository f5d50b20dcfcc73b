//! The schema: migrations, and databases already migrated by a newer version.

use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::{Connection as _, PgPool};

/// The migrations of this version.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// Most runs of the migrations while each run ends in a deadlock.
const RUNS: u32 = 5;
/// SQLSTATE of a deadlock.
const DEADLOCK: &str = "40P01";

/// The schema after a run of the migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Count of applied migrations unknown to this version. During a rolling upgrade a newer
    /// replica migrates first. The former version works with the newer schema until the upgrade
    /// ends.
    pub newer: usize,
}

/// Applies every pending migration. Migrations of a newer version stay unchanged. A migration locks
/// several tables, and a server of the version before uses the tables in another order. Postgres
/// rolls a deadlocked migration back, so the run is repeated.
///
/// # Errors
///
/// When a migration fails, or an applied migration differs from this version's.
pub async fn migrate(pool: &PgPool) -> Result<Migrated, MigrateError> {
    let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
    migrator.set_ignore_missing(true);
    let mut runs = 1;
    while let Err(error) = run_once(&migrator, pool).await {
        if runs == RUNS || !is_deadlock(&error) {
            return Err(error);
        }
        tracing::warn!(%error, runs, "the migrations met a deadlock with a running server, and run again");
        runs += 1;
    }
    let mut conn = pool.acquire().await?;
    let applied = conn.list_applied_migrations("_sqlx_migrations").await?;
    let newer = applied
        .iter()
        .filter(|migration| !MIGRATOR.version_exists(migration.version))
        .count();
    Ok(Migrated { newer })
}

/// Runs the migrations on a connection of their own. After a failure the connection is closed,
/// because the session still holds the lock of the migrations.
async fn run_once(migrator: &Migrator, pool: &PgPool) -> Result<(), MigrateError> {
    let mut conn = pool.acquire().await?.detach();
    let run = migrator.run(&mut conn).await;
    conn.close().await?;
    run
}

/// Returns whether a migration was rolled back because of a deadlock.
fn is_deadlock(error: &MigrateError) -> bool {
    let (MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) = error else {
        return false;
    };
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(DEADLOCK)
}

/// Returns advice for repairing a failed migration.
pub fn explain(error: &MigrateError) -> String {
    match error {
        MigrateError::VersionMismatch(version) => format!(
            "migration {version} ran in another form than this version has: run the version of \
             Muster that made this database, or restore a backup that fits"
        ),
        MigrateError::Dirty(version) => format!(
            "migration {version} ran in part: restore a backup, or repair the schema by hand"
        ),
        _ => "migrate the schema: `muster doctor` shows what is missing".to_owned(),
    }
}
