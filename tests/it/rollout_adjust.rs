//! Changes to the policy of an open rollout.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollout_jobs::run_job;
use crate::rollout_windows::{at_once, daily, declare, give};
use crate::rollouts::{
    marks, policy, serving, settle, show, start, steer, taken, until_one_changes,
};
use crate::simulated::World;

async fn adjust(world: &World, name: &str, policy: Value) -> crate::support::server::Reply {
    let body = json!({ "policy": policy, "reason": "the night is short" });
    steer(world, name, "adjust", body).await
}

#[tokio::test]
async fn a_new_budget_applies_at_the_next_tick() {
    let mut world = serving(3, json!("100%")).await;
    let mut single = policy();
    single["canary"] = Value::Null;
    single["waves"] = json!({ "sizes": ["100%"] });
    single["budgets"]["max_changing"] = json!(1);
    let name = start(&world, 2, &single).await;
    until_one_changes(&mut world, &name).await;
    rollouts::round(&world.server.app).await.unwrap();
    assert_eq!(taken(&world).await.len(), 1);
    let two = json!({ "budgets": { "max_changing": 2 }, "drain_lead_s": 60 });
    let seen = adjust(&world, &name, two.clone()).await.expect(200).body;
    let budgets = &seen["policy"]["budgets"];
    assert_eq!(
        (&budgets["max_changing"], &budgets["max_waiting"]),
        (&json!(2), &json!("100%"))
    );
    // The same change again is no event.
    adjust(&world, &name, two).await.expect(200);
    let events: Vec<Value> =
        sqlx::query_scalar("SELECT detail FROM events WHERE kind = 'rollout.adjusted'")
            .fetch_all(&world.server.app.pool)
            .await
            .unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    let lead = json!({ "from": 900, "to": 60 });
    assert_eq!(events[0]["changes"]["drain_lead_s"], lead);
    rollouts::round(&world.server.app).await.unwrap();
    assert_eq!(taken(&world).await.len(), 2);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["done"; 3])
    );
    let late = adjust(&world, &name, json!({})).await;
    assert_eq!(late.problem().0, 409, "{}", late.text);
    world.check().await;
}

