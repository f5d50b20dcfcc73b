//! The console of rollouts: the list, one rollout, and the forms, all without script.

use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use reqwest::Method;
use serde_json::{Value, json};

use crate::rollout_jobs::run_job;
use crate::rollouts::{marked, plan, policy, serving, settle, show, start, until_one_changes};
use crate::simulated::World;
use crate::support::server::{Caller, Reply};

/// Sends a form as a browser without script does.
async fn post(caller: &Caller, path: &str, form: &str) -> Reply {
    let caller = caller
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "text/html");
    caller.send(Method::POST, path, form.into()).await
}

async fn page(caller: &Caller, path: &str) -> String {
    caller.get(path).await.expect(200).text
}

fn contains(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "{word}: {page}");
    }
}

fn location(reply: &Reply) -> String {
    reply.header("location").to_owned()
}

/// The summaries of the events of a kind.
pub(crate) async fn summaries(world: &World, kind: &str) -> Vec<String> {
    sqlx::query_scalar("SELECT actor || ': ' || summary FROM events WHERE kind = $1 ORDER BY seq")
        .bind(kind)
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_list_names_the_next_command_and_then_each_rollout() {
    let world = serving(3, json!("100%")).await;
    let admin = &world.admin;
    let empty = page(admin, "/rollouts").await;
    contains(
        &empty,
        &["No rollouts yet", "muster rollout plan POOL --revision N"],
    );
    assert!(!page(admin, "/").await.contains("/rollouts/"));
    plan(&world, 2, &policy()).await.expect(201);
    let list = page(admin, "/rollouts").await;
    contains(
        &list,
        &[
            "href=\"/rollouts/gpu-1\"",
            "href=\"/pools/gpu\"",
            "1 → 2",
            "planned",
            "3 not begun",
            "waits for a start",
        ],
    );
    // A plan that waits for a start is on the page of the pool, and not on the first page.
    let pool = page(admin, "/pools/gpu").await;
    contains(
        &pool,
        &[
            "href=\"/rollouts/gpu-1\"",
            "id=\"revisions\"",
            "action=\"/ui/pools/gpu/rollouts\"",
            "stack base 2",
        ],
    );
    assert!(!page(admin, "/").await.contains("/rollouts/gpu-1"));
}

#[tokio::test]
async fn a_plan_is_started_from_its_page_as_shown() {
    let world = serving(3, json!("100%")).await;
    let admin = &world.admin;
    let unknown = post(admin, "/ui/pools/gpu/rollouts", "revision=9").await;
    contains(
        &unknown.expect(422).text,
        &["no revision 9", "Choose a revision"],
    );
    let nothing = post(admin, "/ui/pools/gpu/rollouts", "revision=1").await;
    contains(
        &nothing.expect(409).text,
        &["No node of gpu needs a change"],
    );
    let planned = post(admin, "/ui/pools/gpu/rollouts", "revision=2").await;
    assert_eq!(location(&planned.expect(303)), "/rollouts/gpu-1");
    let digest = show(&world, "gpu-1").await["plan"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = page(admin, "/rollouts/gpu-1").await;
    contains(
        &shown,
        &[
            &digest,
            "3 reboot",
            "No node changes before the start",
            "Estimated end after a start now",
            "Canary",
            "href=\"/nodes/n1\"",
        ],
    );
    let path = "/ui/rollouts/gpu-1/acts/start";
    let digest = digest.replace(':', "%3A");
    let untyped = post(admin, path, &format!("plan={digest}")).await;
    contains(
        &untyped.expect(422).text,
        &["Type the number of planned nodes, 3"],
    );
    let other = format!("plan=sha256%3A{}&typed=3", "0".repeat(64));
    let wrong = post(admin, path, &other).await.expect(409).text;
    contains(
        &wrong,
        &[
            "Nodes or effects have changed since the plan",
            "plan again",
            "Plan again",
        ],
    );
    assert_eq!(show(&world, "gpu-1").await["state"], "planned");
    let begun = post(admin, path, &format!("plan={digest}&typed=3")).await;
    assert_eq!(location(&begun.expect(303)), "/rollouts/gpu-1");
    assert_eq!(show(&world, "gpu-1").await["state"], "running");
    let late = post(admin, path, &format!("plan={digest}&typed=3")).await;
    contains(
        &late.expect(409).text,
        &["gpu-1 is running and cannot be started"],
    );

    // Another plan of the pool takes over only with the box.
    let again = post(admin, "/ui/pools/gpu/rollouts", "revision=2&like=gpu-1").await;
    assert_eq!(location(&again.expect(303)), "/rollouts/gpu-2");
    contains(
        &page(admin, "/rollouts/gpu-2").await,
        &["name=\"supersede\"", "Take over from"],
    );
}

#[tokio::test]
async fn a_rollout_is_halted_by_a_form_and_the_page_says_what_goes_on() {
    let mut world = serving(3, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    let running = page(&world.admin, "/rollouts/gpu-1").await;
    contains(
        &running,
        &[
            "action=\"/ui/rollouts/gpu-1/halt\"",
            "value=\"halted from the console\"",
            "stops at the 1st failure over the whole run; 0 so far",
            "the canary waits for 1 node",
            "1 of at most",
            &format!("{node}: changing"),
        ],
    );
    let fleet = page(&world.admin, "/").await;
    contains(
        &fleet,
        &["href=\"/rollouts/gpu-1\"", "1 changing, 2 not begun"],
    );
    let path = "/ui/rollouts/gpu-1/halt";
    let nothing = post(&world.admin, path, "reason=+").await.expect(422).text;
    contains(&nothing, &["A reason for the next reader"]);
    let halted = post(&world.admin, path, "reason=the+deadline+is+near").await;
    assert_eq!(location(&halted.expect(303)), "/rollouts/gpu-1");
    let halted = page(&world.admin, "/rollouts/gpu-1").await;
    contains(
        &halted,
        &[
            "No further node is taken.",
            "the deadline is near",
            "These nodes finish and return to service",
            &format!("href=\"/nodes/{node}\""),
            "action=\"/ui/rollouts/gpu-1/acts/resume\"",
        ],
    );
    assert!(!halted.contains(path), "{halted}");
    let told = summaries(&world, "rollout.halted").await;
    assert!(
        told.len() == 1 && told[0].contains("the deadline is near") && told[0].contains("admin"),
        "{told:?}"
    );
    settle(&mut world).await;
    contains(
        &page(&world.admin, "/rollouts/gpu-1").await,
        &["No node is changing or validating"],
    );
    resume(&mut world).await;
    world.check().await;
}

/// Resumes from the page, after a confirmation with a reason.
async fn resume(world: &mut World) {
    let path = "/ui/rollouts/gpu-1/acts/resume";
    let asked = post(&world.admin, path, "").await.expect(200).text;
    contains(
        &asked,
        &["Resume gpu-1", "nodes have not begun", "name=\"reason\""],
    );
    assert_eq!(show(world, "gpu-1").await["state"], "halted");
    let nothing = post(&world.admin, path, "step=confirm")
        .await
        .expect(422)
        .text;
    contains(&nothing, &["A reason for the next reader"]);
    let resumed = post(&world.admin, path, "step=confirm&reason=it+is+over").await;
    resumed.expect(303);
    settle(world).await;
    assert_eq!(show(world, "gpu-1").await["state"], "done");
}

#[tokio::test]
async fn a_failed_node_is_retried_and_the_way_back_is_planned_from_the_page() {
    let mut world = serving(3, json!("100%")).await;
    world.gates("n1", &[Verdict::Fail]);
    start(&world, 2, &policy()).await;
    settle(&mut world).await;
    let seen = show(&world, "gpu-1").await;
    assert_eq!(seen["state"], "halted", "{seen:#}");
    let failed = marked(&seen, "failed");
    let other = marked(&seen, "not_begun");
    let shown = page(&world.admin, "/rollouts/gpu-1?mark=failed").await;
    contains(
        &shown,
        &[
            "Retry…",
            "action=\"/ui/rollouts/gpu-1/acts/promote\"",
            "<option>1</option>",
        ],
    );
    assert!(!shown.contains(&format!("id=\"n-{other}\"")), "{shown}");
    let unknown = world.admin.get("/rollouts/gpu-1?mark=lost").await;
    assert_eq!(unknown.status, 422);

    let skip = "/ui/rollouts/gpu-1/acts/skip";
    let asked = post(&world.admin, skip, &format!("node={other}")).await;
    contains(&asked.expect(200).text, &["keeps its present revision"]);
    let form = format!("node={other}&step=confirm&reason=its+user+runs");
    post(&world.admin, skip, &form).await.expect(303);
    let twice = post(&world.admin, skip, &form).await.expect(409).text;
    contains(&twice, &["is skipped in gpu-1"]);
    let retry = "/ui/rollouts/gpu-1/acts/retry";
    let form = format!("node={failed}&step=confirm&reason=a+cable");
    post(&world.admin, retry, &form).await.expect(303);
    let seen = show(&world, "gpu-1").await;
    assert_eq!(marked(&seen, "skipped"), other);
    assert!(summaries(&world, "rollout.node").await.len() >= 2);

    // The way back keeps the policy of the rollout.
    let back = post(
        &world.admin,
        "/ui/pools/gpu/rollouts",
        "revision=1&like=gpu-1",
    )
    .await;
    match back.status {
        303 => {
            let back = show(&world, "gpu-2").await;
            assert_eq!(
                (&back["revision"], &back["policy"]),
                (&json!(1), &show(&world, "gpu-1").await["policy"])
            );
        }
        // No node runs revision 2 yet.
        _ => contains(&back.expect(409).text, &["needs a change for revision 1"]),
    }
    let foreign = post(
        &world.admin,
        "/ui/pools/gpu/rollouts",
        "revision=1&like=other-1",
    )
    .await;
    assert_eq!(foreign.status, 404);
}

#[tokio::test]
async fn a_reader_without_the_rights_has_no_buttons() {
    let mut world = serving(2, json!("100%")).await;
    let viewer = world.server.caller(Role::Viewer).await;
    let automation = world.server.caller(Role::Automation).await;
    start(&world, 2, &policy()).await;
    until_one_changes(&mut world, "gpu-1").await;
    let shown = page(&viewer, "/rollouts/gpu-1").await;
    assert!(!shown.contains("action=\"/ui/"), "{shown}");
    assert!(
        !page(&viewer, "/pools/gpu")
            .await
            .contains("/ui/pools/gpu/rollouts")
    );
    for (path, form) in [
        ("/ui/rollouts/gpu-1/halt", "reason=x"),
        ("/ui/rollouts/gpu-1/acts/promote", "step=confirm&reason=x"),
        (
            "/ui/rollouts/gpu-1/acts/skip",
            "node=n1&step=confirm&reason=x",
        ),
        ("/ui/pools/gpu/rollouts", "revision=1"),
    ] {
        let refused = post(&viewer, path, form).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
    }
    // Automation may plan and halt, and may not start.
    let shown = page(&automation, "/rollouts/gpu-1").await;
    contains(&shown, &["/ui/rollouts/gpu-1/halt"]);
    assert!(!shown.contains("/acts/"), "{shown}");
    let start = post(
        &automation,
        "/ui/rollouts/gpu-1/acts/start",
        "plan=x&typed=2",
    )
    .await;
    assert_eq!(start.status, 403);
    assert_eq!(show(&world, "gpu-1").await["state"], "running");
}

#[tokio::test]
async fn the_answer_has_waves_and_an_estimated_end() {
    let world = serving(4, json!("100%")).await;
    world.agent.report_jobs().await.unwrap();
    let planned = plan(&world, 2, &policy()).await.expect(201).body;
    assert_eq!(planned["from"], json!([1]));
    assert_eq!(
        planned["estimate"],
        Value::Null,
        "only where a person reads"
    );
    let seen = show(&world, "gpu-1").await;
    let waves: Vec<i64> = seen["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["wave"].as_i64().unwrap())
        .collect();
    assert_eq!(waves, [0, 1, 1, 2], "{seen:#}");
    let end = &seen["estimate"];
    assert!(end["early"].as_str() < end["late"].as_str(), "{end:#}");
    assert!(!end["assumes"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_plan_takes_over_from_the_open_rollout_only_with_the_box() {
    let world = serving(2, json!("100%")).await;
    start(&world, 2, &policy()).await;
    let next = plan(&world, 2, &policy()).await.expect(201).body;
    let digest = next["plan"].as_str().unwrap().replace(':', "%3A");
    let path = "/ui/rollouts/gpu-2/acts/start";
    let form = format!("plan={digest}&typed=2");
    let refused = post(&world.admin, path, &form).await.expect(409).text;
    contains(&refused, &["gpu-1 is running"]);
    assert_eq!(show(&world, "gpu-1").await["state"], "running");
    let begun = post(&world.admin, path, &format!("{form}&supersede=on")).await;
    begun.expect(303);
    let state = async |name: &str| show(&world, name).await["state"].clone();
    assert_eq!(state("gpu-1").await, "superseded");
    assert_eq!(state("gpu-2").await, "running");
}

#[tokio::test]
async fn budgets_are_adjusted_by_a_form() {
    let world = serving(2, json!("100%")).await;
    start(&world, 2, &policy()).await;
    let shown = page(&world.admin, "/rollouts/gpu-1").await;
    contains(
        &shown,
        &["Adjust budgets", "name=\"max_changing\" value=\"100%\""],
    );
    let path = "/ui/rollouts/gpu-1/acts/adjust";
    let shown =
        "shown_changing=100%25&shown_waiting=100%25&shown_validating=100%25&shown_failures=0";
    let form = |changing: &str| {
        format!(
            "max_changing={changing}&max_waiting=100%25&max_validating=3&failures=2&reason=night&{shown}"
        )
    };
    let refused = post(&world.admin, path, &form("many")).await.expect(422);
    contains(
        &refused.text,
        &[
            "Nodes that change: &#34;many&#34; is no amount",
            "Halt",
            "id=\"adjust\" open",
            "name=\"max_changing\" value=\"many\"",
            "name=\"shown_changing\" value=\"100%\"",
            "name=\"reason\" value=\"night\"",
        ],
    );
    let taken = post(&world.admin, path, &form("1")).await.expect(303);
    assert_eq!(location(&taken), "/rollouts/gpu-1");
    let policy = show(&world, "gpu-1").await["policy"].clone();
    let budgets = json!({ "max_changing": 1, "max_waiting": "100%", "max_validating": 3 });
    assert_eq!(
        (&policy["budgets"], &policy["failure_budget"]["count"]),
        (&budgets, &json!(2))
    );
    assert!(policy["failure_budget"]["percent"].is_null(), "{policy}");
    // A value left alone keeps the change of another person.
    let stale = format!(
        "max_changing=100%25&max_waiting=1&max_validating=100%25&failures=0&reason=day&{shown}"
    );
    post(&world.admin, path, &stale).await.expect(303);
    let policy = show(&world, "gpu-1").await["policy"].clone();
    let budgets = json!({ "max_changing": 1, "max_waiting": 1, "max_validating": 3 });
    assert_eq!(
        (&policy["budgets"], &policy["failure_budget"]["count"]),
        (&budgets, &json!(2))
    );
    let viewer = world.server.caller(Role::Viewer).await;
    let shown = page(&viewer, "/rollouts/gpu-1").await;
    assert!(!shown.contains("Adjust budgets"));
}

#[tokio::test]
async fn the_way_back_needs_neither_the_date_nor_the_window_of_the_rollout() {
    let mut world = serving(1, json!("100%")).await;
    let admin = world.admin.clone();
    let window = json!({ "spec": { "time_zone": "UTC" } });
    let path = "/v1/maintenance_windows/once";
    admin.put(path, &window).await.expect(201);
    let mut dated = policy();
    dated["maintenance_window"] = json!("once");
    let in_a_day = world.server.app.clock.now() + jiff::SignedDuration::from_hours(24);
    dated["visit_by"] = json!(in_a_day);
    start(&world, 2, &dated).await;
    settle(&mut world).await;
    assert_eq!(show(&world, "gpu-1").await["state"], "done");
    let removed = admin.header("if-match", "*").delete(path).await;
    removed.expect(204);
    world.advance(25 * 3600);
    let form = "revision=1&like=gpu-1";
    let back = post(&admin, "/ui/pools/gpu/rollouts", form).await;
    assert_eq!(location(&back.expect(303)), "/rollouts/gpu-2");
    let policy = show(&world, "gpu-2").await["policy"].clone();
    assert!(policy["visit_by"].is_null(), "{policy}");
    assert!(policy["maintenance_window"].is_null(), "{policy}");
}

#[tokio::test]
async fn the_jobs_of_a_waiting_node_are_requeued_from_the_page() {
    let mut world = serving(1, json!("100%")).await;
    run_job(&world, "17", None, &["n1"]);
    start(&world, 2, &policy()).await;
    let act = "/ui/rollouts/gpu-1/acts/requeue";
    let before = page(&world.admin, "/rollouts/gpu-1").await;
    assert!(!before.contains(act), "{before}");
    settle(&mut world).await;
    let waits = page(&world.admin, "/rollouts/gpu-1").await;
    contains(&waits, &[act, "aria-label=\"Requeue… n1\"", "Skip…"]);
    let asked = post(&world.admin, act, "node=n1").await.expect(200).text;
    contains(
        &asked,
        &[
            "Requeue the jobs of n1 for gpu-1",
            "the scheduler requeues every job on n1 at that time",
            "muster rollout requeue gpu-1 n1 --reason REASON",
        ],
    );
    let none = post(&world.admin, act, "node=n1&step=confirm&reason=").await;
    none.expect(422);
    let form = "node=n1&step=confirm&reason=its+user+agrees";
    let done = post(&world.admin, act, form).await.expect(303);
    assert_eq!(location(&done), "/rollouts/gpu-1");
    let agreed = page(&world.admin, "/rollouts/gpu-1").await;
    contains(&agreed, &["(its jobs may be requeued)"]);
    assert!(!agreed.contains(act), "{agreed}");
    settle(&mut world).await;
    assert_eq!(world.rack().scheduler.requeued, ["17"]);
    let event = summaries(&world, "rollout.node").await;
    let told = "rollout gpu-1: n1 waits, and its jobs may be requeued: its user agrees";
    assert!(event.iter().any(|one| one.ends_with(told)), "{event:?}");
}
