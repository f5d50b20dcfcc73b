//! Stacks: refused for unfit nodes, compared with installed nodes, and without secrets in answers.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::postgres::Backup;
use crate::support::server::Server;

/// A tuple for no machine: Fabric Manager and driver have different versions.
fn wrong_tuple() -> Value {
    let mut stack = fleet::stack();
    stack["spec"]["packages"] =
        json!({ "nvidia-open": "580.126.20-1", "nvidia-fabricmanager": "580.95.05-1" });
    stack["spec"]["selector"] = json!({ "gpu": "hopper" });
    stack
}

#[tokio::test]
async fn a_wrong_tuple_is_not_published_and_says_why() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let refused = admin.put("/v1/stacks/wrong", &wrong_tuple()).await;
    assert_eq!(
        refused.problem(),
        (422, "unprocessable", "/spec/packages/nvidia-fabricmanager")
    );
    for word in [
        "R3",
        "nvidia-fabricmanager 580.95.05-1",
        "nvidia-open 580.126.20-1",
        "gpu-operator#544",
    ] {
        assert!(refused.text.contains(word), "{word}: {}", refused.text);
    }
    assert_eq!(admin.get("/v1/stacks/wrong").await.status, 404);
    // A plan gives the same reason, and stores no object.
    let wrong = wrong_tuple();
    let body = json!({ "objects": [{ "kind": "stack", "name": "wrong", "spec": wrong["spec"] }] });
    let plan = admin.post("/v1/plan", &body).await.expect(200);
    assert!(
        plan.text.contains("\"incompatible\"") && plan.text.contains("R3"),
        "{}",
        plan.text
    );
    let mut right = wrong_tuple();
    right["spec"]["packages"]["nvidia-fabricmanager"] = json!("580.126.20-1");
    admin.put("/v1/stacks/right", &right).await.expect(201);
    // Values unknown on every node.
    let mut odd = fleet::stack();
    odd["spec"]["files"] =
        json!([{ "path": "/etc/a", "mode": "0644", "content": [{ "value": "hostnam" }] }]);
    let refused = admin.put("/v1/stacks/odd", &odd).await;
    assert_eq!(refused.status, 422);
    assert!(
        refused.text.contains("no value of a node"),
        "{}",
        refused.text
    );
}

/// Sets the GPU in the newest inventory of a node, by PCI device.
pub(crate) async fn has_gpu(world: &World, node: &str, device: &str) {
    let address = "0000:1b:00.0";
    let gpu = json!({ "pci_address": address, "vendor": "10de" });
    let function =
        json!({ "address": address, "class": "0302", "vendor": "10de", "device": device });
    let seen = json!({ "gpus": [gpu], "pci": [function] });
    let set = "UPDATE facts SET facts = facts || $2 WHERE node_id = (SELECT id FROM nodes WHERE name = $1)";
    sqlx::query(set)
        .bind(node)
        .bind(seen)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
}

/// Changes the stack to proprietary kernel modules, right for the selected family Hopper.
pub(crate) fn closed_modules(path: &str, mut body: Value) -> Value {
    if path == "/v1/stacks/base" {
        let package = json!({ "name": "cuda-drivers", "version": "580.126.20-1", "arch": "amd64", "size": 1, "sha256": fleet::digest("x"),
                              "filename": "cuda-drivers.deb" });
        body["spec"]["selector"] = json!({ "gpu": "hopper" });
        body["spec"]["packages"] = json!({ "cuda-drivers": "580.126.20-1" });
        body["spec"]["lock"]["packages"] = json!([package]);
    }
    body
}

async fn planned(world: &World, object: &Value) -> Value {
    world
        .admin
        .post("/v1/plan", &json!({ "objects": [object] }))
        .await
        .expect(200)
        .body["objects"][0]
        .clone()
}

/// Level, nodes and sentence of the first finding of a rule in a plan.
fn said(plan: &Value, rule: &str) -> (String, Value, String) {
    let all = plan["findings"].as_array().cloned().unwrap_or_default();
    let one = all
        .iter()
        .find(|one| one["finding"]["rule"] == rule)
        .unwrap_or_else(|| panic!("no {rule} in {plan}"));
    let text = |word: &str| one["finding"][word].as_str().unwrap_or_default().to_owned();
    (text("level"), one["nodes"].clone(), text("sentence"))
}

