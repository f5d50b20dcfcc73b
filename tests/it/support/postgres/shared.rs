//! The Postgres server shared by all test processes of a run. The first process starts the server, from a
//! copy of the migrated cluster. Each process holds a shared lock on the file `users` until the end of the
//! process. The keeper, a small shell, stops the server once no process held the lock for ten seconds. A
//! database is named by the pid of the process; the next process drops the databases of dead processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use muster_core::values::Digest;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::{TEMPLATE, connect, copy, own, unprivileged, wait_for_answer};

/// Each statement is planned once for each connection, not six times: a test's connections are short-lived.
const SETTINGS: [&str; 10] = [
    "listen_addresses=",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "shared_buffers=256MB",
    "max_connections=600",
    "autovacuum=off",
    "jit=off",
    "plan_cache_mode=force_generic_plan",
    "max_wal_size=4GB",
];
/// Stops the server and removes the files after two looks, five seconds apart, without a holder of the lock.
const KEEPER: &str = r#"trap '' INT TERM HUP
dir=$1; exec 9<"$2"; shift 2
"$@" 9<&- &
server=$!
idle=0
while kill -0 "$server" 2>/dev/null; do
  sleep 5
  flock -xn 9 || { idle=0; continue; }
  [ $idle = 0 ] || break
  idle=1
  flock -u 9
done
kill -INT "$server"
wait "$server"
rm -rf "$dir""#;

/// The use of the server by a test process.
pub(super) struct Shared {
    pub(super) socket_dir: PathBuf,
    _users: File,
    /// Of the process that started the server.
    _keeper: Option<Child>,
}

/// Joins the users of the server. Starts the server from the stopped cluster `template`, if none answers.
pub(super) fn join(template: &Path) -> Shared {
    let place = place(template);
    let users = File::create(place.with_extension("users")).unwrap();
    users.lock_shared().unwrap();
    let starting = File::create(place.with_extension("starting")).unwrap();
    starting.lock().unwrap();
    let current = place.with_extension("current");
    let running = std::fs::read_to_string(&current).map(PathBuf::from).ok();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let running = running.filter(|dir| runtime.block_on(connect(dir, "postgres")).is_ok());
    let (socket_dir, keeper) = match running {
        Some(dir) => (dir, None),
        None => {
            let (dir, keeper) = start(template, &place.with_extension("users"));
            std::fs::write(&current, dir.to_str().unwrap()).unwrap();
            (dir, Some(keeper))
        }
    };
    drop(starting);
    runtime.block_on(drop_abandoned(&socket_dir));
    Shared {
        socket_dir,
        _users: users,
        _keeper: keeper,
    }
}

/// Returns the name of a database of the process.
pub(super) fn database_name(number: u32) -> String {
    format!("test_{}_{number}", std::process::id())
}

/// Returns the start of the paths of the checkout's server. In memory, if there is room: a test then waits
/// for no busy disk.
fn place(template: &Path) -> PathBuf {
    let key = &Digest::of(template.as_os_str().as_encoded_bytes()).hex()[..12];
    folder().join(format!("muster-pg-{key}"))
}

fn folder() -> PathBuf {
    const ENOUGH: u64 = 4 << 30;
    let memory = Path::new("/dev/shm");
    let free = nix::sys::statvfs::statvfs(memory)
        .map_or(0, |fs| fs.blocks_available() * fs.fragment_size());
    match free >= ENOUGH {
        true => memory.to_path_buf(),
        false => std::env::temp_dir(),
    }
}

fn start(template: &Path, users: &Path) -> (PathBuf, Child) {
    let dir = tempfile::Builder::new()
        .prefix("muster-pg-")
        .tempdir_in(folder())
        .unwrap()
        .keep();
    copy(template, &dir.join("data"));
    own(&dir);
    let mut server = unprivileged("postgres");
    server.extend(["-D".into(), dir.join("data").display().to_string()]);
    server.extend(["-k".into(), dir.display().to_string()]);
    for setting in SETTINGS {
        server.extend(["-c".to_owned(), setting.to_owned()]);
    }
    let log = File::create(dir.join("postgres.log")).unwrap();
    // A new session: the process group of a test is killed when the test exceeds the deadline.
    let keeper = Command::new("setsid")
        .args(["sh", "-c", KEEPER, "keeper"])
        .args([&dir, users])
        .args(server)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .current_dir("/")
        .spawn()
        .unwrap();
    // The first connection writes Postgres's cache of the catalogue, which is copied with the database.
    wait_for_answer(&dir, TEMPLATE);
    (dir, keeper)
}

/// Drops the databases of dead processes, and of an earlier process with the same pid.
async fn drop_abandoned(socket_dir: &Path) {
    let mut admin = connect(socket_dir, "postgres").await.unwrap();
    let names: Vec<String> =
        sqlx::query_scalar("SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'")
            .fetch_all(&mut admin)
            .await
            .unwrap();
    for name in names.iter().filter(|name| is_abandoned(name)) {
        drop_database(&mut admin, name).await;
    }
    admin.close().await.ok();
}

fn is_abandoned(database: &str) -> bool {
    let pid = database.split('_').nth(1).unwrap_or_default();
    pid == std::process::id().to_string() || !Path::new("/proc").join(pid).exists()
}

/// Two processes may drop the same database; the error of the second is ignored.
async fn drop_database(admin: &mut PgConnection, name: &str) {
    let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    admin.execute(sqlx::AssertSqlSafe(statement)).await.ok();
}
