//! Verdicts of a run: bad nodes, bad paths, and failures without a blamed node.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use super::{NODES, begin, found, given_back, operation, pairs, serving, told, verdicts};
use crate::simulated::Fuel;

#[tokio::test]
async fn of_six_nodes_the_one_with_a_bad_link_is_blamed_and_taken_out() {
    let mut world = serving().await;
    world.rack().fabric.slow.insert("n4".into());
    let id = begin(&world).await;
    world.settle().await;
    let run = found(&world, &id).await;
    assert_eq!(run["state"], "done", "{run:#}");
    for (node, verdict) in verdicts(&run) {
        assert_eq!(
            verdict,
            if node == "n4" { "blamed" } else { "good" },
            "{node}: {run:#}"
        );
    }
    expect_explained(&run);
    assert_eq!(world.state("n4").await, "quarantined");
    let reason = world.value("n4", "reason").await.unwrap();
    assert!(
        reason.starts_with("gate iperf3-pair: the node fails with "),
        "{reason}"
    );
    let recoveries = world
        .admin
        .get("/v1/nodes/n4/recoveries")
        .await
        .expect(200)
        .body;
    assert_eq!(recoveries["items"][0]["signature"], "gate:iperf3-pair");
    for name in NODES.into_iter().filter(|name| *name != "n4") {
        assert_eq!(world.state(name).await, "in_service");
    }
    for (kind, times) in [
        ("pairs.started", 1),
        ("pairs.blamed", 1),
        ("pairs.ended", 1),
    ] {
        assert_eq!(told(&world, kind).await, times, "{kind}");
    }
    let operation = operation(&world, &id).await;
    assert_eq!(
        (&operation["kind"], &operation["state"]),
        (&json!("run-pairs"), &json!("succeeded"))
    );
    assert!(
        operation["progress"]["message"]
            .as_str()
            .unwrap()
            .starts_with("n4 fails with "),
        "{operation}"
    );
    let page = world.admin.get("/pools/gpu").await.expect(200).text;
    assert!(
        page.contains("id=\"e-n4\"")
            && page.contains("n4 fails with ")
            && page.contains("n3 and n4: fail"),
        "{page}"
    );
    given_back(&world).await;
}

/// The node `n4` explains every failed pair, and a failed pair has the results of both ends.
fn expect_explained(run: &Value) {
    let failed: Vec<&Value> = pairs(run)
        .iter()
        .filter(|pair| pair["verdict"] == "fail")
        .collect();
    assert!(
        failed.len() >= 2
            && failed
                .iter()
                .all(|pair| pair["a"] == "n4" || pair["b"] == "n4"),
        "{failed:#?}"
    );
    for pair in &failed {
        assert_eq!(
            (&pair["edge"], pair["ways"].as_array().unwrap().len()),
            (&json!("explained"), 2)
        );
        assert_eq!(pair["ways"][0]["results"][0]["gate"], "iperf3-pair");
    }
    // No node is in two pairs of a round.
    for round in 1..=pairs(run)
        .iter()
        .map(|pair| pair["round"].as_u64().unwrap())
        .max()
        .unwrap()
    {
        let of = pairs(run).iter().filter(|pair| pair["round"] == round);
        let mut ends: Vec<&Value> = of.flat_map(|pair| [&pair["a"], &pair["b"]]).collect();
        let all = ends.len();
        ends.sort_by_key(|end| end.as_str());
        ends.dedup();
        assert_eq!(ends.len(), all, "round {round}");
    }
}

#[tokio::test]
async fn that_a_failure_is_waived_is_not_an_agents_to_say() {
    let mut world = serving().await;
    world.rack().fabric.slow.insert("n4".into());
    world.rack().fabric.waives = true;
    let id = begin(&world).await;
    world.settle().await;
    let run = found(&world, &id).await;
    assert!(verdicts(&run).contains(&("n4", "blamed")), "{run:#}");
    assert!(
        !pairs(&run)
            .iter()
            .any(|pair| pair.to_string().contains("\"waived\"")),
        "{run:#}"
    );
}

