//! A database for each test, on the Postgres server shared by all test processes of a run (`shared`). The
//! server's files are a copy of a cluster, made and migrated once for each schema. A test that kills,
//! promotes or fills a server starts a server for itself (`cluster`, `full`). A small shell stops such a
//! server and removes the files when the test process ends, also after a kill.

pub(crate) mod cluster; // Two servers, one a copy of the other
pub(crate) mod full; // A server on a small disk
mod shared; // The server that all test processes share

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use muster_core::values::Digest;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Of the server that migrates the template.
const SETTINGS: [&str; 5] = [
    "listen_addresses=",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "jit=off",
];
/// A pool takes the connections in turn, and each connection parses and plans every statement anew.
const CONNECTIONS: u32 = 4;
const TEMPLATE: &str = "muster_template";
/// Reads until the test process is gone, then stops the server and removes the files.
const KEEPER: &str = r#"trap '' INT TERM HUP
dir=$1; shift
"$@" &
server=$!
read -r _
kill -INT "$server"
wait "$server"
rm -rf "$dir""#;

/// A running server, kept by the keeper's pipe, which closes with the value.
struct Running {
    socket_dir: PathBuf,
    _keeper: Child,
}

static RUNNING: OnceLock<shared::Shared> = OnceLock::new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A migrated, empty database for the caller alone.
pub(crate) async fn database() -> PgPool {
    database_like(TEMPLATE).await
}

/// A database without a table, for the caller alone.
pub(crate) async fn empty_database() -> PgPool {
    database_like("template1").await
}

fn running() -> &'static shared::Shared {
    RUNNING.get_or_init(|| {
        std::thread::spawn(|| shared::join(&template()))
            .join()
            .expect("the thread that starts Postgres does not panic")
    })
}

async fn database_like(template: &str) -> PgPool {
    let running = running();
    let name = shared::database_name(DATABASES.fetch_add(1, Ordering::Relaxed));
    let mut admin = connect(&running.socket_dir, "postgres")
        .await
        .expect("Postgres was seen to answer");
    admin
        .execute(sqlx::AssertSqlSafe(format!(
            "CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
        )))
        .await
        .unwrap();
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(20))
        .test_before_acquire(false)
        .connect_with(options(&running.socket_dir, &name))
        .await
        .unwrap()
}

/// A backup of a database, made by pg_dump.
pub(crate) struct Backup(Vec<u8>);

