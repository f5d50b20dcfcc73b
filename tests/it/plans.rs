//! `POST /v1/plan`: what differs, what it costs whom, what is in the way; and nothing is written.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Server};

/// A document of the kind, as a file declares it.
fn desired(kind: &str, name: &str, body: &Value) -> Value {
    let mut desired = body.clone();
    desired["kind"] = json!(kind);
    desired["name"] = json!(name);
    desired
}

async fn plan(caller: &Caller, objects: &[Value]) -> Value {
    caller
        .post("/v1/plan", &json!({ "objects": objects }))
        .await
        .expect(200)
        .body
}

#[tokio::test]
async fn a_whole_fleet_is_planned_before_any_of_it_is_there() {
    let server = Server::start().await;
    let admin = server.admin().await;
    // In the worst order: the plan sorts by kind.
    let objects = [
        desired("node", "n1", &fleet::node(1)),
        desired("pool", "gpu", &fleet::pool()),
        desired("cluster", "slurm", &fleet::cluster()),
        desired("suite", "smoke", &fleet::suite()),
        desired("stack", "base", &fleet::stack()),
        desired("image", "debian-12", &fleet::image()),
        desired(
            "credential",
            "bmc",
            &json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "canary-19" } }),
        ),
        desired("hardware_profile", "virtual", &fleet::profile()),
        desired("subnet", "prov", &fleet::subnet()),
        desired("rack", "r1", &fleet::rack()),
        desired("site", "lab", &fleet::site()),
    ];
    let mut first = objects.to_vec();
    first.retain(|object| object["kind"] != "site");
    let mut site = fleet::site();
    site["spec"]["maintenance_window"] = json!("nights");
    let window = fleet::maintenance_window();
    first.extend([
        desired("site", "lab", &site),
        desired("maintenance_window", "nights", &window),
    ]);
    let told = plan(&admin, &first).await;
    let all = told["objects"].as_array().unwrap();
    for object in all {
        assert_eq!(
            (&object["change"], &object["blockers"]),
            (&json!("create"), &json!([])),
            "{object}"
        );
    }
    assert!(
        !told.to_string().contains("canary-19"),
        "a secret is not shown"
    );
    assert_eq!(told["effect"], "reboot", "the node is inspected at once");
    let node = all.iter().find(|object| object["kind"] == "node").unwrap();
    assert_eq!(
        (&node["begins"], &node["nodes"]),
        (&json!(true), &json!(["n1"]))
    );
    admin.get("/v1/sites/lab").await.expect(404);

    fleet::declare_pool(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let mut again = objects.to_vec();
    again.retain(|object| object["kind"] != "credential");
    let told = plan(&admin, &again).await;
    assert!(
        told["objects"]
            .as_array()
            .unwrap()
            .iter()
            .all(|object| object["change"] == "none"),
        "{told}"
    );
    assert_eq!(
        told["effect"], "none",
        "the plan after it was applied is empty"
    );
}

#[tokio::test]
async fn a_change_says_what_it_costs_the_nodes_that_it_reaches() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 2).await;
    let claim = json!({ "spec": { "pool": "gpu", "node": "n1" } });
    let told = plan(&admin, &[desired("claim", "c1", &claim)]).await;
    assert_eq!(
        (&told["effect"], &told["objects"][0]["begins"]),
        (&json!("reinstall"), &json!(true))
    );
    assert_eq!(told["objects"][0]["nodes"], json!(["n1"]));
    assert!(!told["objects"][0]["gates"].as_array().unwrap().is_empty());
    admin
        .post(
            "/v1/claims",
            &json!({ "name": "c1", "spec": claim["spec"] }),
        )
        .await
        .expect(201);

    let mut stack = fleet::stack();
    stack["spec"]["version"] = json!("2");
    stack["spec"]["sysctl"] = json!({ "vm.swappiness": "1" });
    let one = |told: &Value| told["objects"][0].clone();
    let told = one(&plan(&admin, &[desired("stack", "base", &stack)]).await);
    assert_eq!(
        (&told["effect"], &told["begins"], &told["nodes"]),
        (&json!("in_place"), &json!(false), &json!(["n1"]))
    );
    let pointers: Vec<&str> = told["diff"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["pointer"].as_str().unwrap())
        .collect();
    assert!(
        pointers.contains(&"/spec/version")
            && pointers.iter().any(|at| at.starts_with("/spec/sysctl")),
        "{pointers:?}"
    );
    stack["spec"]["kernel_args"] = json!(["iommu=pt"]);
    let told = one(&plan(&admin, &[desired("stack", "base", &stack)]).await);
    assert_eq!(told["effect"], "reboot");

    // Another image, and a stack over it, made in the same plan.
    let (mut image, mut over, mut pool) = (fleet::image(), stack.clone(), fleet::pool());
    image["spec"]["name"] = json!("debian-13");
    image["spec"]["raw_digest"] = json!(fleet::digest("another"));
    over["spec"]["image"] = json!("debian-13");
    pool["spec"]["image"] = json!("debian-13");
    pool["spec"]["stack"] = json!("next");
    let objects = [
        desired("pool", "gpu", &pool),
        desired("stack", "next", &over),
        desired("image", "debian-13", &image),
    ];
    let told = plan(&admin, &objects).await;
    let last = told["objects"][2].clone();
    assert_eq!(
        (&last["kind"], &last["effect"], &last["node_count"]),
        (&json!("pool"), &json!("reinstall"), &json!(1)),
        "{told}"
    );
    assert!(!last["gates"].as_array().unwrap().is_empty());
    assert_eq!(told["effect"], "reinstall");
}

