//! The schema: its migrations, and databases that a newer version has migrated.

use sqlx::PgPool;
use sqlx::migrate::{Migrate as _, MigrateError, Migrator};

/// The migrations of this version.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// The schema after a run of the migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Migrations that ran before, and that this version does not have. During a rolling upgrade a
    /// newer replica migrates first: the former version serves its schema until the upgrade ends.
    pub newer: usize,
}

/// Runs every migration that has not run. Migrations of a newer version stay as they are.
///
/// # Errors
/// When a migration fails, or ran in another form than this version has.
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

/// The way out of a failed migration, for a person.
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
