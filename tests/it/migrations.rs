//! `muster migrate` is run twice, by several at once, and is killed: the schema is whole or not there.

use std::time::{Duration, Instant};

use muster_server::schema::{self, MIGRATOR, Migrated};
use sqlx::{Connection as _, Executor as _, PgPool};

use crate::support::postgres;

async fn applied(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations WHERE success")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn several_at_once_and_again_migrate_once() {
    let pool = postgres::empty_database().await;
    let runs = (0..4).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move { MIGRATOR.run(&pool).await })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap().unwrap();
    }
    let count = i64::try_from(MIGRATOR.iter().count()).unwrap();
    assert_eq!(applied(&pool).await, count);
    MIGRATOR.run(&pool).await.unwrap();
    assert_eq!(applied(&pool).await, count);
}

/// A rolling upgrade migrates first: a replica of the version before starts again on the newer schema.
#[tokio::test]
async fn a_newer_schema_is_served_and_a_changed_migration_is_refused() {
    let pool = postgres::empty_database().await;
    let newer = |migrated: Result<Migrated, _>| migrated.map(|migrated| migrated.newer).ok();
    assert_eq!(newer(schema::migrate(&pool).await), Some(0));
    let add =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
               VALUES (900000, 'of a newer version', true, '', 0)";
    pool.execute(add).await.unwrap();
    assert_eq!(newer(schema::migrate(&pool).await), Some(1));
    pool.execute("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1")
        .await
        .unwrap();
    let error = schema::migrate(&pool).await.unwrap_err();
    assert!(schema::explain(&error).starts_with("migration 1 ran in another form"));
}

/// A trigger stands for the other transaction: a sequence counts the runs, because the count of a
/// sequence outlasts a rollback.
#[tokio::test]
async fn a_deadlocked_migration_is_run_again_a_few_times() {
    let trigger = "CREATE FUNCTION deadlock() RETURNS event_trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('deadlocks') < 5 THEN
                RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01';
            END IF;
        END $$;
        CREATE EVENT TRIGGER deadlock ON ddl_command_start WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION deadlock()";
    let whole = i64::try_from(MIGRATOR.iter().count()).unwrap();
    for (sequence, is_migrated) in [
        ("CREATE SEQUENCE deadlocks", true),
        ("CREATE SEQUENCE deadlocks MINVALUE 0 START 0", false),
    ] {
        let pool = postgres::empty_database().await;
        for sql in [sequence, trigger] {
            sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        }
        let migrated = schema::migrate(&pool).await;
        assert_eq!(migrated.is_ok(), is_migrated, "{migrated:?}");
        assert_eq!(applied(&pool).await == whole, is_migrated);
    }
}

/// Stopped at a table that somebody else is just making, with the ones before it made; then its connection is killed.
#[tokio::test]
async fn a_killed_migration_leaves_no_trace_and_the_next_run_migrates() {
    let pool = postgres::empty_database().await;
    let mut other = pool.acquire().await.unwrap();
    let mut in_the_way = other.begin().await.unwrap();
    in_the_way
        .execute("CREATE TABLE gate_results (id integer)")
        .await
        .unwrap();
    let migrating = tokio::spawn({
        let pool = pool.clone();
        async move { MIGRATOR.run(&pool).await }
    });
    let waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CREATE TABLE objects%'";
    let deadline = Instant::now() + Duration::from_secs(30);
    while sqlx::query(waiting)
        .fetch_all(&pool)
        .await
        .unwrap()
        .is_empty()
    {
        assert!(Instant::now() < deadline, "the migration is not held up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(migrating.await.unwrap().is_err());
    in_the_way.rollback().await.unwrap();
    let tables: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_sqlx_migrations'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!((tables, applied(&pool).await), (0, 0), "half a schema");
    MIGRATOR.run(&pool).await.unwrap();
    assert_eq!(
        applied(&pool).await,
        i64::try_from(MIGRATOR.iter().count()).unwrap()
    );
}

/// Lists, pages and turns ask for the jobs of a node by these words. Over a year's jobs nobody waits for a look at all of them.
#[tokio::test]
async fn the_jobs_of_a_node_are_found_by_an_index() {
    let pool = postgres::database().await;
    let mut conn = pool.acquire().await.unwrap();
    conn.execute("SET enable_seqscan = off").await.unwrap();
    let node = "'00000000-0000-7000-8000-000000000000'::uuid";
    for wanted in ["", " AND visit = 1", " AND visit = 1 AND NOT superseded"] {
        let explain = format!("EXPLAIN SELECT * FROM jobs WHERE node_id = {node}{wanted}");
        let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(explain))
            .fetch_all(&mut *conn)
            .await
            .unwrap();
        let plan = plan.join("\n");
        assert!(
            plan.contains("jobs_step_key") && plan.contains("node_id = "),
            "{wanted}: {plan}"
        );
    }
}
