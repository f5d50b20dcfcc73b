//! Rollouts and maintenance windows: nodes are taken while the windows of site, pool and policy are
//! open, and no freeze is in force.

use jiff::{SignedDuration, Timestamp};
use muster_api::tokens::Role;
use muster_core::wire::scheduler::WindowWait;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollout_guards::at_first;
use crate::rollout_jobs::run_job;
use crate::rollouts::{marks, plan, policy, serving, settle, show, start, steer, taken};
use crate::simulated::World;
use crate::support::fleet;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Returns the time some seconds from now.
fn after(world: &World, seconds: i64) -> Timestamp {
    let now = world.server.app.clock.now();
    now + SignedDuration::from_secs(seconds)
}

/// Returns a daily window that opens in so many seconds, for an hour.
pub(crate) fn daily(world: &World, opens_in_s: i64) -> Value {
    let opens = after(world, opens_in_s).to_string();
    json!({
        "time_zone": "UTC",
        "weekly": [{ "days": DAYS, "start": &opens[11..19], "length_min": 60 }],
    })
}

/// Returns a window that is always open but today and tomorrow.
fn frozen(world: &World) -> Value {
    let (first, last) = (
        after(world, 0).to_string(),
        after(world, 24 * 3600).to_string(),
    );
    json!({
        "time_zone": "UTC",
        "freezes": [{ "first": &first[..10], "last": &last[..10], "reason": "the deadline of a paper" }],
    })
}

pub(crate) async fn declare(world: &World, name: &str, window: &Value) {
    let path = format!("/v1/maintenance_windows/{name}");
    let body = json!({ "spec": window });
    let reply = world.admin.put(&path, &body).await;
    assert!([200, 201].contains(&reply.status), "{}", reply.text);
}

/// Names a window in a site or a pool.
pub(crate) async fn give(world: &World, path: &str, name: Value) {
    let body = json!({ "spec": { "maintenance_window": name } });
    world.admin.patch(path, &body).await.expect(200);
}

/// One wave of all nodes.
pub(crate) fn at_once() -> Value {
    let mut policy = policy();
    policy["canary"] = Value::Null;
    policy["waves"] = json!({ "sizes": ["100%"] });
    policy
}

/// Runs a tick. Returns the rollout after the tick.
async fn tick(world: &World, name: &str) -> Value {
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
    show(world, name).await
}

/// The number of nodes kept from long jobs.
async fn count_waits(world: &World) -> usize {
    let reply = world.agent.report_jobs().await.unwrap();
    let clusters = reply.clusters.into_iter();
    let waits = clusters.flat_map(|cluster| cluster.waits);
    waits.map(|wait| wait.nodes.len()).sum()
}

#[tokio::test]
async fn nodes_are_taken_while_the_windows_of_site_pool_and_policy_are_open() {
    let mut world = serving(1, json!("100%")).await;
    for (opens_in_h, name) in [(2, "pool"), (3, "site"), (4, "policy")] {
        let mut window = daily(&world, opens_in_h * 3600);
        window["weekly"][0]["length_min"] = json!(240);
        declare(&world, name, &window).await;
    }
    give(&world, "/v1/pools/gpu", json!("pool")).await;
    give(&world, "/v1/sites/lab", json!("site")).await;
    let mut policy = at_once();
    policy["maintenance_window"] = json!("policy");
    policy["stall_after_s"] = json!(600);
    let name = start(&world, 2, &policy).await;
    let opens = after(&world, 4 * 3600);
    for (hours, open) in [(0, vec![]), (2, vec!["pool"]), (3, vec!["pool", "site"])] {
        let ahead = opens.duration_since(world.server.app.clock.now()).as_secs();
        world.advance(ahead - (4 - hours) * 3600 + i64::from(hours > 0));
        let seen = tick(&world, &name).await;
        assert_eq!(marks(&seen), ["not_begun"], "{seen:#}");
        let why = &seen["nodes"][0]["why"];
        assert_eq!(why["code"], "window_closed", "{seen:#}");
        assert_eq!(seen["now"]["binding"]["code"], "window_closed");
        assert!(seen["stalled_since"].is_null(), "{seen:#}");
        let windows = seen["now"]["windows"].as_array().unwrap();
        let names = |windows: &[Value], open| -> Vec<String> {
            let chosen = windows.iter().filter(|one| one["open"] == open);
            let names = chosen.map(|one| one["name"].as_str().unwrap().to_owned());
            names.collect()
        };
        assert_eq!(names(windows, true), open, "{seen:#}");
        assert_eq!(names(windows, false).len(), 3 - open.len(), "{seen:#}");
        let estimate = &seen["estimate"];
        let early: Timestamp = estimate["early"].as_str().unwrap().parse().unwrap();
        assert!(early > opens, "{estimate}");
    }
    let ahead = opens.duration_since(world.server.app.clock.now()).as_secs();
    world.advance(ahead + 1);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(done["state"], "done", "{done:#}");
    assert_eq!(taken(&world).await, ["n1"]);
    world.check().await;
}