impl Backup {
    /// As SQL.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn of(pool: &PgPool) -> Self {
        let name = pool.connect_options().get_database().unwrap().to_owned();
        let output = Command::new(binary("pg_dump"))
            .args(client(&name))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "pg_dump: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self(output.stdout)
    }

    /// The backup in a database of its own.
    pub(crate) async fn restore(&self) -> PgPool {
        let pool = empty_database().await;
        let name = pool.connect_options().get_database().unwrap().to_owned();
        let dump = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(dump.path(), &self.0).unwrap();
        let mut psql = Command::new(binary("psql"));
        psql.args(client(&name))
            .args(["-q", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(dump.path());
        let output = psql.output().unwrap();
        assert!(
            output.status.success(),
            "psql: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        pool
    }
}

/// The URL of a database, for a program of Muster.
pub(crate) fn url(pool: &PgPool) -> String {
    let name = pool.connect_options().get_database().unwrap().to_owned();
    let socket_dir = running().socket_dir.display();
    format!("postgresql:///{name}?host={socket_dir}&user=muster")
}

/// How a program of Postgres reaches a database.
fn client(database: &str) -> [String; 6] {
    let socket_dir = running().socket_dir.display().to_string();
    [
        "-h".into(),
        socket_dir,
        "-U".into(),
        "muster".into(),
        "-d".into(),
        database.into(),
    ]
}

fn options(socket_dir: &Path, database: &str) -> PgConnectOptions {
    PgConnectOptions::new()
        .socket(socket_dir)
        .username("muster")
        .database(database)
        .disable_statement_logging()
}

async fn connect(socket_dir: &Path, database: &str) -> sqlx::Result<PgConnection> {
    PgConnection::connect_with(&options(socket_dir, database)).await
}

/// Starts the server of a directory, under a keeper, and waits until the server answers for a database.
fn run(dir: &Path, settings: &[&str], database: &str) -> Running {
    run_under(&[], dir, settings, database)
}

/// Like `run`, with keeper and server started by another program.
fn run_under(by: &[&str], dir: &Path, settings: &[&str], database: &str) -> Running {
    own(dir);
    let log = File::create(dir.join("postgres.log")).unwrap();
    let data = dir.join("data");
    let mut server = unprivileged("postgres");
    server.push("-D".into());
    server.push(data.display().to_string());
    server.push("-k".into());
    server.push(dir.display().to_string());
    for setting in settings {
        server.extend(["-c".to_owned(), (*setting).to_owned()]);
    }
    let mut keeper = by.to_vec();
    keeper.extend(["sh", "-c", KEEPER, "keeper"]);
    let keeper = Command::new(keeper[0])
        .args(&keeper[1..])
        .arg(dir)
        .args(server)
        .stdin(Stdio::piped())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .current_dir("/")
        .spawn()
        .unwrap();
    wait_for_answer(dir, database);
    Running {
        socket_dir: dir.to_path_buf(),
        _keeper: keeper,
    }
}

/// Waits until the server of a directory answers for a database. The directory also holds the log.
fn wait_for_answer(dir: &Path, database: &str) {
    let deadline = Instant::now() + START_TIMEOUT;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    while let Err(error) = runtime.block_on(connect(dir, database)) {
        let mut text = String::new();
        File::open(dir.join("postgres.log"))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(
            Instant::now() < deadline,
            "Postgres does not answer: {error}\n{text}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A stopped cluster with the migrated template database; made by the first test process that needs it.
fn template() -> PathBuf {
    let schema: Vec<u8> = muster_server::schema::MIGRATOR
        .iter()
        .flat_map(|migration| migration.checksum.to_vec())
        .collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("pg-{}", &Digest::of(&schema).hex()[..16]));
    let lock = File::create(place.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !place.exists() {
        // In a temporary directory: the path of a target directory may be too long for a socket.
        let work = tempfile::Builder::new()
            .prefix("muster-pg-")
            .tempdir()
            .unwrap()
            .keep();
        own(&work);
        let mut init = unprivileged("initdb");
        init.extend(
            [
                "-D",
                "data",
                "-A",
                "trust",
                "-U",
                "muster",
                "-E",
                "UTF8",
                "--no-sync",
            ]
            .map(str::to_owned),
        );
        init.extend(["--locale".to_owned(), "C.UTF-8".to_owned()]);
        let output = Command::new(&init[0])
            .args(&init[1..])
            .current_dir(&work)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let running = run(&work, &SETTINGS, "postgres");
        migrate(&running.socket_dir);
        let data = work.join("data");
        let mut stop = unprivileged("pg_ctl");
        stop.extend(["stop", "-m", "fast", "-D"].map(str::to_owned));
        stop.push(data.display().to_string());
        let output = Command::new(&stop[0])
            .args(&stop[1..])
            .current_dir("/")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "pg_ctl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let partial = place.with_extension("partial");
        std::fs::remove_dir_all(&partial).ok();
        copy(&data, &partial);
        std::fs::rename(&partial, &place).unwrap();
    }
    place
}

fn migrate(socket_dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut admin = connect(socket_dir, "postgres").await.unwrap();
        admin
            .execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {TEMPLATE}")))
            .await
            .unwrap();
        let mut conn = connect(socket_dir, TEMPLATE).await.unwrap();
        muster_server::schema::MIGRATOR
            .run(&mut conn)
            .await
            .unwrap();
        conn.close().await.unwrap();
    });
}

/// `cp -a`: keeps owner and modes, and shares blocks where the file system can.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success(), "cp {} {}", from.display(), to.display());
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|itself| itself.uid() == 0)
}

/// Gives a directory to the user that Postgres runs as.
fn own(dir: &Path) {
    if is_root() {
        let status = Command::new("chown")
            .arg("postgres:")
            .arg(dir)
            .status()
            .unwrap();
        assert!(status.success(), "chown {}", dir.display());
    }
}

/// The arguments that start a program of Postgres. As root, the program runs as the user postgres.
fn unprivileged(program: &str) -> Vec<String> {
    let mut argv: Vec<String> = Vec::new();
    if is_root() {
        argv.extend(
            [
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
            ]
            .map(str::to_owned),
        );
    }
    argv.push(binary(program));
    argv
}

/// The path of a program of Postgres: Debian keeps the programs out of the PATH.
fn binary(program: &str) -> String {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin").join(program))
        .filter(|path| path.exists())
        .collect();
    versions.sort();
    versions
        .pop()
        .map_or_else(|| program.to_owned(), |path| path.display().to_string())
}