#[tokio::test]
async fn a_stack_for_other_hardware_is_refused_before_anything_is_touched() {
    let mut world = World::declare(3, closed_modules).await;
    world.settle().await;
    for (node, device) in [("n1", "2901"), ("n2", "2330"), ("n3", "ffff")] {
        has_gpu(&world, node, device).await;
    }
    let claim = |node: &str| json!({ "kind": "claim", "name": format!("of-{node}"), "spec": { "pool": "gpu", "node": node } });
    // Right in general, and wrong for the GPUs of the node: a claim by name is refused, and the plan gives the reason.
    let refused = planned(&world, &claim("n1")).await;
    let why = refused["blockers"][0]["detail"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(refused["blockers"][0]["code"], "incompatible", "{refused}");
    for word in [
        "n1",
        "R6: cuda-drivers 580.126.20-1",
        "wrong flavour for blackwell",
        "docs.nvidia.com",
    ] {
        assert!(why.contains(word), "{word}: {why}");
    }
    let body = json!({ "name": "c1", "spec": { "pool": "gpu", "node": "n1" } });
    for path in ["/v1/claims?dry_run=true", "/v1/claims"] {
        assert_eq!(
            world.admin.post(path, &body).await.problem(),
            (409, "incompatible", ""),
            "{path}"
        );
    }
    // The right node, and a node with an unknown GPU: the finding is shown, and blocks no claim.
    assert_eq!(planned(&world, &claim("n2")).await.get("findings"), None);
    let other = planned(&world, &claim("n3")).await;
    assert_eq!(
        (&other["blockers"], said(&other, "selector").0.as_str()),
        (&json!([]), "unknown")
    );

    // A claim by selector: the unfit node is left, and the disk is not written.
    let any = json!({ "kind": "claim", "name": "any", "spec": { "pool": "gpu", "selector": {} } });
    assert_eq!(said(&planned(&world, &any).await, "R6").1, json!(["n1"]));
    world
        .admin
        .post(
            "/v1/claims",
            &json!({ "name": "any", "spec": { "pool": "gpu", "selector": {} } }),
        )
        .await
        .expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    let events = world
        .admin
        .get("/v1/nodes/n1/events")
        .await
        .expect(200)
        .text;
    assert!(events.contains("wrong flavour for blackwell"), "{events}");
    assert!(
        !world
            .history("n1")
            .await
            .contains(&"step.succeeded write_image".to_owned())
    );
}

#[tokio::test]
async fn a_node_in_service_is_not_drained_for_a_stack_that_its_hardware_refuses() {
    let mut world = World::declare(2, closed_modules).await;
    world.settle().await;
    for node in ["n1", "n2"] {
        has_gpu(&world, node, "2330").await;
        world.claim(node).await.expect(201);
    }
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    // The boards were replaced.
    has_gpu(&world, "n1", "2942").await;
    let mut next = closed_modules("/v1/stacks/base", fleet::stack());
    next["spec"]["version"] = json!("2");
    next["spec"]["sysctl"] = json!({ "vm.swappiness": "1" });
    let stack = json!({ "kind": "stack", "name": "base", "spec": next["spec"] });
    let told = said(&planned(&world, &stack).await, "selector");
    assert_eq!(
        (told.0.as_str(), told.1),
        ("unknown", json!(["n1"])),
        "nobody wrote that device down"
    );
    has_gpu(&world, "n1", "2342").await;
    let told = said(&planned(&world, &stack).await, "R6");
    assert_eq!((told.0.as_str(), told.1), ("refused", json!(["n1"])));
    assert!(told.2.contains("grace hopper"), "{}", told.2);
    let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200).text;
    assert!(drift.contains("wrong flavour for grace hopper"), "{drift}");
    for path in [
        "/v1/nodes/n1/actions/converge?dry_run=true",
        "/v1/nodes/n1/actions/converge",
    ] {
        let refused = world.admin.post(path, &json!({})).await;
        assert!(
            refused.problem().1 == "incompatible" && refused.text.contains("R6"),
            "{path}: {}",
            refused.text
        );
    }
    world.settle().await;
    assert!(!world.states("n1").await.contains(&"draining".to_owned()));
    world.ask("n2", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn a_value_that_a_node_lacks_fails_its_plan_and_is_never_empty() {
    let refused = [
        ("label:zone", "has no label for label:zone"),
        ("rail:7", "has no rail:7"),
        ("label:command", "label:command of n1 is not one word"),
        ("label:specifier", "label:specifier of n1 is not one word"),
        ("label:option", "label:option of n1 is not one word"),
    ];
    let labels =
        json!({ "command": "h:/x ; /bin/id", "specifier": "h:/a%20b", "option": "-oexec" });
    for (value, says) in refused {
        let mut world = World::declare(1, |path, mut body| {
            if path == "/v1/nodes/n1" {
                body["labels"] = labels.clone();
            }
            if path == "/v1/stacks/base" {
                body["spec"]["files"] =
                    json!([{ "path": "/etc/a", "mode": "0644", "content": [{ "value": value }] }]);
            }
            body
        })
        .await;
        world.settle().await;
        world.claim("n1").await.expect(201);
        world.settle().await;
        let events = world
            .admin
            .get("/v1/nodes/n1/events")
            .await
            .expect(200)
            .text;
        assert!(
            world.state("n1").await == "failed" && events.contains(says),
            "{events}"
        );
    }
}

#[tokio::test]
async fn a_rail_keeps_its_card_after_a_lost_link() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/stacks/base" {
            body["spec"]["files"] =
                json!([{ "path": "/etc/a", "mode": "0644", "content": [{ "value": "rail:0" }, { "text": "\n" }] }]);
        }
        body
    })
    .await;
    world.settle().await;
    let card = |name: &str, at: &str, link_up: bool| {
        json!({ "name": name, "mac": "52:54:00:00:10:01", "driver": "mlx5_core", "pci_address": at, "speed_mbps": link_up.then_some(400_000),
                "link_up": link_up })
    };
    for (node, first_has_link) in [("n1", true), ("n2", false)] {
        let cards = json!([
            card("ens1", "0000:0a:00.0", first_has_link),
            card("ens2", "0000:1a:00.0", true)
        ]);
        let set = "UPDATE facts SET facts = jsonb_set(facts, '{nics}', $2) WHERE node_id = (SELECT id FROM nodes WHERE name = $1)";
        sqlx::query(set)
            .bind(node)
            .bind(cards)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
        world.claim(node).await.expect(201);
    }
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("in_service", "failed")
    );
    let events = world
        .admin
        .get("/v1/nodes/n2/events")
        .await
        .expect(200)
        .text;
    assert!(
        events.contains("which card is rail 0 cannot be told: ens1 (0000:0a:00.0) has no link"),
        "{events}"
    );
}

