//! The database: reachable, takes writes, recent enough, durable, with room for a replica's
//! connections.

use muster_server::db::primary::Servers;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::{Found, Host};
use crate::programs::migrate::CONNECTIONS;

/// The version used in tests. Older versions lack required functions.
const OLDEST: i32 = 150_000;

/// Connects as the server would, with a single connection.
///
/// # Errors
/// The finding for the operator.
pub(super) async fn connect(host: &Host) -> Result<PgPool, Found> {
    host.database
        .get_or_init(|| try_connect(host))
        .await
        .clone()
}

async fn try_connect(host: &Host) -> Result<PgPool, Found> {
    let Some(url) = &host.args.database_url else {
        return Err(Found::unknown(
            "no database was named",
            "set --database-url or MUSTER_DATABASE_URL as for the server",
        ));
    };
    let wrong = |error: anyhow::Error| {
        Found::fail(
            format!("the database cannot be used: {error:#}"),
            "start Postgres, and check host, port, user and pg_hba.conf against --database-url; `psql URL` tries the same",
        )
    };
    Servers::parse(url)
        .map_err(wrong)?
        .connect(1)
        .await
        .map_err(wrong)
}

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let pool = match connect(host).await {
        Ok(pool) => pool,
        Err(found) => return vec![found],
    };
    let looked = async { look(&mut *pool.acquire().await?).await };
    match looked.await {
        Ok(found) => found,
        Err(error) => vec![Found::fail(
            format!("the database does not answer: {error}"),
            "look into its log",
        )],
    }
}

async fn look(conn: &mut PgConnection) -> sqlx::Result<Vec<Found>> {
    conn.ping().await?;
    let setting = |name: &'static str| {
        sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(name)
    };
    let version: i32 = setting("server_version_num")
        .fetch_one(&mut *conn)
        .await?
        .parse()
        .unwrap_or_default();
    let mut found = vec![match version {
        OLDEST.. => Found::ok(format!(
            "Postgres {}.{} takes writes",
            version / 10_000,
            version % 10_000
        )),
        _ => Found::fail(
            format!("Postgres {} is older than 15", version / 10_000),
            "upgrade it: Muster is tested on 15 and newer",
        ),
    }];
    for (name, why) in [
        ("fsync", "a crash of its machine may ruin the database"),
        (
            "synchronous_commit",
            "a crash loses writes already confirmed to clients",
        ),
        ("full_page_writes", "a crash may leave torn pages"),
    ] {
        if setting(name).fetch_one(&mut *conn).await? == "off" {
            found.push(Found::fail(
                format!("{name} is off: {why}"),
                format!("set {name} = on in postgresql.conf"),
            ));
        }
    }
    let most: u32 = setting("max_connections")
        .fetch_one(&mut *conn)
        .await?
        .parse()
        .unwrap_or_default();
    let used: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
    )
    .fetch_one(&mut *conn)
    .await?;
    found.push(match most >= CONNECTIONS + 10 {
        true => Found::ok(format!("{used} of {most} connections are used")),
        false => Found::fail(
            format!(
                "the database allows {most} connections, and one replica takes up to {CONNECTIONS}"
            ),
            format!(
                "set max_connections to at least {} for each replica, and restart Postgres",
                CONNECTIONS + 10
            ),
        ),
    });
    Ok(found)
}
