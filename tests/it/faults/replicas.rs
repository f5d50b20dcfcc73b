//! Replicas that are frozen, or killed, in the middle of a reconcile pass: processes of their own, beside a server that goes on.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_core::clock::Clock;
use muster_server::{engine, tasks};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgPool};
use tokio_util::sync::CancellationToken;

use crate::simulated::World;
use crate::support::fleet;
use crate::support::postgres;
use crate::support::server::Server;

/// Where the process finds its database: socket directory and name.
const SOCKET: &str = "MUSTER_TEST_SOCKET";
const DATABASE: &str = "MUSTER_TEST_DATABASE";
const ITSELF: &str = "faults::replicas::the_process_of_a_replica";

/// No test: the engine of a replica, in the process that the tests here start.
#[tokio::test]
#[ignore = "the other tests here start it as a process of its own"]
async fn the_process_of_a_replica() {
    let (Ok(socket), Ok(database)) = (std::env::var(SOCKET), std::env::var(DATABASE)) else {
        return;
    };
    let options = PgConnectOptions::new()
        .socket(socket)
        .username("muster")
        .database(&database)
        .application_name("replica");
    // What `muster server` asks for, and shorter.
    let options = options.options([("idle_in_transaction_session_timeout", "2s")]);
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .connect_with(options)
        .await
        .unwrap();
    let server = Server::on(pool, Clock::following(Clock::System)).await;
    tasks::clock::follow(&server.app).await.unwrap();
    engine::run(server.app.clone(), CancellationToken::new()).await;
}

/// The process of a replica, killed when it is dropped.
struct Replica(Child);

impl Replica {
    fn start(pool: &PgPool) -> Self {
        let options = pool.connect_options();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", ITSELF, "--ignored"])
            .env(SOCKET, options.get_socket().unwrap())
            .env(DATABASE, options.get_database().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success(), "kill -s {name}");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Waits until the database sees the replica so, or not any more.
async fn until(pool: &PgPool, condition: &str, there: bool) {
    let query = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'replica' AND {condition}"
    );
    let seen = async {
        while (sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(query.clone()))
            .fetch_one(pool)
            .await
            .unwrap()
            > 0)
            != there
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen)
        .await
        .unwrap_or_else(|_| panic!("{condition}: {there}"));
}

/// A node is due, and the replica that has its turn is held up where it writes the history: the node is locked, nothing is committed.
async fn in_the_middle(signal: &str) -> (World, Replica) {
    let server = Server::on(postgres::database().await, Clock::following(Clock::System)).await;
    tasks::clock::follow(&server.app).await.unwrap();
    let world = World::on(server, 1, |_, body| body).await;
    let pool = &world.server.app.pool;
    let mut blocker = pool.acquire().await.unwrap();
    let mut in_the_way = blocker.begin().await.unwrap();
    in_the_way
        .execute("LOCK TABLE events IN EXCLUSIVE MODE")
        .await
        .unwrap();
    let replica = Replica::start(pool);
    until(pool, "wait_event_type = 'Lock'", true).await;
    replica.signal(signal);
    in_the_way.rollback().await.unwrap();
    drop(blocker);
    (world, replica)
}

async fn queued(world: &World, name: &str) -> usize {
    world
        .history(name)
        .await
        .iter()
        .filter(|line| *line == "step.queued boot_live")
        .count()
}

#[tokio::test]
async fn a_replica_frozen_in_a_pass_blocks_no_other_and_commits_nothing_late() {
    let (world, replica) = in_the_middle("STOP").await;
    let pool = &world.server.app.pool;
    // The database ends the session of one that says nothing; then the turn is anybody's.
    until(pool, "state <> 'idle'", false).await;
    assert!(world.engine().await > 0);
    assert_eq!(queued(&world, "n1").await, 1);
    replica.signal("CONT");
    // It goes on with what is due next, and what it had in hand is gone.
    world
        .admin
        .put("/v1/nodes/n2", &fleet::node(2))
        .await
        .expect(201);
    let both = async {
        while queued(&world, "n2").await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), both)
        .await
        .expect("the replica works again");
    assert_eq!(
        (queued(&world, "n1").await, queued(&world, "n2").await),
        (1, 1)
    );
    assert_eq!(world.agent.lease(5, 0).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_pass_of_a_killed_replica_leaves_no_trace_and_is_repeated() {
    let (world, replica) = in_the_middle("KILL").await;
    until(&world.server.app.pool, "true", false).await;
    assert_eq!(
        queued(&world, "n1").await,
        0,
        "nothing of the turn is there"
    );
    assert!(world.engine().await > 0);
    assert_eq!(queued(&world, "n1").await, 1);
    assert_eq!(world.agent.lease(5, 0).await.unwrap().len(), 1);
    drop(replica);
}
