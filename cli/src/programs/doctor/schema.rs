//! Migrations: the schema has the version of the program.

use std::collections::BTreeMap;

use super::{Found, Host, database};

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let pool = match database::connect(host).await {
        Ok(pool) => pool,
        // The database check reports the cause.
        Err(_) => {
            return vec![Found::unknown(
                "the database cannot be looked into",
                "see the check `database`",
            )];
        }
    };
    let ran: Result<Vec<(i64, Vec<u8>)>, sqlx::Error> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success")
            .fetch_all(&pool)
            .await;
    let migrate = "run `muster migrate` of this version, with the database's URL";
    let ran: BTreeMap<i64, Vec<u8>> = match ran {
        Ok(rows) => rows.into_iter().collect(),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => {
            return vec![Found::fail("the database has no schema yet", migrate)];
        }
        Err(error) => {
            return vec![Found::unknown(
                format!("the schema cannot be read: {error}"),
                "look into the database's log",
            )];
        }
    };
    let ours: BTreeMap<i64, &[u8]> = muster_server::schema::MIGRATOR
        .iter()
        .map(|migration| (migration.version, migration.checksum.as_ref()))
        .collect();
    let missing = ours
        .keys()
        .filter(|version| !ran.contains_key(version))
        .count();
    let changed: Vec<String> = ours
        .iter()
        .filter(|(version, checksum)| ran.get(version).is_some_and(|ran| ran != *checksum))
        .map(|(version, _)| version.to_string())
        .collect();
    let newer = ran
        .keys()
        .filter(|version| !ours.contains_key(version))
        .count();
    vec![match (changed.is_empty(), missing, newer) {
        (false, ..) => Found::fail(
            format!(
                "migrations {} ran in another form than this version has",
                changed.join(", ")
            ),
            "run the version of Muster that wrote this database, or restore a matching backup",
        ),
        (true, 1.., _) => Found::fail(format!("{missing} migrations have not run"), migrate),
        (true, 0, 1..) => Found::fail(
            format!("the schema is newer than this version by {newer} migrations"),
            "install the version of Muster that the other replicas run",
        ),
        (true, 0, 0) => Found::ok(format!("all {} migrations have run", ours.len())),
    }]
}