#[tokio::test]
async fn a_freeze_declared_during_the_rollout_gives_waiting_nodes_back() {
    let mut world = serving(2, json!("100%")).await;
    let open = json!({ "time_zone": "UTC" });
    declare(&world, "lab", &open).await;
    give(&world, "/v1/sites/lab", json!("lab")).await;
    run_job(&world, "17", Some(4 * 3600), &["n1", "n2"]);
    let name = start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting"; 2]);
    assert_eq!(count_waits(&world).await, 2);
    declare(&world, "lab", &frozen(&world)).await;
    let seen = tick(&world, &name).await;
    assert_eq!(marks(&seen), ["not_begun"; 2], "{seen:#}");
    assert_eq!(seen["nodes"][0]["why"]["code"], "frozen", "{seen:#}");
    let window = &seen["now"]["windows"][0];
    assert_eq!(window["frozen"], "the deadline of a paper", "{seen:#}");
    assert_eq!(count_waits(&world).await, 0);
    world.rack().scheduler.jobs.clear();
    world.advance(3600);
    let seen = tick(&world, &name).await;
    assert_eq!(marks(&seen), ["not_begun"; 2], "{seen:#}");
    declare(&world, "lab", &open).await;
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
}

#[tokio::test]
async fn waiting_nodes_run_jobs_that_end_before_the_next_opening() {
    let mut world = serving(1, json!("100%")).await;
    declare(&world, "hour", &daily(&world, -600)).await;
    give(&world, "/v1/pools/gpu", json!("hour")).await;
    run_job(&world, "17", Some(2000), &["n1"]);
    let name = start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting"]);
    assert_eq!(count_waits(&world).await, 1);
    // The job runs beyond its limit, and the window closes.
    world.advance(3001);
    world.agent.report_jobs().await.unwrap();
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["waiting"], "{seen:#}");
    assert_eq!(seen["nodes"][0]["why"]["code"], "window_closed", "{seen:#}");
    assert_eq!(count_waits(&world).await, 0);
    let mut reply = world.agent.report_jobs().await.unwrap();
    let changes_at = seen["now"]["windows"][0]["changes_at"].as_str().unwrap();
    let until_opening = WindowWait {
        opens_at: changes_at.parse().unwrap(),
        nodes: vec!["n1".to_owned()],
    };
    assert_eq!(reply.clusters.remove(0).window_waits, [until_opening]);
    world.rack().scheduler.jobs.clear();
    settle(&mut world).await;
    assert_eq!(taken(&world).await.len(), 0);
    world.advance(21 * 3600);
    settle(&mut world).await;
    let wanted = ["waiting"];
    assert_eq!(marks(&show(&world, &name).await), wanted);
    world.advance(2 * 3600 + 30 * 60);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
}

