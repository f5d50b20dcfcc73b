//! Nodes that fail alike: of the fleet, of a pool, within the hour or days apart; and those that are left to a person.

use jiff_sqlx::ToSqlx as _;
use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_server::db;
use serde_json::json;
use uuid::Uuid;

use super::{LADDER, recoveries, serving, told, watched};

#[tokio::test]
async fn when_five_of_six_fail_the_same_way_it_is_the_fleet() {
    let mut world = serving(6, watched(&LADDER)).await;
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        // Whatever is tried, the gate fails.
        world.gates(name, &[Verdict::Fail; 20]);
        world.ask(name, "sweep").await.expect(202);
    }
    world.settle().await;
    let mut states = Vec::new();
    for name in ["n1", "n2", "n3", "n4", "n5", "n6"] {
        states.push(world.state(name).await);
    }
    let count = |state: &str| states.iter().filter(|one| *one == state).count();
    assert_eq!(
        (count("quarantined"), count("in_service")),
        (2, 4),
        "{states:?}"
    );
    assert_eq!(told(&world, "recovery.started").await, 2);
    assert_eq!(told(&world, "breaker.opened").await, 1);
    // Those that had begun were stopped where they were, before anything was tried.
    let query =
        "SELECT count(*) FROM recoveries WHERE ended = 'held_back' AND tried < cardinality(rungs)";
    let stopped: i64 = sqlx::query_scalar(query)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(stopped, 2);

    let breakers = world.admin.get("/v1/breakers").await.expect(200).body;
    let breaker = &breakers["items"][0];
    assert_eq!(
        (breaker["signature"].as_str(), breaker["state"].as_str()),
        (Some("gate:node.profile"), Some("open"))
    );
    // Whoever opens the console sees it, with what closes it; and so does whoever opens a node that it holds.
    let command = format!("muster breaker reset {}", breaker["id"].as_str().unwrap());
    assert!(
        world
            .admin
            .get("/")
            .await
            .expect(200)
            .text
            .contains(&command)
    );
    let held = states
        .iter()
        .position(|state| state == "quarantined")
        .unwrap()
        + 1;
    let page = world
        .admin
        .get(&format!("/nodes/n{held}"))
        .await
        .expect(200)
        .text;
    assert!(
        page.contains("held back") && page.contains("muster breaker list --filter state=open"),
        "{page}"
    );
    // It stays open until somebody has looked, however long that takes.
    world.advance(12 * 3600);
    let serving = states
        .iter()
        .position(|state| state == "in_service")
        .unwrap()
        + 1;
    let name = format!("n{serving}");
    world.ask(&name, "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state(&name).await, "in_service");
    let reset = format!("/v1/breakers/{}/reset", breaker["id"].as_str().unwrap());
    let closed = world.admin.post(&reset, &json!({})).await.expect(200).body;
    assert_eq!(
        (
            closed["state"].as_str(),
            told(&world, "breaker.reset").await
        ),
        (Some("closed"), 1)
    );
    assert!(
        !world
            .admin
            .get("/")
            .await
            .expect(200)
            .text
            .contains(&command)
    );
    world.admin.post(&reset, &json!({})).await.expect(200);
    assert_eq!(told(&world, "breaker.reset").await, 1, "once");
    world.ask(&name, "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state(&name).await,
        "quarantined",
        "its ladder is climbed again, in vain"
    );
    world.check().await;
}