#[tokio::test]
async fn a_bad_path_between_two_good_nodes_is_only_shown() {
    let mut world = serving().await;
    world
        .rack()
        .fabric
        .slow_paths
        .insert(("n1".into(), "n6".into()));
    let id = begin(&world).await;
    world.settle().await;
    let run = found(&world, &id).await;
    assert!(
        verdicts(&run).iter().all(|(_, verdict)| *verdict == "good"),
        "{run:#}"
    );
    let told =
        "n1 and n6 fail with each other and pass with others: check the path between the two";
    assert_eq!(run["findings"], json!([told]));
    let edge = pairs(&run)
        .iter()
        .find(|pair| pair["verdict"] == "fail")
        .unwrap();
    assert_eq!(
        (&edge["a"], &edge["b"], &edge["edge"]),
        (&json!("n1"), &json!("n6"), &json!("blamed"))
    );
    for name in NODES {
        assert_eq!(world.state(name).await, "in_service", "{name}");
    }
    given_back(&world).await;
}

#[tokio::test]
async fn an_agent_that_dies_in_the_middle_of_pairs_changes_no_verdict() {
    let mut world = serving().await;
    world.rack().fabric.slow.insert("n2".into());
    let id = begin(&world).await;
    // The agent dies after the first way of a pair. The next agent measures both ways.
    world.fuel = Fuel::First(2);
    world.settle().await;
    let run = found(&world, &id).await;
    assert_eq!(run["state"], "done");
    for (node, verdict) in verdicts(&run) {
        assert_eq!(
            verdict,
            if node == "n2" { "blamed" } else { "good" },
            "{node}: {run:#}"
        );
    }
    let (asked, measured) = (world.rack().fabric.asked.len(), pairs(&run).len());
    assert!(
        asked > measured * 2,
        "pairs were begun, and then measured both ways: {asked} of {measured}"
    );
    assert_eq!(world.state("n2").await, "quarantined");
    given_back(&world).await;
}

#[tokio::test]
async fn errors_blame_nobody() {
    let mut world = serving().await;
    for name in NODES {
        world.fail(name, "pair", false, 20);
    }
    let id = begin(&world).await;
    world.settle().await;
    let run = found(&world, &id).await;
    assert!(
        verdicts(&run)
            .iter()
            .all(|(_, verdict)| *verdict == "unknown"),
        "{run:#}"
    );
    assert!(
        pairs(&run)
            .iter()
            .all(|pair| pair["verdict"] == "error" && pair["why"] == "the simulated pair failed")
    );
    assert_eq!(told(&world, "pairs.blamed").await, 0);
    given_back(&world).await;
}

#[tokio::test]
async fn a_protected_node_is_blamed_and_serves_on() {
    let mut world = serving().await;
    world.rack().fabric.slow.insert("n4".into());
    let id = begin(&world).await;
    let job = world.until_leased("n1", "pair").await;
    world.protect("n4", true).await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    let run = found(&world, &id).await;
    assert!(verdicts(&run).contains(&("n4", "blamed")), "{run:#}");
    assert_eq!(world.state("n4").await, "in_service");
    given_back(&world).await;
}

/// The evidence of a pair is raw text of both machines.
#[tokio::test]
async fn the_text_of_a_pair_is_for_those_who_work_on_nodes() {
    const TEXT: &str = "raw-text-of-a-machine";
    let mut world = serving().await;
    let id = begin(&world).await;
    world.settle().await;
    let write = "UPDATE pair_trials SET ways = replace(ways::text, '\"stdout\": \"\"', '\"stdout\": \"raw-text-of-a-machine\"')::jsonb";
    let written = sqlx::query(write).execute(&world.server.app.pool);
    assert!(written.await.unwrap().rows_affected() > 0);
    let path = format!("/v1/pools/gpu/pair-runs/{id}");
    for (role, is_shown) in [(Role::Operator, true), (Role::Viewer, false)] {
        let caller = world.server.caller(role).await;
        let run = caller.get(&path).await.expect(200);
        assert_eq!(run.text.contains(TEXT), is_shown, "{role:?}: {}", run.text);
        let hidden = if is_shown { Value::Null } else { json!(true) };
        assert_eq!(run.body["evidence_hidden"], hidden, "{role:?}");
        let result = &pairs(&run.body)[0]["ways"][0]["results"][0];
        assert_eq!(result["verdict"], "pass", "{role:?}: {result}");
    }
}