#[tokio::test]
async fn a_window_is_checked_where_it_is_declared_and_where_it_is_named() {
    let world = serving(1, json!("100%")).await;
    let admin = &world.admin;
    // The window alone.
    for (member, value, pointer) in [
        ("time_zone", json!("Mars/Olympus"), "/spec/time_zone"),
        (
            "weekly",
            json!([{ "days": [], "start": "10:00:00", "length_min": 60 }]),
            "/spec/weekly/0/days",
        ),
        (
            "weekly",
            json!([{ "days": ["mon"], "start": "10:00:00", "length_min": 5 }]),
            "/spec/weekly/0/length_min",
        ),
        (
            "freezes",
            json!([{ "first": "2026-12-24", "last": "2026-12-01" }]),
            "/spec/freezes/0/last",
        ),
        (
            "freezes",
            json!([{ "first": "2026-12-24", "last": "2026-12-24", "reason": "x".repeat(201) }]),
            "/spec/freezes/0/reason",
        ),
    ] {
        let mut window = fleet::maintenance_window();
        window["spec"][member] = value;
        let refused = admin
            .put("/v1/maintenance_windows/wrong", &window)
            .await
            .expect(422);
        assert_eq!(
            refused.body["errors"][0]["pointer"], pointer,
            "{}",
            refused.text
        );
    }
    // An unknown window, named by a pool, a site or a policy.
    let unknown = json!({ "spec": { "maintenance_window": "none" } });
    for path in ["/v1/pools/gpu", "/v1/sites/lab"] {
        let refused = admin.patch(path, &unknown).await.expect(422);
        assert_eq!(
            refused.body["errors"][0]["pointer"],
            "/spec/maintenance_window"
        );
    }
    let mut named = policy();
    named["maintenance_window"] = json!("none");
    let refused = plan(&world, 2, &named).await.expect(422);
    assert_eq!(
        refused.body["errors"][0]["pointer"],
        "/policy/maintenance_window"
    );
    // Two windows never open together.
    declare(&world, "early", &daily(&world, 3600)).await;
    declare(&world, "late", &daily(&world, 4 * 3600)).await;
    give(&world, "/v1/pools/gpu", json!("early")).await;
    named["maintenance_window"] = json!("late");
    let refused = plan(&world, 2, &named).await.expect(409);
    assert_eq!(refused.body["code"], "never_open", "{}", refused.text);
    assert!(refused.text.contains("early and late"), "{}", refused.text);
    // A named window cannot be deleted.
    named["maintenance_window"] = json!("early");
    plan(&world, 2, &named).await.expect(201);
    let delete = async |name: &str| {
        let path = format!("/v1/maintenance_windows/{name}");
        admin.header("if-match", "*").delete(&path).await
    };
    let refused = delete("early").await.expect(409);
    let holders = "pool gpu, rollout gpu-1";
    assert!(refused.text.contains(holders), "{}", refused.text);
    delete("late").await.expect(204);
}

#[tokio::test]
async fn a_longer_opening_needs_the_permission_to_start_rollouts() {
    let world = serving(1, json!("100%")).await;
    let (admin, automation) = (&world.admin, world.server.caller(Role::Automation).await);
    declare(&world, "nights", &fleet::maintenance_window()["spec"]).await;
    give(&world, "/v1/pools/gpu", json!("nights")).await;
    let path = "/v1/maintenance_windows/nights";
    let mut window = fleet::maintenance_window();
    let year = window["spec"]["freezes"][0].clone();
    let easter = json!({ "first": "2027-03-26", "last": "2027-03-29", "reason": "easter" });
    window["spec"]["freezes"] = json!([easter, year]);
    automation.put(path, &window).await.expect(200);
    let mut longer = window.clone();
    longer["spec"]["weekly"][0]["length_min"] = json!(600);
    let mut thawed = window.clone();
    thawed["spec"]["freezes"] = json!([year]);
    for more in [&longer, &thawed] {
        automation.put(path, more).await.expect(403);
    }
    let none = json!({ "spec": { "maintenance_window": null } });
    automation.patch("/v1/pools/gpu", &none).await.expect(403);
    world
        .server
        .caller(Role::Operator)
        .await
        .put(path, &longer)
        .await
        .expect(200);
    admin.patch("/v1/pools/gpu", &none).await.expect(200);
}

