//! The count of nodes out: the nodes of a pair run, and the accounts of an act.

use muster_api::tokens::Role;
use muster_core::ids::NodeId;
use muster_core::rollout::{Ledger, Member, build_budget};
use muster_server::db;
use muster_server::db::disruption::MemberRow;
use serde_json::{Value, json};

use super::{account, parity, serving, why};
use crate::pairs;
use crate::schedulers::say;
use crate::support::fleet;

#[tokio::test]
async fn a_pair_run_leaves_out_the_nodes_without_a_slot() {
    let world = serving(6, json!(2), json!([])).await;
    world
        .admin
        .put("/v1/suites/pairs", &pairs::suite())
        .await
        .expect(201);
    let run = "/v1/pools/gpu/actions/run-pairs";
    world.ask("n1", "maintain").await.expect(202);
    world.engine().await;
    // One slot is free, and a run needs two nodes.
    let refused = world.admin.post(run, &json!({ "suite": "pairs" })).await;
    assert_eq!(refused.problem().0, 409, "{}", refused.text);
    assert!(
        refused
            .text
            .contains("the disruption budget has no free slot"),
        "{}",
        refused.text
    );
    let beyond = json!({ "suite": "pairs", "override_budget": "before the handover" });
    let automation = world.server.caller(Role::Automation).await;
    assert_eq!(automation.post(run, &beyond).await.status, 403);
    let mut pool = fleet::pool();
    pool["spec"]["max_unavailable"] = json!(3);
    world.admin.put("/v1/pools/gpu", &pool).await.expect(200);
    let begun = world
        .admin
        .post(run, &json!({ "suite": "pairs" }))
        .await
        .expect(202);
    let id = begun.body["id"].as_str().unwrap();
    let path = format!("/v1/pools/gpu/pair-runs/{id}");
    let ends = world.admin.get(&path).await.expect(200).body["ends"].clone();
    let left = |end: &&Value| end["verdict"] == "left_out";
    assert_eq!(
        ends.as_array().unwrap().iter().filter(left).count(),
        4,
        "{ends:#}"
    );
    // The nodes of the run count before the scheduler holds the nodes back.
    assert_eq!(account(&world).await, (3, 3, 6));
    world.ask("n6", "maintain").await.expect(202);
    world.engine().await;
    assert_eq!(why(&world, "n6").await.0, "disruption_budget");
}

/// The accounts of an act equal the accounts of the list of all members. Serving nodes outside the
/// failure domains of the act have no row.
#[tokio::test]
async fn an_act_counts_the_members_without_their_rows() {
    let mut world = serving(8, json!("50%"), parity(json!("50%"))).await;
    world
        .admin
        .put("/v1/pools/other", &fleet::pool())
        .await
        .expect(201);
    world.release("n3").await.expect(202);
    world.settle().await;
    let body = json!({ "name": "c3", "spec": { "pool": "other", "node": "n3" } });
    world.admin.post("/v1/claims", &body).await.expect(201);
    world.settle().await;
    world.ask("n6", "maintain").await.expect(202);
    world.settle().await;
    say(&mut world, &[("n4", "drained", Some("broken fan"))]).await;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    sqlx::query("UPDATE nodes SET held_back = true WHERE name = 'n8'")
        .execute(&mut *conn)
        .await
        .unwrap();
    let now = world.server.app.clock.now();
    for (name, listed, serving) in [
        ("n1", "n1 n3 n4 n5 n6 n7 n8", 1),
        ("n2", "n2 n4 n6 n8", 3),
        ("n3", "n1 n3 n5 n7", 0),
    ] {
        let path = format!("/v1/nodes/{name}");
        let id = world.admin.get(&path).await.expect(200).body["id"].clone();
        let id: NodeId = serde_json::from_value(id).unwrap();
        let place = db::disruption::list_places(&mut conn, &[id]).await.unwrap();
        let (pool, site) = (place[0].pool, place[0].site);
        let budgets = db::disruption::find_budgets(&mut conn, pool, site).await;
        let budgets = budgets.unwrap().unwrap();
        let axes = &budgets.axes;
        let domains = place[0].domains(axes);
        let all = db::disruption::list_members(&mut conn, pool, Some(site), axes, &domains);
        let all = all.await.unwrap();
        let acting = [id];
        let few = db::disruption::count_for_acts(&mut conn, pool, site, axes, &domains, &acting);
        let few = few.await.unwrap();
        let names: Vec<&str> = few.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names.join(" ").as_str(), few.serving), (listed, serving));
        let read = |rows: &[MemberRow]| -> Vec<Member> {
            rows.iter().map(|row| row.member(site, axes)).collect()
        };
        let (all, rows) = (read(&all), read(&few.rows));
        let budget = build_budget(budgets.max_unavailable, axes, &all);
        let whole = Ledger::open(&budget, &all, now);
        let counted = Ledger::open_beside(&budget, &rows, few.serving, now);
        assert_eq!(counted.pool(), whole.pool(), "{name}");
        for id in &domains {
            assert_eq!(counted.domain(id), whole.domain(id), "{name}");
        }
    }
}
