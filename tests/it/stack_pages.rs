//! The console of stacks: the list and one stack, for readers of the fleet and of a part.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Server};

async fn page(caller: &Caller, path: &str) -> String {
    caller.get(path).await.expect(200).text
}

fn contains(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "{word}: {page}");
    }
}

/// The row of a stack in the list.
fn row<'page>(page: &'page str, name: &str) -> &'page str {
    let start = format!("<tr id=\"s-{name}\">");
    let rest = page.split_once(&start).unwrap_or_else(|| panic!("{page}"));
    rest.1.split("</tr>").next().unwrap()
}

/// The row of a package on the page of a stack.
fn package_row<'page>(page: &'page str, name: &str) -> &'page str {
    let start = format!("<tr><th scope=\"row\" class=\"free\">{name}</th>");
    let rest = page.split_once(&start).unwrap_or_else(|| panic!("{page}"));
    rest.1.split("</tr>").next().unwrap()
}

fn locked(name: &str, version: &str, size: u64) -> Value {
    json!({ "name": name, "version": version, "arch": "amd64", "size": size, "sha256": fleet::digest(name),
            "filename": format!("{name}.deb") })
}

/// A locked stack with a driver and a dependency.
fn with_driver(version: &str) -> Value {
    let mut stack = fleet::stack();
    stack["spec"]["packages"] = json!({ "libcuda1": version });
    stack["spec"]["sysctl"] = json!({ "vm.swappiness": "1" });
    stack["spec"]["lock"]["packages"] = json!([
        locked("libcuda1", version, 2 << 20),
        locked("zlib1g", "1:1.3-1", 1 << 20)
    ]);
    stack
}

async fn declared() -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    (server, admin)
}

#[tokio::test]
async fn an_empty_list_names_the_next_command() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let empty = page(&admin, "/stacks").await;
    contains(&empty, &["No stacks yet", "muster stack publish NAME"]);
    admin.get("/stacks/base").await.expect(404);
    server.nobody().get("/stacks").await.expect(401);
}

#[tokio::test]
async fn the_list_marks_an_ended_branch_a_near_end_and_a_missing_fix() {
    let (server, admin) = declared().await;
    for (name, version) in [
        ("ended", "550.163.01-2"),
        ("near", "570.211.01-1"),
        ("lacking", "580.126.20-1"),
        ("whole", "580.159.03-1"),
    ] {
        let path = format!("/v1/stacks/{name}");
        admin.put(&path, &with_driver(version)).await.expect(201);
    }
    let list = page(&admin, "/stacks").await;
    contains(
        row(&list, "base"),
        &[
            "debian 12, amd64",
            "no NVIDIA driver",
            "href=\"/pools/gpu\"",
        ],
    );
    contains(
        row(&list, "ended"),
        &[
            "libcuda1 550.163.01-2",
            "branch 550",
            "support has ended",
            "3 MiB",
            "no pool",
        ],
    );
    // The clock of the test is at 2026-01-05, and the support of branch 570 ends in 2026-02.
    contains(row(&list, "near"), &["support ends in 2026-02"]);
    contains(row(&list, "lacking"), &["known fix is missing"]);
    assert!(!row(&list, "lacking").contains("support"), "{list}");
    assert!(!row(&list, "near").contains("fix"), "{list}");
    contains(row(&list, "whole"), &["branch 580"]);
    for unmarked in ["base", "whole"] {
        let row = row(&list, unmarked);
        assert!(!row.contains("support") && !row.contains("fix"), "{row}");
    }

    server
        .app
        .clock
        .advance(SignedDuration::from_hours(24 * 60));
    let viewer = server.caller(Role::Viewer).await;
    let list = page(&viewer, "/stacks").await;
    contains(row(&list, "near"), &["support ended in 2026-02"]);
}

