//! Tests of a Postgres failover with two real servers and streaming replication. A test kills the
//! primary under load, or replaces the primary without notice.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_server::db::primary::Servers;
use serde_json::json;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::support::fleet;
use crate::support::postgres::cluster::Pair;
use crate::support::server::{Caller, START, Server};

/// The time limit of a wait. A healthy run is much faster, also on a machine with ten parallel
/// tasks.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a server on a pair, as `muster server` does. The URL names both database servers.
async fn serve(first: &Path, second: &Path) -> (Server, Caller, CancellationToken) {
    let url = format!(
        "postgresql:///muster_template?host={},{}&user=muster",
        first.display(),
        second.display()
    );
    let servers = Servers::parse(&url).unwrap();
    let pool = servers.connect(16).await.unwrap();
    let cancel = CancellationToken::new();
    tokio::spawn(servers.follow(pool.clone(), cancel.clone()));
    let server = Server::on(pool, Clock::manual(START.parse::<Timestamp>().unwrap())).await;
    let admin = server.admin().await;
    (server, admin, cancel)
}

/// The stop flag of the writers, and the number of acknowledged writes.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    acknowledged: AtomicUsize,
}

/// Writes racks until the stop. Returns every acknowledged rack with the times of the request and
/// the answer.
async fn write(
    admin: Caller,
    name: &'static str,
    load: Arc<Load>,
) -> Vec<(String, Instant, Instant)> {
    let mut acknowledged = Vec::new();
    let mut number = 0;
    while !load.stop.load(Ordering::Relaxed) {
        let rack = format!("{name}-{number}");
        let asked = Instant::now();
        let reply = admin
            .put(&format!("/v1/racks/{rack}"), &fleet::rack())
            .await;
        match reply.status {
            200 | 201 => {
                acknowledged.push((rack, asked, Instant::now()));
                load.acknowledged.fetch_add(1, Ordering::Relaxed);
                number += 1;
            }
            503 => tokio::time::sleep(Duration::from_millis(50)).await,
            other => panic!("{other}: {}", reply.text),
        }
    }
    acknowledged
}