#[tokio::test]
async fn a_node_that_fails_again_and_again_is_left_to_a_person() {
    let mut world = serving(1, watched(&["reboot"])).await;
    for _ in 0..2 {
        world.gates("n1", &[Verdict::Fail]);
        world.ask("n1", "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state("n1").await, "in_service");
    }
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    // No third ladder: what that would cost is a person's to weigh. But what was measured is not given to jobs meanwhile.
    assert_eq!(world.state("n1").await, "quarantined");
    let all = recoveries(&world, "n1").await;
    assert_eq!(
        (all.len(), &all[0]["rungs"], &all[0]["ended"]),
        (3, &json!([]), &json!("held_back"))
    );
    let timeline = world
        .admin
        .get("/v1/nodes/n1/timeline")
        .await
        .expect(200)
        .text;
    assert!(
        timeline.contains("the node was recovered 2 times within 168 hours"),
        "{timeline}"
    );
    // Through its gates it comes back, and a person is not bound by what went before.
    for _ in 0..2 {
        world.ask("n1", "recover").await.expect(202);
        world.settle().await;
        assert_eq!(world.state("n1").await, "in_service");
    }
    let all = recoveries(&world, "n1").await;
    assert_eq!(
        (all.len(), &all[0]["asked"], &all[0]["ended"]),
        (4, &json!(true), &json!("recovered"))
    );
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let (node, now) = (
        world.value("n1", "id").await.unwrap().parse().unwrap(),
        world.server.app.clock.now(),
    );
    let (seen, _) = db::recoveries::count_seen(&mut conn, node, "gate:node.profile", 168, now)
        .await
        .unwrap();
    assert_eq!(
        seen.on_node, 2,
        "where nothing was tried, nothing brings it nearer to its bound"
    );
    world.check().await;
}

/// What takes one node out again and again, a link that flaps, may do so with all of them.
#[tokio::test]
async fn many_nodes_that_are_left_to_a_person_are_the_fleet_too() {
    let mut world = serving(4, watched(&["reboot"])).await;
    // Each had what may be tried on it within a week, for something else.
    let before = "INSERT INTO recoveries (id, node_id, signature, what, answers, asked, rungs, begun_at, ended_at, ended)
                  SELECT gen_random_uuid(), id, 'gate:x', 'it failed', true, false, '{reboot}', $1, $1, 'recovered' FROM nodes";
    for hours in [47, 48] {
        let at = (world.server.app.clock.now() - jiff::SignedDuration::from_hours(hours)).to_sqlx();
        sqlx::query(before)
            .bind(at)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
    for (name, state) in [
        ("n1", "quarantined"),
        ("n2", "quarantined"),
        ("n3", "in_service"),
        ("n4", "in_service"),
    ] {
        world.gates(name, &[Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, state, "{name}");
    }
    let breakers = world.admin.get("/v1/breakers").await.expect(200).body;
    let because = breakers["items"][0]["because"].as_str().unwrap();
    assert!(
        because.contains("2 other nodes failed the same way within the hour"),
        "{because}"
    );
    world.check().await;
}

/// Sweeps are a day apart: a bad driver is found by one node after the other, and each alone looks like that node.
#[tokio::test]
async fn nodes_that_fail_alike_days_apart_are_the_fleet_too() {
    let mut world = serving(6, watched(&["collect"])).await;
    for (name, state) in [
        ("n1", "quarantined"),
        ("n2", "quarantined"),
        ("n3", "quarantined"),
        ("n4", "in_service"),
        ("n5", "in_service"),
    ] {
        // The sweep, and the look after the only rung.
        world.gates(name, &[Verdict::Fail, Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, state, "{name}");
        world.advance(24 * 3600);
    }
    let breakers = world.admin.get("/v1/breakers").await.expect(200).body;
    let because = breakers["items"][0]["because"].as_str().unwrap();
    assert!(
        because.contains("3 other nodes failed the same way within the week, and are not repaired"),
        "{because}"
    );
    // A person who has looked begins the count anew.
    let reset = format!(
        "/v1/breakers/{}/reset",
        breakers["items"][0]["id"].as_str().unwrap()
    );
    world.admin.post(&reset, &json!({})).await.expect(200);
    world.gates("n5", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n5", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n5").await, "quarantined");
    world.check().await;
}

/// Parts take weeks to come. What is wrong with those that wait for them is known, and says nothing of others.
#[tokio::test]
async fn nodes_that_wait_for_their_maker_keep_no_other_in_service() {
    let mut world = serving(6, watched(&["rma"])).await;
    for name in ["n1", "n2", "n3", "n4"] {
        world.advance(24 * 3600);
        world.gates(name, &[Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, "quarantined", "{name}");
    }
    assert_eq!(told(&world, "breaker.opened").await, 0);
    // Those of the same hour may be the fleet all the same.
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let (node, now) = (
        world.value("n5", "id").await.unwrap().parse().unwrap(),
        world.server.app.clock.now(),
    );
    let (seen, _) = db::recoveries::count_seen(&mut conn, node, "gate:node.profile", 168, now)
        .await
        .unwrap();
    assert_eq!(
        (
            seen.fleet.same_way,
            seen.fleet.unmended,
            seen.pool.same_way,
            seen.pool.unmended
        ),
        (1, 0, 1, 0)
    );
    world.check().await;
}

/// Few nodes of a large fleet may be all of a small pool; and one pool's failures are not another's.
#[tokio::test]
async fn failures_are_counted_over_the_fleet_and_over_the_pool() {
    let mut world = serving(4, watched(&["collect"])).await;
    world.ask("n3", "quarantine").await.expect(202);
    world.settle().await;
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body["spec"].clone();
    let other = world
        .admin
        .put("/v1/pools/other", &json!({ "spec": pool }))
        .await
        .expect(201)
        .body;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let id = |name: &'static str| {
        sqlx::query_scalar::<_, Uuid>("SELECT id FROM nodes WHERE name = $1").bind(name)
    };
    let (n1, n2, n3, n4) = (
        id("n1").fetch_one(&mut *conn).await.unwrap(),
        id("n2").fetch_one(&mut *conn).await.unwrap(),
        id("n3").fetch_one(&mut *conn).await.unwrap(),
        id("n4").fetch_one(&mut *conn).await.unwrap(),
    );
    let moved = "UPDATE claims SET pool_id = $1 WHERE node_id = $2";
    let other: Uuid = other["id"].as_str().unwrap().parse().unwrap();
    sqlx::query(moved)
        .bind(other)
        .bind(n4)
        .execute(&mut *conn)
        .await
        .unwrap();
    let now = world.server.app.clock.now();
    // One just now in each pool; one two days ago that is out still, and one that serves again.
    let failed =
        "INSERT INTO recoveries (id, node_id, signature, what, answers, asked, rungs, begun_at, ended_at, ended)
                  SELECT gen_random_uuid(), $1, 'gate:x', 'it failed', true, false, '{}', $2, $2, 'spent'";
    for (node, hours) in [(n2, 0), (n4, 0), (n3, 48)] {
        let at = (now - jiff::SignedDuration::from_hours(hours)).to_sqlx();
        sqlx::query(failed)
            .bind(node)
            .bind(at)
            .execute(&mut *conn)
            .await
            .unwrap();
    }
    let of = |node| NodeId(node);
    let (seen, name) = db::recoveries::count_seen(&mut conn, of(n1), "gate:x", 168, now)
        .await
        .unwrap();
    assert_eq!(name.as_deref(), Some("gpu"));
    assert_eq!(
        (seen.fleet.same_way, seen.fleet.unmended, seen.fleet.held),
        (2, 1, 4)
    );
    // Its share is of all that it holds, or nodes that are brought up together would be few of none.
    assert_eq!(
        (seen.pool.same_way, seen.pool.unmended, seen.pool.held),
        (1, 1, 3)
    );
    assert!(!seen.fleet.open && !seen.pool.open);
    // The pool's own breaker holds the pool's nodes, and no others.
    let breaker = db::recoveries::breaker_of_pool("gate:x", "gpu");
    assert!(
        db::breakers::open(&mut conn, &breaker, "two", None, now)
            .await
            .unwrap()
    );
    let (seen, _) = db::recoveries::count_seen(&mut conn, of(n1), "gate:x", 168, now)
        .await
        .unwrap();
    assert!(seen.pool.open && !seen.fleet.open);
    let (seen, _) = db::recoveries::count_seen(&mut conn, of(n4), "gate:x", 168, now)
        .await
        .unwrap();
    assert!(!seen.pool.open && !seen.fleet.open && seen.pool.same_way == 0);
    // What it gives back is not held any more.
    sqlx::query("UPDATE claims SET state = 'releasing' WHERE node_id = $1")
        .bind(n2)
        .execute(&mut *conn)
        .await
        .unwrap();
    let (seen, _) = db::recoveries::count_seen(&mut conn, of(n1), "gate:x", 168, now)
        .await
        .unwrap();
    assert_eq!(seen.pool.held, 2);
}