#[tokio::test]
async fn a_node_in_service_is_held_against_its_stack_on_demand() {
    let mut world = World::start(1).await;
    world.settle().await;
    assert_eq!(
        world.admin.get("/v1/nodes/n1/drift").await.status,
        404,
        "nobody has looked"
    );
    assert_eq!(
        world.ask("n1", "check-drift").await.problem().0,
        409,
        "there is nothing to compare yet"
    );
    world.claim("n1").await.expect(201);
    world.settle().await;
    let installed = world.admin.get("/v1/nodes/n1/drift").await.expect(200).body;
    assert_eq!(
        (installed["items"].clone(), installed["current"].clone()),
        (json!([]), json!(true))
    );

    // Also on a protected node, because a comparison changes no file. Drift comes at any time, so the comparison is repeated.
    world.protect("n1", true).await;
    for _ in 0..2 {
        let asked = world.ask("n1", "check-drift").await.expect(202);
        world.settle().await;
        assert_eq!(world.operation(&asked).await, "succeeded");
    }
    let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200).body;
    assert_eq!(
        drift["items"],
        json!([{ "item": "package chrony", "found": null, "wanted": null, "class": "none" }])
    );
    assert_eq!(
        (drift["node"].as_str(), drift["stack"].as_str()),
        (Some("n1"), Some("base"))
    );
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("Differences") && page.contains("package chrony"),
        "{page}"
    );
    assert_eq!(world.state("n1").await, "in_service");
    // Recorded once, and shown in the list of nodes.
    let found = world
        .history("n1")
        .await
        .into_iter()
        .filter(|line| line.starts_with("drift."))
        .collect::<Vec<_>>();
    assert_eq!(found, ["drift.found"]);
    assert!(
        world
            .admin
            .get("/v1/nodes/n1/events")
            .await
            .expect(200)
            .text
            .contains("n1 differs from its stack: package chrony")
    );
    assert!(
        world
            .admin
            .get("/")
            .await
            .expect(200)
            .text
            .contains("filter=drifted%3Dtrue")
    );
    let drifted = world
        .admin
        .get("/v1/nodes?filter=drifted%3Dtrue")
        .await
        .expect(200)
        .body;
    assert_eq!(
        drifted["items"][0]["status"]["conditions"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()["condition"],
        "drifted"
    );
    let log = world.machine("n1", |machine| machine.log.len());
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.machine("n1", |machine| machine.log.len()),
        log,
        "no power, no reboot, no image"
    );

    world.protect("n1", false).await;
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world
                .history("n1")
                .await
                .iter()
                .filter(|line| *line == "drift.resolved")
                .count()
        ),
        ("in_service", 1)
    );
    assert!(
        !world
            .admin
            .get("/")
            .await
            .expect(200)
            .text
            .contains("filter=drifted%3Dtrue")
    );

    // Another lock is assigned now, so the former comparison has no meaning.
    let draft = json!({ "spec": {
        "version": "2", "image": "debian-12", "packages": {}, "bundle": fleet::digest("bundle"),
        "lock": { "image_digest": fleet::digest("image"), "arch": "amd64", "packages": [{
            "name": "chrony", "version": "4.3-2", "arch": "amd64", "size": 1, "sha256": fleet::digest("x"), "filename": "chrony.deb" }] },
    }});
    world.admin.put("/v1/stacks/base", &draft).await.expect(200);
    let current = async || {
        let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200);
        drift.body["current"].clone()
    };
    assert_eq!(current().await, true, "a published stack is not assigned");
    let path = "/v1/claims/c-n1/actions/assign-revision";
    let assigned = world.admin.post(path, &json!({ "revision": 2 })).await;
    assigned.expect(200);
    assert_eq!(current().await, false);
    world.check().await;
}

