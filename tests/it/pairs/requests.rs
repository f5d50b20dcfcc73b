//! Requests for a run: refusals, the choice and the order of nodes, the console.

use muster_api::tokens::Role;
use muster_server::db;
use serde_json::{Value, json};

use super::{RUN, begin, found, given_back, serving, suite, told, verdicts};
use crate::simulated::World;
use crate::support::server::{Caller, Reply};

/// The form of a run.
const FORM: &str = "/ui/pools/gpu/pairs";

#[tokio::test]
async fn what_cannot_be_measured_is_refused_and_says_why() {
    let mut world = serving().await;
    let ask = async |body: Value| world.admin.post(RUN, &body).await;
    expect_refusals(&world).await;
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
    // The nodes without a measurement come first.
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

/// Refuses a wrong suite, wrong nodes, too few nodes and an unknown pool.
async fn expect_refusals(world: &World) {
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
}

/// Many nodes get a new order in every run, without MD5: a host under FIPS refuses MD5.
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
    assert!(
        world
            .admin
            .get("/pools/gpu")
            .await
            .expect(200)
            .text
            .contains(&format!("action=\"{FORM}\""))
    );
    let nobody = press(&form, "").await.expect(409);
    assert!(
        nobody.text.contains("Fewer than two nodes of gpu are idle"),
        "{}",
        nobody.text
    );
    for name in ["n1", "n2"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    expect_viewer_refused(&world).await;
    let shown = press(&form, "").await.expect(200).text;
    for word in [
        "/nodes/n1",
        "/nodes/n2",
        "<option selected>pairs</option>",
        "value=\"measure\"",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    expect_form_refusals(&form).await;
    assert_eq!(told(&world, "pairs.started").await, 0, "only shown");

    let begun = press(&form, "suite=pairs&most=2&step=measure")
        .await
        .expect(303);
    let place = begun.headers["location"].to_str().unwrap().to_owned();
    let run = place.strip_prefix("/pools/gpu?run=").unwrap();
    assert_eq!(found(&world, run).await["state"], "running");
    let page = world.admin.get(&place).await.expect(200).text;
    assert!(
        page.contains(&format!("/operations/{run}")) && !page.contains(FORM),
        "one run at a time: {page}"
    );
    // The button is pressed twice, or on an old page.
    let again = press(&form, "suite=pairs&step=measure").await;
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

async fn press(form: &Caller, body: &str) -> Reply {
    form.send(reqwest::Method::POST, FORM, body.into()).await
}

/// A viewer has no button, and the form is refused.
async fn expect_viewer_refused(world: &World) {
    let viewer = world.server.caller(Role::Viewer).await;
    assert!(
        !viewer
            .get("/pools/gpu")
            .await
            .expect(200)
            .text
            .contains(FORM)
    );
    let typed = viewer.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(
        typed
            .send(
                reqwest::Method::POST,
                FORM,
                b"step=measure&suite=pairs".to_vec()
            )
            .await
            .status,
        403
    );
}

/// Refuses wrong fields of the form.
async fn expect_form_refusals(form: &Caller) {
    for (wrong, status, says) in [
        ("suite=nothing", 422, "There is no suite called"),
        ("suite=pairs&most=many", 422, "2 to 256 nodes"),
        (
            "suite=pairs&rdma_device=-d&step=measure",
            422,
            "Letters, digits",
        ),
    ] {
        let refused = press(form, wrong).await;
        assert_eq!(
            (refused.status, refused.text.contains(says)),
            (status, true),
            "{wrong}: {}",
            refused.text
        );
    }
}