#[tokio::test]
async fn what_is_in_the_way_is_told_object_by_object() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let mut taken = fleet::node(2);
    taken["spec"]["serial"] = json!("S1");
    let mut same = fleet::node(3);
    same["spec"]["serial"] = json!("S1");
    let nowhere = json!({ "spec": { "site": "mars", "units": 1, "power_budget_w": 1 } });
    let objects = [
        desired("rack", "r9", &nowhere),
        desired("rack", "r8", &json!({ "spec": { "colour": 1 } })),
        desired("node", "n2", &taken),
        desired("node", "n3", &same),
        desired("site", "other", &json!({ "spec": {} })),
        desired(
            "claim",
            "c1",
            &json!({ "spec": { "pool": "gpu", "node": "n1" } }),
        ),
    ];
    let told = plan(&admin, &objects).await;
    let blocker = |name: &str| {
        let object = told["objects"]
            .as_array()
            .unwrap()
            .iter()
            .find(|object| object["name"] == name)
            .unwrap()
            .clone();
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        (text("/blockers/0/pointer"), text("/blockers/0/code"))
    };
    let pair = |pointer: &str, code: &str| (pointer.to_owned(), code.to_owned());
    assert_eq!(blocker("r9"), pair("/spec/site", "not_found"));
    assert_eq!(blocker("r8").0, "/spec/colour");
    assert_eq!(blocker("n2"), pair("", ""));
    assert_eq!(
        blocker("n3"),
        pair("", "serial_taken"),
        "the database refused one, and the rest goes on"
    );
    assert_eq!(blocker("other"), pair("", ""));
    assert_eq!(blocker("c1"), pair("", "node_not_available"));
    admin.get("/v1/nodes/n2").await.expect(404);

    let viewer = server.caller(Role::Viewer).await;
    let told = plan(&viewer, &[desired("site", "other", &json!({ "spec": {} }))]).await;
    assert_eq!(told["objects"][0]["blockers"][0]["code"], "forbidden");
    let twice = [
        desired("site", "a", &json!({ "spec": {} })),
        desired("site", "a", &json!({ "spec": {} })),
    ];
    let refused = admin.post("/v1/plan", &json!({ "objects": twice })).await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/objects/1/kind"));
    let unknown = admin
        .post(
            "/v1/plan",
            &json!({ "objects": [desired("tower", "a", &json!({ "spec": {} }))] }),
        )
        .await;
    assert_eq!(unknown.problem(), (422, "unprocessable", "/objects/0/kind"));
}

#[tokio::test]
async fn a_release_is_planned_with_its_effect_its_limits_and_what_refuses_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let mut pool = fleet::pool();
    pool["spec"]["releases_per_hour"] = json!(2);
    admin.put("/v1/pools/gpu", &pool).await.expect(200);
    fleet::available(&server, &admin, 4).await;
    for number in 1..=4 {
        let claim = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        admin.post("/v1/claims", &claim).await.expect(201);
    }
    let gone =
        |number: u8| json!({ "kind": "claim", "name": format!("c{number}"), "absent": true });
    let told = plan(&admin, &[gone(1), gone(2), gone(3)]).await;
    assert_eq!(told["effect"], "wipe");
    let [first, second, third] = told["objects"].as_array().unwrap().as_slice() else {
        panic!("{told}")
    };
    for (one, left, node) in [(first, 2, "n1"), (second, 1, "n2")] {
        assert_eq!(
            (&one["change"], &one["effect"], &one["begins"]),
            (&json!("delete"), &json!("wipe"), &json!(true))
        );
        assert_eq!(
            (&one["nodes"], &one["blockers"]),
            (&json!([node]), &json!([])),
            "{one}"
        );
        assert_eq!(
            one["limits"],
            json!([{ "of": "pool gpu", "pool": "gpu", "per_hour": 2, "left": left }])
        );
    }
    assert_eq!(
        (&third["change"], &third["blockers"][0]["code"]),
        (&json!("none"), &json!("second_person")),
        "{third}"
    );
    assert_eq!(
        admin.get("/v1/approvals").await.body["items"],
        json!([]),
        "nobody was asked"
    );
    let bound = admin
        .get("/v1/claims?filter=state%3Dbound&count=exact&fields=status.state")
        .await
        .expect(200)
        .body;
    assert_eq!(bound["count"], 4, "nothing was released");

    sqlx::query("UPDATE nodes SET protected = true WHERE name = 'n4'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let told = plan(&admin, &[gone(4), gone(9)]).await;
    assert_eq!(told["objects"][0]["blockers"][0]["code"], "protected");
    assert_eq!(
        (
            &told["objects"][1]["change"],
            &told["objects"][1]["blockers"]
        ),
        (&json!("none"), &json!([]))
    );
    let viewer = server.caller(Role::Viewer).await;
    assert_eq!(
        plan(&viewer, &[gone(1)]).await["objects"][0]["blockers"][0]["code"],
        "forbidden"
    );
    let node = json!({ "kind": "node", "name": "n1", "absent": true });
    assert_eq!(
        plan(&admin, &[node]).await["objects"][0]["blockers"][0]["pointer"],
        "/absent"
    );
}
