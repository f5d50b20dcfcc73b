//! Pairs of a pool: idle nodes are held, measured against each other in rounds, and given back; a bad node and a bad path are told apart; nothing
//! that was lost, stopped or refused blames anybody.

use muster_api::tokens::Role;
use muster_core::clusters::DrainReason;
use muster_core::wire::scheduler::{ClusterLook, NodeOut, SchedulerReport, SchedulerWatch};
use muster_server::db;
use serde_json::{Value, json};

use crate::simulated::{Fuel, World};

pub(crate) fn suite() -> Value {
    json!({ "spec": { "name": "pairs", "version": "1", "gates": [{
        "id": "iperf3-pair", "title": "TCP between the two is fast enough", "stage": "pair", "timeout_s": 40, "parser": "iperf3",
        "argv": ["iperf3", "--client", "${peer_address}", "--port", "${pair_port}", "--json"],
        "needs": ["drained"], "effects": ["network_load"], "finding": "The way between the two is slow.",
        "criteria": [{ "metric": "network.received", "op": ">=", "limit": 9.0, "unit": "Gb/s" }],
        "peer": { "argv": ["iperf3", "--server", "--one-off", "--port", "${pair_port}"], "ready_s": 10 },
    }]}})
}

const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

/// Six nodes in service, and a suite of pairs.
async fn serving() -> World {
    let mut world = World::start(6).await;
    world.settle().await;
    for name in NODES {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    for name in NODES {
        assert_eq!(world.state(name).await, "in_service");
    }
    world
        .admin
        .put("/v1/suites/pairs", &suite())
        .await
        .expect(201);
    world
}

const RUN: &str = "/v1/pools/gpu/actions/run-pairs";

async fn begin(world: &World) -> String {
    let begun = world
        .admin
        .post(RUN, &json!({ "suite": "pairs" }))
        .await
        .expect(202);
    begun.body["id"].as_str().unwrap().to_owned()
}

async fn found(world: &World, run: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/pools/gpu/pair-runs/{run}"))
        .await
        .expect(200)
        .body
}

async fn operation(world: &World, run: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/operations/{run}"))
        .await
        .expect(200)
        .body
}

/// Each node with its verdict.
fn verdicts(run: &Value) -> Vec<(&str, &str)> {
    let ends = run["ends"].as_array().unwrap().iter();
    ends.map(|end| {
        (
            end["node"].as_str().unwrap(),
            end["verdict"].as_str().unwrap(),
        )
    })
    .collect()
}

fn pairs(run: &Value) -> &Vec<Value> {
    run["pairs"].as_array().unwrap()
}

async fn told(world: &World, kind: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

/// Nobody is held any more, and no operation is left open: whoever serves takes jobs again.
async fn given_back(world: &World) {
    let count = async |query: &'static str| -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap()
    };
    assert_eq!(
        count("SELECT count(*) FROM pair_ends WHERE back_at IS NULL").await,
        0,
        "not given back"
    );
    assert_eq!(
        count("SELECT count(*) FROM operations WHERE finished_at IS NULL").await,
        0,
        "left open"
    );
    let held =
        "SELECT count(*) FROM pair_ends e JOIN nodes n ON n.id = e.node_id LEFT JOIN jobs back ON back.id = e.back_job
                WHERE e.hold_job IS NOT NULL AND n.state = 'in_service' AND back.state IS DISTINCT FROM 'succeeded'";
    assert_eq!(
        count(held).await,
        0,
        "held, in service, and not let in again"
    );
    world.check().await;
}

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
    // Each failed pair is explained by it, and has what both ends measured.
    let failed: Vec<&Value> = pairs(&run)
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
    for round in 1..=pairs(&run)
        .iter()
        .map(|pair| pair["round"].as_u64().unwrap())
        .max()
        .unwrap()
    {
        let of = pairs(&run).iter().filter(|pair| pair["round"] == round);
        let mut ends: Vec<&Value> = of.flat_map(|pair| [&pair["a"], &pair["b"]]).collect();
        let all = ends.len();
        ends.sort_by_key(|end| end.as_str());
        ends.dedup();
        assert_eq!(ends.len(), all, "round {round}");
    }
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
    // After the first way of a pair; its successor measures both.
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
async fn a_node_that_keeps_its_jobs_is_left_out_and_serves_on() {
    let mut world = serving().await;
    world.fail("n3", "drain", true, 1);
    world.ask("n5", "drain").await.expect(202);
    let id = begin(&world).await;
    world.settle().await;
    let run = found(&world, &id).await;
    let why = |name: &str| {
        let end = run["ends"]
            .as_array()
            .unwrap()
            .iter()
            .find(|end| end["node"] == name)
            .unwrap();
        (
            end["verdict"].as_str().unwrap().to_owned(),
            end["why"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(
        why("n3"),
        (
            "left_out".into(),
            "its scheduler did not hold it: the simulated drain failed".into()
        )
    );
    assert_eq!(
        why("n5"),
        ("left_out".into(), "it was asked to drain".into())
    );
    assert_eq!(why("n1").0, "good");
    assert_eq!(
        (world.state("n3").await.as_str(), run["state"].as_str()),
        ("in_service", Some("done"))
    );
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
async fn a_node_requested_elsewhere_leaves_and_its_results_are_void() {
    let mut world = serving().await;
    // As the drain begins, its network may be anything.
    world.rack().fabric.slow.insert("n6".into());
    let id = begin(&world).await;
    let job = world.until_leased("n1", "pair").await;
    world.ask("n6", "drain").await.expect(202);
    world.engine().await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    let run = found(&world, &id).await;
    let first = pairs(&run)
        .iter()
        .find(|pair| pair["a"] == "n1" && pair["round"] == 1)
        .unwrap();
    assert_eq!(
        (&first["b"], &first["verdict"]),
        (&json!("n6"), &json!("error")),
        "{first:#}"
    );
    let end = run["ends"]
        .as_array()
        .unwrap()
        .iter()
        .find(|end| end["node"] == "n6")
        .unwrap();
    assert_eq!(
        (&end["verdict"], &end["why"]),
        (&json!("unknown"), &json!("it is draining"))
    );
    assert_eq!(world.state("n6").await, "maintenance");
    assert_eq!(
        verdicts(&run)
            .iter()
            .filter(|(_, verdict)| *verdict == "good")
            .count(),
        5
    );
    given_back(&world).await;
}

#[tokio::test]
async fn a_run_that_is_stopped_or_out_of_time_gives_everybody_back() {
    for (late, state, operation_state) in
        [(false, "stopped", "cancelled"), (true, "overdue", "failed")]
    {
        let mut world = serving().await;
        let id = begin(&world).await;
        let job = world.until_leased("n1", "pair").await;
        match late {
            true => world.advance(2 * 3600 + 1),
            false => drop(
                world
                    .admin
                    .post(&format!("/v1/operations/{id}/cancel"), &json!({}))
                    .await
                    .expect(202),
            ),
        }
        world.engine().await;
        assert_eq!(
            found(&world, &id).await["state"],
            "running",
            "nobody gets jobs while they are measured"
        );
        world.agent.work(&job).await.unwrap();
        world.settle().await;
        let run = found(&world, &id).await;
        assert_eq!(run["state"], state, "{run:#}");
        assert!(
            verdicts(&run)
                .iter()
                .all(|(_, verdict)| *verdict != "blamed"),
            "{run:#}"
        );
        assert_eq!(operation(&world, &id).await["state"], operation_state);
        for name in NODES {
            assert_eq!(world.state(name).await, "in_service", "{name}");
        }
        given_back(&world).await;
    }
}

/// Who waits for a run may ask for the next one: until everybody is given back, its operation goes on.
#[tokio::test]
async fn a_run_is_over_when_everybody_is_given_back() {
    let mut world = serving().await;
    let id = begin(&world).await;
    let job = loop {
        let job = world.until_leased("n1", "admit").await;
        if found(&world, &id).await["state"] == "done" {
            break job;
        }
        world.agent.work(&job).await.unwrap();
    };
    world.engine().await;
    let told = operation(&world, &id).await;
    assert_eq!(
        (told["state"].as_str(), told["done"].as_bool()),
        (Some("running"), Some(false)),
        "{told}"
    );
    let message = told["progress"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "15 pairs of 6 nodes: no fault found; the nodes return to the scheduler"
    );
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    let told = operation(&world, &id).await;
    assert_eq!(
        (&told["state"], &told["progress"]["message"]),
        (
            &json!("succeeded"),
            &json!("15 pairs of 6 nodes: no fault found")
        )
    );
    given_back(&world).await;
    let again = begin(&world).await;
    assert_eq!(
        found(&world, &again).await["ends"]
            .as_array()
            .unwrap()
            .len(),
        6,
        "everybody takes part"
    );
}

#[tokio::test]
async fn a_scheduler_that_takes_no_node_back_keeps_no_run_open_for_ever() {
    let mut world = serving().await;
    // Asked once a minute, and the run's operation waits for ten.
    world.fail("n3", "admit", false, 15);
    let id = begin(&world).await;
    world.settle().await;
    let told = operation(&world, &id).await;
    assert_eq!(told["state"], "succeeded", "{told}");
    let message = told["progress"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("; 1 nodes not yet resumed by the scheduler, retried: n3"),
        "{message}"
    );
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

#[tokio::test]
async fn what_cannot_be_measured_is_refused_and_says_why() {
    let mut world = serving().await;
    let ask = async |body: Value| world.admin.post(RUN, &body).await;
    assert_eq!(
        ask(json!({ "suite": "smoke" })).await.problem(),
        (422, "unprocessable", "/suite")
    );
    assert_eq!(
        ask(json!({ "suite": "none" })).await.problem(),
        (422, "unprocessable", "/suite")
    );
    assert_eq!(
        ask(json!({ "suite": "pairs", "nodes": ["n9"] }))
            .await
            .problem(),
        (422, "unprocessable", "/nodes")
    );
    assert_eq!(
        ask(json!({ "suite": "pairs", "nodes": ["n1"] }))
            .await
            .problem()
            .1,
        "too_few"
    );
    assert_eq!(
        world
            .admin
            .post(
                "/v1/pools/none/actions/run-pairs",
                &json!({ "suite": "pairs" })
            )
            .await
            .status,
        404
    );
    let plan = world
        .admin
        .post(&format!("{RUN}?dry_run=true"), &json!({ "suite": "pairs" }))
        .await
        .expect(200)
        .body;
    assert_eq!(
        plan["changes"],
        json!(["6 nodes against each other by pairs 1"])
    );
    let empty = world
        .admin
        .get("/v1/pools/gpu/pair-runs")
        .await
        .expect(200)
        .body;
    assert_eq!(empty["items"], json!([]));

    let begun =
        ask(json!({ "suite": "pairs", "most": 4, "nodes": ["n1", "n2", "n3", "n4", "n5"] }))
            .await
            .expect(202);
    assert_eq!(
        ask(json!({ "suite": "pairs" })).await.problem().0,
        409,
        "one at a time"
    );
    world.settle().await;
    let run = found(&world, begun.body["id"].as_str().unwrap()).await;
    assert_eq!(
        (run["ends"].as_array().unwrap().len(), &run["beyond"]),
        (4, &json!(1))
    );
    // Who was not measured for longest comes first.
    let begun = world
        .admin
        .post(RUN, &json!({ "suite": "pairs", "most": 2 }))
        .await
        .expect(202);
    world.settle().await;
    let run = found(&world, begun.body["id"].as_str().unwrap()).await;
    assert_eq!(verdicts(&run), [("n5", "good"), ("n6", "good")]);
    let page = world
        .admin
        .get("/v1/pools/gpu/pair-runs")
        .await
        .expect(200)
        .body;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&page["items"][0]["id"], &page["items"][0]["pairs"]),
        (&run["id"], &Value::Null),
        "newest first"
    );
    given_back(&world).await;
}

#[tokio::test]
async fn that_a_scheduler_shows_a_held_node_drained_is_no_news() {
    let mut world = serving().await;
    begin(&world).await;
    world.engine().await;
    let epoch = world.agent.epoch;
    let nothing = SchedulerReport {
        epoch,
        looks: vec![],
    };
    let watch: SchedulerWatch = world
        .agent
        .call("/agent/v1/scheduler", &nothing)
        .await
        .unwrap();
    let shown = |reason: &str| {
        let held = NodeOut {
            name: "n1".into(),
            state: "drained".into(),
            reason: Some(reason.into()),
        };
        SchedulerReport {
            epoch,
            looks: vec![ClusterLook {
                cluster: watch.clusters[0].id,
                out: vec![held],
            }],
        }
    };
    let _watch: SchedulerWatch = world
        .agent
        .call(
            "/agent/v1/scheduler",
            &shown(DrainReason::Measurement.as_str()),
        )
        .await
        .unwrap();
    assert_eq!(told(&world, "scheduler.out").await, 0);
    // What its health check finds meanwhile is not Muster's own doing.
    let unfit = shown("muster: gate kernel.new: kernel.xid_fatal is 1 events");
    let _watch: SchedulerWatch = world
        .agent
        .call("/agent/v1/scheduler", &unfit)
        .await
        .unwrap();
    assert_eq!(told(&world, "scheduler.out").await, 1);
    world.settle().await;
    given_back(&world).await;
}

/// Many take part in another order in each run, and by no function that a host under FIPS refuses.
#[tokio::test]
async fn many_are_numbered_without_md5() {
    let world = serving().await;
    let run = begin(&world).await;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    for prepared in [
        "CREATE FUNCTION public.md5(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'unsupported'; END $$",
        "SET search_path = public, pg_catalog",
        "INSERT INTO pair_ends (run_id, name) SELECT id, 'm' || at FROM pair_runs, generate_series(1, 4) at",
    ] {
        sqlx::query(prepared).execute(&mut *conn).await.unwrap();
    }
    db::pairs::ends::number(&mut conn, run.parse().unwrap())
        .await
        .unwrap();
    let query = "SELECT name FROM pair_ends ORDER BY position";
    let names: Vec<String> = sqlx::query_scalar(query)
        .fetch_all(&mut *conn)
        .await
        .unwrap();
    assert!(names.len() == 10 && !names.is_sorted(), "{names:?}");
    let query = "SELECT array_agg(position ORDER BY position) FROM pair_ends";
    let positions: Vec<i32> = sqlx::query_scalar(query)
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    assert_eq!(positions, (0..10).collect::<Vec<i32>>());
}

#[tokio::test]
async fn the_console_says_who_takes_part_before_anything_begins() {
    let mut world = World::start(3).await;
    world.settle().await;
    world
        .admin
        .put("/v1/suites/pairs", &suite())
        .await
        .expect(201);
    let form = world
        .admin
        .header("content-type", "application/x-www-form-urlencoded");
    let path = "/ui/pools/gpu/pairs";
    let post = async |body: &str| form.send(reqwest::Method::POST, path, body.into()).await;
    assert!(
        world
            .admin
            .get("/pools/gpu")
            .await
            .expect(200)
            .text
            .contains(&format!("action=\"{path}\""))
    );
    let nobody = post("").await.expect(409);
    assert!(
        nobody.text.contains("Fewer than two nodes of gpu are idle"),
        "{}",
        nobody.text
    );
    for name in ["n1", "n2"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    // Who may only look has no button, and no form that works.
    let viewer = world.server.caller(Role::Viewer).await;
    assert!(
        !viewer
            .get("/pools/gpu")
            .await
            .expect(200)
            .text
            .contains(path)
    );
    let typed = viewer.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(
        typed
            .send(
                reqwest::Method::POST,
                path,
                b"step=measure&suite=pairs".to_vec()
            )
            .await
            .status,
        403
    );

    let shown = post("").await.expect(200).text;
    for word in [
        "/nodes/n1",
        "/nodes/n2",
        "<option selected>pairs</option>",
        "value=\"measure\"",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    for (wrong, status, says) in [
        ("suite=nothing", 422, "There is no suite called"),
        ("suite=pairs&most=many", 422, "2 to 256 nodes"),
        (
            "suite=pairs&rdma_device=-d&step=measure",
            422,
            "Letters, digits",
        ),
    ] {
        let refused = post(wrong).await;
        assert_eq!(
            (refused.status, refused.text.contains(says)),
            (status, true),
            "{wrong}: {}",
            refused.text
        );
    }
    assert_eq!(told(&world, "pairs.started").await, 0, "only shown");

    let begun = post("suite=pairs&most=2&step=measure").await.expect(303);
    let place = begun.headers["location"].to_str().unwrap().to_owned();
    let run = place.strip_prefix("/pools/gpu?run=").unwrap();
    assert_eq!(found(&world, run).await["state"], "running");
    let page = world.admin.get(&place).await.expect(200).text;
    assert!(
        page.contains(&format!("/operations/{run}")) && !page.contains(path),
        "one run at a time: {page}"
    );
    // Pressed twice, or from a page of before.
    let again = post("suite=pairs&step=measure").await;
    assert_eq!(again.status, 409, "{}", again.text);
    world.settle().await;
    assert_eq!(
        (
            found(&world, run).await["state"].as_str(),
            told(&world, "pairs.started").await
        ),
        (Some("done"), 1)
    );
    given_back(&world).await;
}