#[tokio::test]
async fn every_node_in_service_is_looked_at_once_a_day() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let app = world.server.app.clone();
    let from = muster_core::ids::NodeId(uuid::Uuid::nil());
    let looks = async |world: &World| {
        world
            .history("n1")
            .await
            .iter()
            .filter(|line| *line == "step.succeeded drift")
            .count()
    };
    muster_server::tasks::drift::round(&app, from)
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(looks(&world).await, 0, "its installation was a look");
    for day in 1..=2 {
        world.advance(25 * 3600);
        for _ in 0..2 {
            muster_server::tasks::drift::round(&app, from)
                .await
                .unwrap();
            world.settle().await;
        }
        assert_eq!(
            looks(&world).await,
            day,
            "once a day, however often the round comes"
        );
    }
    assert!(
        !world
            .history("n2")
            .await
            .contains(&"step.queued drift".to_owned()),
        "only what is in service"
    );
    assert_eq!(world.state("n1").await, "in_service");
}

#[tokio::test]
async fn a_stacks_secret_is_in_nothing_that_is_kept_or_shown() {
    const SECRET: &str = "canary-munge-key-of-a-stack";
    let server = Server::start().await;
    let credential = json!({ "spec": { "purpose": "stack", "secret": SECRET } });
    server
        .admin()
        .await
        .put("/v1/credentials/munge-key", &credential)
        .await
        .expect(201);
    let mut world = World::on(server, 1, |path, mut body| {
        if path == "/v1/stacks/base" {
            let content = json!([{ "text": "key=" }, { "secret": "munge-key" }]);
            body["spec"]["files"] =
                json!([{ "path": "/etc/munge/munge.key", "mode": "0400", "content": content }]);
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "converge").await;
    let order = serde_json::to_string(&job).unwrap();
    let sent = base64::engine::general_purpose::STANDARD.encode(format!("key={SECRET}"));
    assert!(
        order.contains(&sent),
        "the order to the agent is the one place that has it, or nothing was searched for"
    );
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    let mut shown = vec![(
        "the database".to_owned(),
        String::from_utf8_lossy(Backup::of(&world.server.app.pool).bytes()).into_owned(),
    )];
    for path in [
        "/v1/stacks/base",
        "/v1/stacks",
        "/v1/nodes/n1",
        "/v1/nodes/n1/drift",
        "/v1/nodes/n1/events",
        "/v1/nodes/n1/timeline",
        "/v1/nodes/n1/gate-runs",
        "/v1/operations",
        "/v1/events",
        "/v1/credentials/munge-key",
        "/nodes/n1",
    ] {
        shown.push((path.to_owned(), world.admin.get(path).await.text));
    }
    let stack: muster_core::stacks::StackSpec = serde_json::from_value(
        world.admin.get("/v1/stacks/base").await.expect(200).body["spec"].clone(),
    )
    .unwrap();
    let other = muster_core::stacks::StackSpec {
        files: Vec::new(),
        ..stack.clone()
    };
    let diff = muster_core::stacks::diff::diff(&other, &stack);
    assert!(
        format!("{diff:?}").contains("{secret munge-key}"),
        "it is told by its name"
    );
    shown.push((
        "the diff".into(),
        format!("{diff:?}{}", serde_json::to_string(&diff).unwrap()),
    ));
    let plain = base64::engine::general_purpose::STANDARD_NO_PAD.encode(SECRET);
    for (place, text) in shown {
        for form in [
            SECRET,
            &sent,
            &plain[..plain.len() - 1],
            &hex::encode(SECRET),
        ] {
            assert!(!text.contains(form), "the secret is in {place}");
        }
    }
}
