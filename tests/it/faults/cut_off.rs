//! An agent that the server hears, and that hears nothing: it may not keep its site.

use std::time::Duration;

use muster_agent::work::client::error::CallError;
use muster_agent::work::client::server::Server;
use muster_core::wire::calls::RenewJob;

use crate::simulated::World;
use crate::support::wire::{End, Wire};

/// Waits until the server has heard the agent at this moment of its clock.
async fn until_heard(world: &World) {
    let now = jiff_sqlx::Timestamp::from(world.server.app.clock.now());
    let query = "SELECT count(*) FROM agents WHERE name = 'first' AND last_seen = $1";
    let heard = async {
        while sqlx::query_scalar::<_, i64>(query)
            .bind(now)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), heard)
        .await
        .expect("what it says arrives");
}

fn renewal(agent: &Server) -> RenewJob {
    RenewJob {
        epoch: agent.epoch,
        attempt: 1,
        progress: None,
        log: Vec::new(),
        waiting_for: None,
    }
}

/// Answers are lost, calls are not. The lease is kept by what the agent has heard, so it runs out, and the other agent of the site takes over.
#[tokio::test]
async fn an_agent_that_is_heard_and_hears_nothing_loses_its_site() {
    let world = World::start(2).await;
    let second = world.second_agent().await;
    let wire = Wire::connections(End::Tcp(world.listen().await)).await;
    let agent = world.client_at(wire.address);
    world.engine().await;
    let job = agent
        .lease_jobs(1, Duration::ZERO)
        .await
        .unwrap()
        .jobs
        .pop()
        .unwrap();
    for _ in 0..30 {
        world.advance(10);
        agent
            .renew_job(job.id, &renewal(&agent), Duration::from_secs(20))
            .await
            .unwrap();
        world.expire_leases().await;
        assert!(
            second.lease(5, 0).await.unwrap().is_empty(),
            "while it hears, the other stands by"
        );
    }

    wire.set(|faults| faults.back.dead = true);
    let mut unheard = 0;
    let taken = loop {
        world.advance(10);
        unheard += 10;
        assert!(unheard <= 120, "the other agent never takes over");
        let said = async {
            agent
                .renew_job(job.id, &renewal(&agent), Duration::from_secs(1))
                .await
                .unwrap_err();
            if unheard > 45 {
                let asked = agent.lease_jobs(5, Duration::ZERO);
                tokio::time::timeout(Duration::from_millis(500), asked)
                    .await
                    .expect_err("no answer arrives");
            }
        };
        tokio::select! {
            () = said => {}
            () = async { until_heard(&world).await; tokio::time::sleep(Duration::from_millis(200)).await } => {}
        }
        world.expire_leases().await;
        let taken = second.lease(5, 0).await.unwrap();
        if !taken.is_empty() {
            break taken;
        }
    };
    assert!(
        (90..=100).contains(&unheard),
        "taken over after {unheard} s: the lease, then the longest call to a BMC"
    );
    let attempts: Vec<i32> = taken.iter().map(|leased| leased.attempt).collect();
    assert_eq!(taken.len(), 2, "{taken:?}");
    // The one it had, and one that was not given into the void.
    assert!(
        attempts.contains(&1) && attempts.contains(&2),
        "{attempts:?}"
    );
    wire.heal();
    assert_eq!(
        agent.lease_jobs(1, Duration::ZERO).await.unwrap_err(),
        CallError::StaleEpoch
    );
}

/// After an hour without the server an agent that nobody replaced has its site back with its next call.
#[tokio::test]
async fn an_agent_that_nobody_replaced_goes_on_when_the_server_is_back() {
    let world = World::start(1).await;
    let agent = world.client_at(world.listen().await);
    world.engine().await;
    assert_eq!(
        agent
            .lease_jobs(0, Duration::ZERO)
            .await
            .unwrap()
            .jobs
            .len(),
        0
    );
    world.advance(3600);
    // What it knows is an hour old: it is told the time first, and given work with the next call.
    assert_eq!(
        agent
            .lease_jobs(5, Duration::ZERO)
            .await
            .unwrap()
            .jobs
            .len(),
        0
    );
    assert_eq!(
        agent
            .lease_jobs(5, Duration::ZERO)
            .await
            .unwrap()
            .jobs
            .len(),
        1
    );
    let config = agent
        .poll_site(None, Duration::ZERO)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(config.subnets.len(), 1, "and it was never told to stand by");
}
