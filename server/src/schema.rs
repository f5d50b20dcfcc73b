//! The schema: migrations, and databases already migrated by a newer version.

use sqlx::PgPool;
use sqlx::migrate::{Migrate as _, MigrateError, Migrator};

/// The migrations of this version.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// The schema after a run of the migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Count of applied migrations unknown to this version. During a rolling upgrade a newer
    /// replica migrates first. The former version works with the newer schema until the upgrade
    /// ends.
    pub newer: usize,
}

/// Applies every pending migration. Migrations of a newer version stay unchanged.
///
/// # Errors
///
/// When a migration fails, or an applied migration differs from this version's.
pub async fn migrate(pool: &PgPool) -> Result<Migrated, MigrateError> {
    let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
    migrator.set_ignore_missing(true);
    migrator.run(pool).await?;
    let mut conn = pool.acquire().await?;
    let applied = conn.list_applied_migrations("_sqlx_migrations").await?;
    let newer = applied
        .iter()
        .filter(|migration| !MIGRATOR.version_exists(migration.version))
        .count();
    Ok(Migrated { newer })
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