#[tokio::test]
async fn a_wrong_or_fixed_member_changes_nothing() {
    let mut world = serving(1, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    let before = show(&world, &name).await["policy"].clone();
    for (patch, pointer) in [
        (json!({ "waves": { "sizes": [1] } }), "/policy/waves"),
        (json!({ "allow": "in_place" }), "/policy/allow"),
        (json!({ "a/b": 1 }), "/policy/a~1b"),
        (json!({ "canary": null }), "/policy/canary"),
        (json!({ "stall_after_s": 1 }), "/policy/stall_after_s"),
        (
            json!({ "drain": { "deadline": { "after_s": 1, "then": "requeue" } } }),
            "/policy/drain/deadline/after_s",
        ),
        (
            json!({ "visit_by": "2020-01-01T00:00:00Z" }),
            "/policy/visit_by",
        ),
        (
            json!({ "maintenance_window": "none" }),
            "/policy/maintenance_window",
        ),
    ] {
        let refused = adjust(&world, &name, patch.clone()).await.expect(422);
        let fault = &refused.body["errors"][0];
        assert_eq!(fault["pointer"], pointer, "{patch}: {}", refused.text);
        let is_fixed = [
            "/policy/waves",
            "/policy/allow",
            "/policy/canary",
            "/policy/a~1b",
        ]
        .contains(&pointer);
        assert_eq!(
            fault["code"] == "fixed",
            is_fixed,
            "{patch}: {}",
            refused.text
        );
    }
    for (patch, pointer) in [
        (json!({ "budgets": 3 }), "/policy/budgets"),
        (json!({ "budgets": [1] }), "/policy/budgets"),
        (json!({ "budget": { "max_changing": 1 } }), "/policy/budget"),
        (
            json!({ "budgets": { "max_changing": "0%" } }),
            "/policy/budgets/max_changing",
        ),
    ] {
        let refused = adjust(&world, &name, patch.clone()).await;
        let (status, _, at) = refused.problem();
        let expected = if pointer == "/policy/budget" {
            422
        } else {
            400
        };
        assert_eq!(
            (status, at),
            (expected, pointer),
            "{patch}: {}",
            refused.text
        );
    }
    assert_eq!(show(&world, &name).await["policy"], before);
    // Who may plan only may not speed a rollout up.
    let automation = world.server.caller(Role::Automation).await;
    let path = format!("/v1/rollouts/{name}/actions/adjust");
    let more = json!({ "policy": { "budgets": { "max_changing": 2 } }, "reason": "x" });
    automation.post(&path, &more).await.expect(403);
    assert_eq!(show(&world, &name).await["policy"], before);
    // A halted rollout takes the change, and stays halted.
    let reason = json!({ "reason": "the deadline is near" });
    steer(&world, &name, "halt", reason).await.expect(200);
    let halted = adjust(&world, &name, more["policy"].clone())
        .await
        .expect(200)
        .body;
    assert_eq!(halted["state"], "halted");
    settle(&mut world).await;
    assert_eq!(taken(&world).await.len(), 0);
}

#[tokio::test]
async fn a_part_of_a_member_is_changed_and_null_removes_it() {
    let world = serving(1, json!("100%")).await;
    let mut dated = at_once();
    dated["drain"] = json!({ "deadline": { "after_s": 3600, "then": "ask" } });
    dated["visit_by"] = json!(world.server.app.clock.now() + SignedDuration::from_hours(24));
    let name = start(&world, 2, &dated).await;
    let change = json!({
        "drain": { "deadline": { "after_s": 7200 } },
        "failure_budget": { "count": 4 },
    });
    let seen = adjust(&world, &name, change).await.expect(200).body;
    let drain = json!({ "deadline": { "after_s": 7200, "then": "ask" } });
    assert_eq!(seen["policy"]["drain"], drain);
    assert_eq!(seen["policy"]["failure_budget"], json!({ "count": 4 }));
    let change = json!({
        "drain": null,
        "visit_by": null,
        "budgets": { "max_changing": null },
        "failure_budget": { "count": null, "percent": 20 },
    });
    let seen = adjust(&world, &name, change).await.expect(200).body;
    let policy = &seen["policy"];
    assert_eq!(
        (&policy["drain"], &policy["visit_by"]),
        (&json!("wait"), &Value::Null)
    );
    assert_eq!(policy["budgets"]["max_changing"], "5%");
    assert_eq!(policy["failure_budget"], json!({ "percent": 20 }));
    // Both limits may not be removed.
    let neither = json!({ "failure_budget": { "percent": null } });
    let refused = adjust(&world, &name, neither).await.expect(422);
    assert!(
        refused.text.contains("/policy/failure_budget"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn another_window_starts_the_waits_anew() {
    let mut world = serving(1, json!("100%")).await;
    declare(&world, "hour", &daily(&world, -600)).await;
    run_job(&world, "17", None, &["n1"]);
    let mut nightly = at_once();
    nightly["drain"] = json!({ "deadline": { "after_s": 7200, "then": "skip" } });
    nightly["maintenance_window"] = json!("hour");
    let name = start(&world, 2, &nightly).await;
    settle(&mut world).await;
    world.advance(24 * 3600 + 1200);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting"]);
    // Without windows the node has waited a whole day. The day was closed when it passed.
    adjust(&world, &name, json!({ "maintenance_window": null }))
        .await
        .expect(200);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting"]);
    world.advance(7200);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["skipped"]);
}

#[tokio::test]
async fn a_window_never_open_with_the_others_is_refused() {
    let world = serving(1, json!("100%")).await;
    let at = |start: &str| {
        let weekly = json!([{ "days": ["mon"], "start": start, "length_min": 60 }]);
        json!({ "time_zone": "UTC", "weekly": weekly })
    };
    declare(&world, "ten", &at("10:00")).await;
    declare(&world, "noon", &at("12:00")).await;
    give(&world, "/v1/pools/gpu", json!("ten")).await;
    let name = start(&world, 2, &at_once()).await;
    let noon = json!({ "maintenance_window": "noon" });
    let refused = adjust(&world, &name, noon).await.expect(409);
    assert_eq!(refused.body["code"], "never_open", "{}", refused.text);
    let policy = show(&world, &name).await["policy"].clone();
    assert!(policy["maintenance_window"].is_null(), "{policy}");
}
