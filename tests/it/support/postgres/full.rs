//! A server whose database lies on a small disk: a tmpfs that only its own processes see, and that goes with them.

use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgPool};

use super::{Running, TEMPLATE, connect, copy, options, run_under, template};

/// All of it fits into memory: what is read needs no room on the disk.
const SETTINGS: [&str; 5] = [
    "listen_addresses=",
    "fsync=off",
    "shared_buffers=128MB",
    "max_connections=40",
    "autovacuum=off",
];
/// Where the server's processes see the disk, and nobody else does.
const DISK: &str = "/mnt";
/// Mounts it there for the owner of the first argument, and goes on with the others.
const MOUNT: &str = r#"mount -t tmpfs -o size=32m,mode=0700,uid="$(stat -c %u "$1")" muster-full "$0" && shift && exec "$@""#;

/// The server, and a migrated database on the small disk.
pub(crate) struct Full {
    pub(crate) pool: PgPool,
    _running: Running,
}

impl Full {
    pub(crate) async fn start() -> Self {
        let running = std::thread::spawn(start_here).join().unwrap();
        let mut admin = connect(&running.socket_dir, "postgres").await.unwrap();
        admin
            .execute(sqlx::AssertSqlSafe(format!(
                "CREATE TABLESPACE small LOCATION '{DISK}'"
            )))
            .await
            .unwrap();
        let create = format!("CREATE DATABASE test TEMPLATE {TEMPLATE} TABLESPACE small");
        admin.execute(sqlx::AssertSqlSafe(create)).await.unwrap();
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .connect_with(options(&running.socket_dir, "test"));
        Self {
            pool: pool.await.unwrap(),
            _running: running,
        }
    }

    /// Writes until there is no room for one more page.
    pub(crate) async fn fill(&self) {
        let mut conn = self.pool.acquire().await.unwrap();
        conn.execute(
            "CREATE TABLE filler (page text); ALTER TABLE filler ALTER page SET STORAGE PLAIN",
        )
        .await
        .unwrap();
        for rows in [64, 1] {
            let insert = format!(
                "INSERT INTO filler SELECT repeat('x', 8000) FROM generate_series(1, {rows})"
            );
            let mut full = None;
            for _ in 0..1000 {
                if let Err(error) = conn.execute(sqlx::AssertSqlSafe(insert.clone())).await {
                    full = Some(error);
                    break;
                }
            }
            let full = full.expect("500 MiB do not fit into 32");
            assert_eq!(
                full.as_database_error().unwrap().code().as_deref(),
                Some("53100"),
                "{full}"
            );
        }
    }

    pub(crate) async fn make_room(&self) {
        self.pool.execute("DROP TABLE filler").await.unwrap();
    }
}

fn start_here() -> Running {
    let dir = tempfile::Builder::new()
        .prefix("muster-pg-")
        .tempdir()
        .unwrap()
        .keep();
    copy(&template(), &dir.join("data"));
    let owned = dir.display().to_string();
    let alone = [
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-c",
        MOUNT,
        DISK,
        &owned,
    ];
    run_under(&alone, &dir, &SETTINGS, "postgres")
}