#[tokio::test]
async fn more_stacks_than_a_page_are_listed_on_the_next() {
    let (_server, admin) = declared().await;
    for number in 0..50 {
        let path = format!("/v1/stacks/s{number:02}");
        admin.put(&path, &fleet::stack()).await.expect(201);
    }
    let change = json!({ "spec": { "stack": "s49" } });
    admin.patch("/v1/pools/gpu", &change).await.expect(200);
    let first = page(&admin, "/stacks").await;
    contains(&first, &["id=\"s-base\"", "href=\"/stacks?after=s48\""]);
    assert!(!first.contains("id=\"s-s49\""), "{first}");
    // A stack of a later page exists, although the first page does not have the stack.
    assert!(!first.contains("missing-stacks"), "{first}");
    let second = page(&admin, "/stacks?after=s48").await;
    contains(row(&second, "s49"), &["href=\"/pools/gpu\""]);
    contains(&second, &["First page"]);
    assert!(!second.contains("rel=\"next\""), "{second}");
    for former in ["id=\"s-base\"", "id=\"s-s48\""] {
        assert!(!second.contains(former), "{second}");
    }
    let after_all = page(&admin, "/stacks?after=s49").await;
    contains(&after_all, &["No further stacks"]);
}

#[tokio::test]
async fn one_stack_has_the_driver_with_sources_the_packages_and_the_pools() {
    let (server, admin) = declared().await;
    fleet::available(&server, &admin, 2).await;
    let next = with_driver("580.126.20-1");
    admin.put("/v1/stacks/next", &next).await.expect(201);
    let claim = json!({ "name": "held", "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    let shown = page(&admin, "/stacks/next").await;
    contains(
        &shown,
        &[
            "libcuda1 580.126.20-1",
            "580: long-term support",
            "supported until 2028-06",
            "href=\"https://docs.nvidia.com/datacenter/tesla/drivers/620\"",
            "580.159.03, reported 2026-06-01",
            "href=\"https://github.com/flatcar/Flatcar/issues/2155\"",
            "known fix is missing",
            "driver reload: libcuda1",
            "<th scope=\"row\" class=\"free\">sysctl vm.swappiness</th><td class=\"free\">1</td>",
            "not uploaded",
            "No pool in your scope has the stack",
            "muster stack show next",
        ],
    );
    for (name, words) in [
        ("libcuda1", [">wanted<", ">2 MiB<", ">driver reload<"]),
        ("zlib1g", [">dependency<", ">1 MiB<", ">none<"]),
    ] {
        contains(package_row(&shown, name), &words);
    }
    let base = page(&admin, "/stacks/base").await;
    contains(
        &base,
        &[
            "id=\"stack-pools\"",
            "href=\"/pools/gpu\"",
            "<span class=\"num\">1</span> nodes in your scope have the stack assigned",
        ],
    );
    // Other pages lead to the stack.
    for path in ["/nodes/n1", "/pools/gpu", "/claims"] {
        contains(&page(&admin, path).await, &["href=\"/stacks/base\""]);
    }
    let status = admin.get("/v1/stacks/next").await.expect(200).body["status"].clone();
    let summary = &status["summary"];
    assert_eq!(summary["closure"]["bytes"], json!(3 << 20), "{summary}");
    assert_eq!(summary["closure"]["lock"], status["lock_digest"]);
    assert_eq!(summary["driver"]["has_fix"], json!(false));
    assert_eq!(summary["driver"]["branch"]["ends"], json!("2028-06"));
}

#[tokio::test]
async fn hundreds_of_packages_come_in_pages_with_a_filter() {
    let (_server, admin) = declared().await;
    let mut large = fleet::stack();
    let packages: Vec<Value> = (0..230)
        .map(|number| locked(&format!("libx{number:03}"), "1.0-1", 1024))
        .collect();
    large["spec"]["packages"] = json!({ "libx007": "1.0-1" });
    large["spec"]["lock"]["packages"] = json!(packages);
    admin.put("/v1/stacks/large", &large).await.expect(201);
    let first = page(&admin, "/stacks/large").await;
    contains(
        &first,
        &["libx099", "/stacks/large?package=&#38;from=100#packages"],
    );
    assert!(!first.contains("libx100"), "{first}");
    let last = page(&admin, "/stacks/large?from=200").await;
    contains(&last, &["libx200", "libx229", "First page"]);
    assert!(!last.contains("libx199"), "{last}");
    assert!(!last.contains("rel=\"next\""), "{last}");
    let beyond = page(&admin, "/stacks/large?package=libx&from=900").await;
    contains(
        &beyond,
        &[
            "No further packages",
            "/stacks/large?package=libx&#38;from=0#packages",
        ],
    );
    let found = page(&admin, "/stacks/large?package=LIBX22").await;
    contains(&found, &["10 of 230", "libx220", "value=\"LIBX22\""]);
    assert!(!found.contains("libx007"), "{found}");
    let odd = page(&admin, "/stacks/large?package=%22%3E%3Cb%3Ex").await;
    contains(&odd, &["No package matches", "&#34;&#62;&#60;b&#62;x"]);
    assert!(!odd.contains("<b>x"), "{odd}");
    admin.get("/stacks/large?from=many").await.expect(400);
}

#[tokio::test]
async fn a_stack_without_a_lock_has_unknown_sizes() {
    let (_server, admin) = declared().await;
    let mut open = fleet::stack();
    open["spec"]["packages"] = json!({ "libcuda1": "*" });
    open["spec"]["lock"] = Value::Null;
    admin.put("/v1/stacks/open", &open).await.expect(201);
    let list = page(&admin, "/stacks").await;
    contains(
        row(&list, "open"),
        &[
            ">no lock<",
            "data-label=\"size\">unknown<",
            "branch unknown",
        ],
    );
    contains(
        &page(&admin, "/stacks/open").await,
        &[
            "size and effect are unknown",
            "end of support unknown",
            "fix unknown",
            "dependencies and sizes are unknown without a lock",
            "libcuda1 has no exact version",
        ],
    );
}

#[tokio::test]
async fn a_stack_that_pools_have_and_that_does_not_exist_is_named() {
    let (server, admin) = declared().await;
    fleet::available(&server, &admin, 1).await;
    let claim = json!({ "name": "held", "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    let mut next = fleet::stack();
    next["spec"]["version"] = json!("2");
    admin.put("/v1/stacks/next", &next).await.expect(201);
    let change = json!({ "spec": { "stack": "next" } });
    admin.patch("/v1/pools/gpu", &change).await.expect(200);
    assert!(!page(&admin, "/stacks").await.contains("missing-stacks"));
    let any = admin.header("if-match", "*");
    any.delete("/v1/stacks/base").await.expect(204);
    let list = page(&admin, "/stacks").await;
    let missing = list.split_once("id=\"missing-stacks\"").unwrap().1;
    let missing = missing.split("</ul>").next().unwrap();
    contains(
        missing,
        &[">base<", "href=\"/pools/gpu\"", "does not exist"],
    );
    contains(row(&list, "next"), &["href=\"/pools/gpu\""]);
    admin.get("/stacks/base").await.expect(404);
}

#[tokio::test]
async fn an_unreadable_stack_is_a_row_with_advice() {
    let (server, admin) = declared().await;
    sqlx::query("UPDATE objects SET spec = '{\"image\": \"debian-12\"}' WHERE kind = 'stack'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let list = page(&admin, "/stacks").await;
    contains(row(&list, "base"), &["cannot be read", "PUT"]);
    admin.get("/stacks/base").await.expect(409);
}

#[tokio::test]
async fn pools_outside_of_the_readers_scope_are_not_named() {
    let (server, admin) = declared().await;
    fleet::available(&server, &admin, 1).await;
    let claim = json!({ "name": "held", "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    let site = json!({ "spec": {} });
    admin.put("/v1/sites/elsewhere", &site).await.expect(201);
    let token = json!({ "name": "elsewhere", "role": "viewer", "scope": { "site": "elsewhere" }, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &token).await.expect(201);
    let secret = made.body["secret"].as_str().unwrap().to_owned();
    let reader = server.with(Some(secret));
    for path in ["/stacks", "/stacks/base"] {
        let seen = page(&reader, path).await;
        contains(&seen, &[">base<"]);
        assert!(!seen.contains("/pools/gpu"), "{path}: {seen}");
        contains(&page(&admin, path).await, &["/pools/gpu"]);
    }
    let assigned = "<span class=\"num\">1</span> nodes in your scope have the stack assigned";
    contains(&page(&admin, "/stacks/base").await, &[assigned]);
    contains(
        &page(&reader, "/stacks/base").await,
        &[
            "<span class=\"num\">0</span> nodes",
            "No pool in your scope has the stack",
        ],
    );
    // A missing stack of such a pool.
    sqlx::query(
        "UPDATE objects SET spec = jsonb_set(spec, '{stack}', '\"gone\"') WHERE kind = 'pool'",
    )
    .execute(&server.app.pool)
    .await
    .unwrap();
    contains(
        &page(&admin, "/stacks").await,
        &["missing-stacks", ">gone<"],
    );
    let seen = page(&reader, "/stacks").await;
    assert!(!seen.contains("missing-stacks"), "{seen}");
}
