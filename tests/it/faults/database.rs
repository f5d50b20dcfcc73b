//! Postgres that is slow, and Postgres that has no room left.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_server::tasks::leases::Rounds;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions as _, PgPool};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::postgres;
use crate::support::postgres::full::Full;
use crate::support::server::{START, Server};
use crate::support::wire::{End, Wire};
use muster_lab::simulated::agent::Stop;

fn start() -> Clock {
    Clock::manual(START.parse::<Timestamp>().unwrap())
}

/// A server whose database is behind a wire.
async fn behind_a_wire(patience: Duration) -> (Server, Wire) {
    let direct = postgres::database().await;
    let options = direct.connect_options();
    let socket: PathBuf = options.get_socket().unwrap().join(".s.PGSQL.5432");
    let wire = Wire::connections(End::Unix(socket)).await;
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(wire.address.port())
        .username("muster");
    let options = options
        .database(options_database(&direct))
        .ssl_mode(PgSslMode::Disable)
        .disable_statement_logging();
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(patience);
    (
        Server::on(pool.connect_with(options).await.unwrap(), start()).await,
        wire,
    )
}

fn options_database(pool: &PgPool) -> &'static str {
    // One per test: it may live as long as the test's process.
    Box::leak(
        pool.connect_options()
            .get_database()
            .unwrap()
            .to_owned()
            .into_boxed_str(),
    )
}

/// Every query takes two seconds: an agent cannot renew in time, and that is not its fault.
#[tokio::test]
async fn no_lease_is_lost_to_a_slow_database() {
    let (server, wire) = behind_a_wire(Duration::from_secs(10)).await;
    let mut world = World::on(server, 1, |_, body| body).await;
    let job = world.until_leased("n1", "boot_live").await;
    let mut rounds = Rounds::default();
    rounds.next(&world.server.app).await.unwrap();
    wire.set(|faults| faults.back.delay = Duration::from_secs(2));
    for _ in 0..2 {
        world.advance(20);
        rounds.next(&world.server.app).await.unwrap();
    }
    let ready = world.server.nobody().get("/readyz").await;
    assert_eq!(ready.status, 503, "traffic goes elsewhere: {}", ready.text);
    wire.heal();
    rounds.next(&world.server.app).await.unwrap();
    assert_eq!(
        world.agent.renew(&job).await,
        Ok(false),
        "it has its job still, and renews now that it can"
    );
    world.advance(31);
    assert_eq!(world.agent.renew(&job).await, Ok(false));
    rounds.next(&world.server.app).await.unwrap();
    // One that is silent while the database is well loses it as ever; on a busy machine it is not well each time.
    for _ in 0..50 {
        world.advance(31);
        rounds.next(&world.server.app).await.unwrap();
        if world
            .history("n1")
            .await
            .contains(&"job.lease_expired".to_owned())
        {
            break;
        }
    }
    assert_eq!(
        world.agent.renew(&job).await,
        Err(Stop::Refused(409, "stale_attempt".into()))
    );
}

/// More requests than a slow database can answer: some are answered, the others are told to come again, and none waits for ever.
#[tokio::test]
async fn a_crowd_before_a_slow_database_is_answered_or_sent_away() {
    let (server, wire) = behind_a_wire(Duration::from_secs(3)).await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    wire.set(|faults| faults.back.delay = Duration::from_millis(400));
    let crowd = (0..80).map(|_| {
        let admin = admin.clone();
        tokio::spawn(async move { admin.get("/v1/nodes").await })
    });
    let (mut answered, mut sent_away) = (0, 0);
    for reply in crowd.collect::<Vec<_>>() {
        let reply = reply.await.unwrap();
        match reply.status {
            200 => answered += 1,
            503 => {
                assert!(!reply.header("retry-after").is_empty(), "{}", reply.text);
                sent_away += 1;
            }
            other => panic!("{other}: {}", reply.text),
        }
    }
    assert!(
        answered > 0 && sent_away > 0,
        "{answered} answered, {sent_away} sent away"
    );
    wire.heal();
    admin.get("/v1/nodes").await.expect(200);
}

/// A connection that breaks in the middle of what is asked, at any byte: the same request again has its effect once.
#[tokio::test]
async fn a_connection_to_the_database_may_break_at_any_byte() {
    let (server, wire) = behind_a_wire(Duration::from_secs(10)).await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    let mut refused = 0;
    for number in 0..16_u64 {
        // From the greeting to well behind the commit.
        wire.set(|faults| faults.back.cut_after = Some(700 + number * 243));
        let keyed = admin.header("idempotency-key", &format!("rack-{number}"));
        let path = format!("/v1/racks/r{number}");
        let first = keyed.put(&path, &fleet::rack()).await;
        assert!([200, 201, 503].contains(&first.status), "{}", first.text);
        refused += u64::from(first.status == 503);
        wire.heal();
        let again = keyed.put(&path, &fleet::rack()).await;
        assert!([200, 201].contains(&again.status), "{}", again.text);
        let events: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM events e JOIN objects o ON o.id = e.object_id WHERE o.name = $1",
        )
        .bind(format!("r{number}"))
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
        assert_eq!(events, 1, "r{number}");
    }
    assert!(refused > 0, "no connection broke");
}

/// The disk of the database is full: what is there is read, what cannot be written is refused with the reason, nothing is half there.
#[tokio::test]
async fn a_full_disk_is_told_as_that_and_leaves_nothing_half_done() {
    let full = Full::start().await;
    let server = Server::on(full.pool.clone(), start()).await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    full.fill().await;
    let count = async |query: &'static str| -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(&full.pool)
            .await
            .unwrap()
    };
    let (objects, events) = (
        "SELECT count(*) FROM objects",
        "SELECT count(*) FROM events",
    );
    // What fits into a page that is there already is written still.
    let mut racks = 0;
    let refused = loop {
        let (before, told) = (count(objects).await, count(events).await);
        let mut rack = fleet::rack();
        rack["annotations"] = json!({ "note": "x".repeat(1500) });
        let reply = admin.put(&format!("/v1/racks/full-{racks}"), &rack).await;
        if reply.status == 503 {
            assert_eq!(
                (count(objects).await, count(events).await),
                (before, told),
                "neither the rack nor its event"
            );
            break reply;
        }
        assert_eq!(reply.status, 201, "{}", reply.text);
        racks += 1;
        assert!(racks < 500, "the disk is not full");
    };
    assert_eq!(
        (refused.problem().1, refused.header("retry-after")),
        ("database_full", "30"),
        "{}",
        refused.text
    );
    assert_eq!(refused.body["retryable"], Value::Bool(true));
    let listed = admin.get("/v1/racks?limit=5").await.expect(200);
    assert!(!listed.body["items"].as_array().unwrap().is_empty());
    full.make_room().await;
    admin
        .put(&format!("/v1/racks/full-{racks}"), &fleet::rack())
        .await
        .expect(201);
}
