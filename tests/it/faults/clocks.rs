//! Clocks that are wrong, and are set: of a server's machine, and of an agent's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::wire::calls::RenewJob;
use muster_server::tasks::{clock, leases};

use crate::simulated::World;
use crate::support::postgres;
use crate::support::server::Server;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The clock of the server's machine is set back by an hour, and then forth by two, while nodes are due, a job is leased and a permit is open.
#[tokio::test]
async fn setting_the_servers_clock_neither_stalls_nor_hastens_anything() {
    let pool = postgres::database().await;
    let start: Timestamp = sqlx::query_scalar::<_, jiff_sqlx::Timestamp>("SELECT now()")
        .fetch_one(&pool)
        .await
        .unwrap()
        .to_jiff();
    let own = Clock::manual(start);
    let server = Server::on(pool, Clock::following(own.clone())).await;
    let offset = clock::follow(&server.app).await.unwrap();
    assert!(offset.abs() < SignedDuration::from_mins(1), "{offset}");
    let mut world = World::on(server, 1, |_, body| body).await;
    for (jump, kind) in [(-HOUR, "boot_live"), (HOUR, "inventory")] {
        own.advance(jump);
        let offset = clock::follow(&world.server.app).await.unwrap();
        assert!(
            (offset - jump).abs() < SignedDuration::from_mins(1),
            "it is told how wrong the clock is: {offset}"
        );
        // What is due is done, what is leased stays leased, what was allowed is still allowed.
        let job = world.until_leased("n1", kind).await;
        own.advance(-jump);
        leases::Rounds::default()
            .next(&world.server.app)
            .await
            .unwrap();
        own.advance(jump);
        leases::Rounds::default()
            .next(&world.server.app)
            .await
            .unwrap();
        world.agent.work(&job).await.unwrap();
        own.advance(-jump);
    }
    world.engine().await;
    let history = world.history("n1").await;
    assert!(
        history.contains(&"step.succeeded inventory".to_owned()),
        "{history:?}"
    );
    assert!(
        !history.contains(&"job.lease_expired".to_owned()),
        "{history:?}"
    );
}

/// The clock of an agent's machine is an hour wrong: everything goes on, and everybody is told.
#[tokio::test]
async fn an_agents_clock_that_is_wrong_changes_nothing_and_is_told() {
    let world = World::start(1).await;
    let now = world.server.app.clock.now();
    let own = Clock::manual(now + HOUR);
    let mut agent = world.client_at(world.listen().await);
    let clock = Clock::following(own.clone());
    agent.client = agent.client.setting(clock.clone());
    world.engine().await;
    assert!(
        agent
            .lease_jobs(0, Duration::ZERO)
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
    let behind = clock.now().duration_since(now);
    assert!(
        behind.abs() < SignedDuration::from_mins(1),
        "machines that boot are given the server's time, not its own: {behind}"
    );
    let told = async || {
        let agents = world
            .admin
            .get("/v1/sites/lab/agents")
            .await
            .expect(200)
            .body;
        let query = "SELECT kind || ': ' || summary FROM events WHERE kind LIKE 'agent.clock%' ORDER BY seq";
        let events: Vec<String> = sqlx::query_scalar(query)
            .fetch_all(&world.server.app.pool)
            .await
            .unwrap();
        (
            agents["items"][0]["clock_offset_ms"].as_i64().unwrap(),
            events,
        )
    };
    let wrong =
        "agent.clock_wrong: the clock of the machine of agent first is 3600 s ahead; set it by NTP"
            .to_owned();
    assert_eq!(told().await, (3_600_000, vec![wrong.clone()]));

    let job = agent
        .lease_jobs(1, Duration::ZERO)
        .await
        .unwrap()
        .jobs
        .pop()
        .unwrap();
    own.advance(-HOUR - HOUR);
    let renew = RenewJob {
        epoch: agent.epoch,
        attempt: 1,
        progress: None,
        log: Vec::new(),
        waiting_for: None,
    };
    assert!(
        !agent
            .renew_job(job.id, &renew, Duration::from_secs(20))
            .await
            .unwrap()
            .cancel
    );
    assert_eq!(
        told().await.1.len(),
        1,
        "wrong the other way is wrong still"
    );
    own.advance(HOUR);
    assert!(
        !agent
            .renew_job(job.id, &renew, Duration::from_secs(20))
            .await
            .unwrap()
            .cancel
    );
    let right =
        "agent.clock_restored: the clock of the machine of agent first is correct again".to_owned();
    assert_eq!(told().await, (0, vec![wrong, right]));
}