/// Claims nodes. Every claim has its own key, and the caller repeats a request until the server
/// confirms the claim.
async fn claim(admin: Caller, nodes: std::ops::RangeInclusive<u8>, done: Arc<Mutex<usize>>) {
    for number in nodes {
        let keyed = admin.header("idempotency-key", &format!("claim-{number}"));
        let body = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        loop {
            let reply = keyed.post("/v1/claims", &body).await;
            match reply.status {
                201 => break,
                503 => tokio::time::sleep(Duration::from_millis(50)).await,
                other => panic!("n{number}: {other}: {}", reply.text),
            }
        }
        *done.lock().await += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until(what: &str, mut seen: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !seen().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_acknowledged_write_is_lost_when_the_primary_is_killed() {
    let pair = Arc::new(Pair::start(true));
    let (server, admin, cancel) = serve(&pair.first.dir, &pair.second.dir).await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 60).await;
    let (load, claimed) = (Arc::new(Load::default()), Arc::new(Mutex::new(0)));
    let writers: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| tokio::spawn(write(admin.clone(), name, Arc::clone(&load))))
        .into();
    let claimers: Vec<_> = [1..=20, 21..=40, 41..=60]
        .map(|nodes| tokio::spawn(claim(admin.clone(), nodes, Arc::clone(&claimed))))
        .into();
    until("the load does not begin", async || {
        *claimed.lock().await >= 6
    })
    .await;

    pair.first.kill();
    let killed = Instant::now();
    let promoted = Arc::clone(&pair);
    tokio::task::spawn_blocking(move || promoted.second.promote())
        .await
        .unwrap();
    let promoted = killed.elapsed();
    for claimer in claimers {
        claimer.await.unwrap();
    }
    // Every writer may have a request from before the promotion. A further write begins on the new
    // primary.
    let enough = load.acknowledged.load(Ordering::Relaxed) + writers.len();
    until("writes do not go on", async || {
        load.acknowledged.load(Ordering::Relaxed) > enough
    })
    .await;
    load.stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    // The old primary may have committed a request from before the kill. Only later requests count.
    let back = acknowledged
        .iter()
        .filter(|(_, asked, _)| *asked > killed)
        .map(|(_, _, at)| *at)
        .min()
        .unwrap();
    let before = acknowledged
        .iter()
        .filter(|(_, _, at)| *at <= killed)
        .count();
    println!(
        "killed after {before} acknowledged writes; promoted after {:.2} s, writes back after {:.2} s",
        promoted.as_secs_f64(),
        (back - killed).as_secs_f64()
    );
    assert!(back - killed < PATIENCE);
    let kept: Vec<String> = sqlx::query_scalar("SELECT name FROM objects WHERE kind = 'rack'")
        .fetch_all(&server.app.pool)
        .await
        .unwrap();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|(name, _, _)| !kept.contains(name))
        .collect();
    assert!(
        lost.is_empty(),
        "of {} acknowledged writes these are lost: {lost:?}",
        acknowledged.len()
    );
    // Every claim exists once, although a caller may repeat the request.
    let (claims, operations, nodes): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM claims), (SELECT count(*) FROM operations WHERE kind = 'claim'),
                (SELECT count(*) FROM nodes WHERE epoch = 1)",
    )
    .fetch_one(&server.app.pool)
    .await
    .unwrap();
    assert_eq!((claims, operations, nodes), (60, 60, 60));
    cancel.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_primary_that_was_replaced_leave_the_pool() {
    let pair = Arc::new(Pair::start(true));
    let (server, admin, cancel) = serve(&pair.first.dir, &pair.second.dir).await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    // Postgres ends the idle transaction of a frozen replica, and frees the locks. A statement that
    // waits for the standby has no time limit.
    for (setting, value) in [
        ("idle_in_transaction_session_timeout", "30s"),
        ("statement_timeout", "0"),
    ] {
        let query = "SELECT current_setting($1)";
        let set: String = sqlx::query_scalar(query)
            .bind(setting)
            .fetch_one(&server.app.pool)
            .await
            .unwrap();
        assert_eq!(set, value, "{setting}");
    }
    // Many connections are open. The old primary becomes read-only, and tells every connection.
    let all = (0..16).map(|_| {
        let admin = admin.clone();
        tokio::spawn(async move { admin.get("/v1/sites").await.expect(200) })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let switched = Instant::now();
    pair.first.read_only().await;
    let promoting = Arc::clone(&pair);
    tokio::task::spawn_blocking(move || promoting.second.promote())
        .await
        .unwrap();
    let mut refused = 0;
    until("writes do not come back", async || {
        let status = admin.put("/v1/racks/r1", &fleet::rack()).await.status;
        assert!([200, 201, 503].contains(&status), "{status}");
        refused += usize::from(status == 503);
        status != 503
    })
    .await;
    println!(
        "switched over: writes back after {:.2} s, {refused} refused",
        switched.elapsed().as_secs_f64()
    );
    for _ in 0..40 {
        admin.put("/v1/racks/r1", &fleet::rack()).await.expect(200);
    }
    assert_eq!(
        pair.second
            .count("SELECT count(*) FROM objects WHERE kind = 'rack'")
            .await,
        1
    );
    assert_eq!(
        pair.first
            .count("SELECT count(*) FROM objects WHERE kind = 'rack'")
            .await,
        0
    );

    // The replaced primary comes back and accepts writes, but the timeline of the server is older.
    pair.first.writable().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for number in 2..40 {
        admin
            .put(&format!("/v1/racks/r{number}"), &fleet::rack())
            .await
            .expect(201);
    }
    expect_no_writes_on_the_old_one(&pair, &admin).await;
    drop(server);
    cancel.cancel();
}

/// Checks that the old primary gets no write of Muster, also while the new primary gives no answer.
async fn expect_no_writes_on_the_old_one(pair: &Pair, admin: &Caller) {
    pair.first.leave_standby().await;
    pair.second.kill();
    let killed = Instant::now();
    // Muster checks both database servers several times in five seconds.
    while killed.elapsed() < Duration::from_secs(5) {
        let status = admin.put("/v1/racks/r40", &fleet::rack()).await.status;
        assert_eq!(status, 503);
    }
    assert_eq!(
        pair.first
            .count("SELECT count(*) FROM objects WHERE kind = 'rack'")
            .await,
        0
    );
}

#[tokio::test]
async fn without_a_server_that_takes_writes_the_start_says_what_each_one_is() {
    let pair = Pair::start(false);
    let (standby, nobody) = (
        pair.second.dir.display().to_string(),
        PathBuf::from("/nonexistent"),
    );
    let url = format!(
        "postgresql:///muster_template?host={standby},{}&user=muster",
        nobody.display()
    );
    let said = Servers::parse(&url)
        .unwrap()
        .connect(2)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        said.contains(&format!("{standby}:5432: takes no writes")),
        "{said}"
    );
    assert!(
        said.contains("/nonexistent:5432: ") && said.contains("No such file"),
        "{said}"
    );
}
