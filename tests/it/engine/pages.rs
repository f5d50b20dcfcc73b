//! The console of nodes with a history. The engine wrote the rows behind a page, and the page must
//! read all rows.

use reqwest::Method;
use serde_json::json;

use crate::simulated::World;

/// The path of every page, with the pages of each node, operation and job.
async fn paths(world: &World) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/",
        "/nodes",
        "/operations",
        "/racks",
        "/claims",
        "/pools/gpu",
        "/stacks",
        "/stacks/base",
        "/rollouts",
        "/events",
        "/agents",
        "/webhooks",
    ]
    .map(String::from)
    .to_vec();
    let admin = &world.admin;
    for node in admin.get("/v1/nodes").await.expect(200).body["items"]
        .as_array()
        .unwrap()
    {
        let name = node["name"].as_str().unwrap();
        paths.extend(["", "/console"].map(|page| format!("/nodes/{name}{page}")));
    }
    for operation in admin.get("/v1/operations?limit=100").await.expect(200).body["items"]
        .as_array()
        .unwrap()
    {
        paths.push(format!("/operations/{}", operation["id"].as_str().unwrap()));
        for step in operation["steps"].as_array().unwrap() {
            paths.push(format!("/jobs/{}/log", step["job"].as_str().unwrap()));
        }
    }
    paths
}

async fn every_page_opens(world: &World) {
    let paths = paths(world).await;
    for path in &paths {
        let reply = world.admin.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    }
}

#[tokio::test]
async fn every_page_opens_through_a_life() {
    let mut world = World::start(2).await;
    every_page_opens(&world).await;
    world.settle().await;
    every_page_opens(&world).await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    every_page_opens(&world).await;
    world.release("n1").await;
    world.settle().await;
    every_page_opens(&world).await;
}

/// A form that no page contains. The server names the missing field and starts no action.
#[tokio::test]
async fn a_form_made_by_hand_cannot_leave_out_what_an_action_takes() {
    let mut world = World::start(1).await;
    world.settle().await;
    let person = world
        .admin
        .header("content-type", "application/x-www-form-urlencoded");
    for (action, takes) in [
        ("adopt", "host key"),
        ("replace-parts", "serials"),
        ("release", "claim"),
    ] {
        let path = format!("/ui/nodes/n1/actions/{action}");
        let reply = person
            .send(Method::POST, &path, b"reason=by+hand&typed=n1".to_vec())
            .await
            .expect(422);
        assert!(reply.text.contains(takes), "{action}: {}", reply.text);
    }
    assert_eq!(
        (
            world.value("n1", "wish").await,
            world.state("n1").await.as_str()
        ),
        (None, "available")
    );
    let path = "/ui/nodes/n1/actions/retire";
    person
        .send(Method::POST, path, b"reason=by+hand".to_vec())
        .await
        .expect(303);
    assert_eq!(world.value("n1", "wish").await.as_deref(), Some("retire"));
}

/// The form to adopt a running machine. The form keeps the typed values, marks each wrong field,
/// and shows the plan first.
#[tokio::test]
async fn a_running_machine_is_adopted_from_its_page() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/nodes/n1" {
            body["spec"]["accept"] = json!(false);
        }
        body
    })
    .await;
    world.machine("n1", |machine| machine.install_by_somebody_else());
    world.rack().scheduler.others.insert("n1".into());
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("No credential for an adoption has a secret"),
        "it says what is missing"
    );
    let credential = json!({ "spec": { "purpose": "adopt", "secret": "one-time" } });
    world
        .admin
        .put("/v1/credentials/once", &credential)
        .await
        .expect(201);
    world.settle().await;
    every_page_opens(&world).await;
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("action=\"/ui/nodes/n1/adopt\"") && page.contains("<option>once</option>"),
        "{page}"
    );
    let person = world
        .admin
        .header("content-type", "application/x-www-form-urlencoded");
    let send = async |form: String| {
        person
            .send(Method::POST, "/ui/nodes/n1/adopt", form.into_bytes())
            .await
    };

    let wrong = send(
        "pool=gpu&credential=bmc&host_key=aa%3Abb&claim=No&reason=%3Cb%3E+why&step=adopt".into(),
    )
    .await;
    let wrong = wrong.expect(422).text;
    for kept in [
        "<option selected>gpu</option>",
        "value=\"aa:bb\"",
        "value=\"No\"",
        "value=\"&#60;b&#62; why\"",
    ] {
        assert!(wrong.contains(kept), "{kept} is lost: {wrong}");
    }
    for field in ["credential", "host_key", "claim"] {
        assert!(
            wrong.contains(&format!("id=\"wrong-{field}\"")),
            "{field}: {wrong}"
        );
    }
    assert!(!wrong.contains("id=\"wrong-pool\""), "{wrong}");
    assert_eq!(world.value("n1", "wish").await, None);

    let plan = send("pool=gpu&credential=once&step=plan".into())
        .await
        .expect(200)
        .text;
    assert!(
        plan.contains("/root/.ssh/authorized_keys") && plan.contains("Ask n1 for its host key"),
        "{plan}"
    );
    assert_eq!(
        world.value("n1", "wish").await,
        None,
        "a plan asks for nothing"
    );

    let key = "k".repeat(43);
    let answers =
        format!("pool=gpu&credential=once&host_key=SHA256%3A{key}&claim=&reason=&step=adopt");
    let begun = send(answers.clone()).await.expect(303);
    assert_eq!(begun.headers["location"], "/nodes/n1");
    let twice = send(answers.clone()).await.expect(409).text;
    assert!(
        twice.contains("was asked to adopt") && twice.contains(&key),
        "{twice}"
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    every_page_opens(&world).await;
    let late = send(answers).await.expect(409).text;
    assert!(late.contains("n1 is in_service"), "{late}");
    world.check().await;
}