#[tokio::test]
async fn nodes_after_the_date_of_the_policy_are_listed_as_late() {
    let mut world = serving(2, json!("100%")).await;
    let hold = json!({ "spec": { "hold": true } });
    world
        .admin
        .patch("/v1/claims/c-n2", &hold)
        .await
        .expect(200);
    let mut policy = at_once();
    policy["visit_by"] = json!(after(&world, 6 * 3600));
    let name = start(&world, 2, &policy).await;
    settle(&mut world).await;
    let late = |seen: &Value| {
        let nodes = seen["nodes"].as_array().unwrap().clone();
        let late = nodes.into_iter().filter(|node| node["overdue"] == true);
        late.map(|node| node["node"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let seen = show(&world, &name).await;
    assert_eq!(
        (marks(&seen), late(&seen)),
        (vec!["done", "not_begun"], vec![])
    );
    // The time of the changed node is measured.
    let free = json!({ "spec": { "hold": false } });
    world
        .admin
        .patch("/v1/claims/c-n2", &free)
        .await
        .expect(200);
    let seen = show(&world, &name).await;
    let assumed = seen["estimate"]["assumes"][0].as_str().unwrap();
    assert!(assumed.contains("measured on 1 node"), "{assumed}");
    world.advance(6 * 3600);
    let seen = show(&world, &name).await;
    assert_eq!(late(&seen), ["n2"], "{seen:#}");
}

#[tokio::test]
async fn the_drain_deadline_counts_open_time() {
    let mut world = serving(1, json!("100%")).await;
    declare(&world, "hour", &daily(&world, -600)).await;
    give(&world, "/v1/pools/gpu", json!("hour")).await;
    run_job(&world, "17", None, &["n1"]);
    let mut policy = at_once();
    policy["drain"] = json!({ "deadline": { "after_s": 7200, "then": "skip" } });
    let name = start(&world, 2, &policy).await;
    settle(&mut world).await;
    let begun = world.server.app.clock.now();
    assert_eq!(marks(&show(&world, &name).await), ["waiting"]);
    // After 50 and 60 minutes of two openings, the third one skips the node.
    for (minutes, mark) in [
        (60, "waiting"),
        (24 * 60, "waiting"),
        (48 * 60 + 30, "skipped"),
    ] {
        let since = world.server.app.clock.now().duration_since(begun).as_secs();
        world.advance(minutes * 60 - since);
        settle(&mut world).await;
        let seen = show(&world, &name).await;
        assert_eq!(marks(&seen), [mark], "after {minutes} min: {seen:#}");
    }
}

/// Starts a rollout in a window of an hour that opened 10 minutes ago, without a slot for any node. The
/// rollout is stalled after each of the times, in minutes. Returns its name.
async fn stall(world: &mut World, minutes: &[i64]) -> String {
    declare(world, "hour", &daily(world, -600)).await;
    give(world, "/v1/pools/gpu", json!("hour")).await;
    let mut impatient = at_once();
    impatient["stall_after_s"] = json!(600);
    let name = start(world, 2, &impatient).await;
    let none = json!({ "spec": { "max_unavailable": 0 } });
    world.admin.patch("/v1/pools/gpu", &none).await.expect(200);
    for minutes in minutes {
        world.advance(minutes * 60);
        settle(world).await;
        let seen = show(world, &name).await;
        assert!(seen["stalled_since"].is_string(), "{seen:#}");
    }
    name
}

async fn reported_stalls(world: &World) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'rollout.stalled'")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

/// A stall with an earlier begin, as after the newest node has left. The test moves the times back.
#[tokio::test]
async fn a_stall_that_seems_older_is_not_reported_again() {
    let mut world = serving(1, json!("100%")).await;
    let name = stall(&mut world, &[20]).await;
    assert_eq!(reported_stalls(&world).await, 1);
    let earlier = "UPDATE rollout_nodes SET since = since - interval '5 minutes'";
    let pool = &world.server.app.pool;
    sqlx::query(earlier).execute(pool).await.unwrap();
    let earlier = "UPDATE rollouts SET started_at = started_at - interval '5 minutes', since = since - interval '5 minutes'";
    sqlx::query(earlier).execute(pool).await.unwrap();
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert!(seen["stalled_since"].is_string(), "{seen:#}");
    assert_eq!(reported_stalls(&world).await, 1);
}

#[tokio::test]
async fn a_stall_over_several_openings_is_reported_once() {
    let mut world = serving(1, json!("100%")).await;
    let name = stall(&mut world, &[20, 60, 22 * 60 + 40, 15]).await;
    assert_eq!(reported_stalls(&world).await, 1);
    let all = json!({ "spec": { "max_unavailable": "100%" } });
    world.admin.patch("/v1/pools/gpu", &all).await.expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
}

#[tokio::test]
async fn a_freeze_after_the_plan_of_a_tick_stops_the_next_act() {
    let world = serving(2, json!("100%")).await;
    declare(&world, "lab", &json!({ "time_zone": "UTC" })).await;
    give(&world, "/v1/pools/gpu", json!("lab")).await;
    let name = start(&world, 2, &at_once()).await;
    let spec = frozen(&world).to_string();
    let statement = format!(
        "UPDATE objects SET spec = '{spec}' WHERE kind = 'maintenance_window' AND name = 'lab'"
    );
    at_first(&world, "changing", &statement).await;
    let seen = tick(&world, &name).await;
    assert_eq!(taken(&world).await.len(), 1, "{seen:#}");
}

#[tokio::test]
async fn an_impossible_budget_is_refused_outside_the_window_too() {
    let world = serving(1, json!(0)).await;
    declare(&world, "later", &daily(&world, 3600)).await;
    give(&world, "/v1/pools/gpu", json!("later")).await;
    let refused = plan(&world, 2, &at_once()).await.expect(409);
    assert_eq!(refused.body["code"], "budget", "{}", refused.text);
}

#[tokio::test]
async fn an_unreadable_window_is_closed_and_repaired_with_the_right_to_start() {
    let mut world = serving(1, json!("100%")).await;
    declare(&world, "lab", &json!({ "time_zone": "UTC" })).await;
    give(&world, "/v1/sites/lab", json!("lab")).await;
    let name = start(&world, 2, &at_once()).await;
    sqlx::query("UPDATE objects SET spec = '{\"time_zone\": 3}' WHERE kind = 'maintenance_window' AND name = 'lab'")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["not_begun"], "{seen:#}");
    let window = &seen["now"]["windows"][0];
    let told = (&window["unreadable"], &window["named_by"], &window["namer"]);
    assert_eq!(told, (&json!(true), &json!("site"), &json!("lab")));
    let path = "/v1/maintenance_windows/lab";
    let open = json!({ "spec": { "time_zone": "UTC" } });
    let automation = world.server.caller(Role::Automation).await;
    automation.put(path, &open).await.expect(403);
    let operator = world.server.caller(Role::Operator).await;
    operator.put(path, &open).await.expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
}

#[tokio::test]
async fn a_stall_ends_with_progress_while_the_window_is_closed() {
    let mut world = serving(2, json!("100%")).await;
    let name = stall(&mut world, &[20, 60]).await;
    let skip = json!({ "node": "n1", "reason": "it is repaired next week" });
    steer(&world, &name, "skip", skip).await.expect(200);
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert!(seen["stalled_since"].is_null(), "{seen:#}");
}
