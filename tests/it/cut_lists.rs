//! Lists of pages with a limit: a page names the number of further rows, or the command for all
//! rows.

use std::ops::Range;

use crate::support::fleet;
use crate::support::server::{Caller, Server};

async fn page(caller: &Caller, path: &str) -> String {
    caller.get(path).await.expect(200).text
}

async fn execute(server: &Server, statement: &'static str) {
    sqlx::query(statement)
        .execute(&server.app.pool)
        .await
        .unwrap();
}

/// Declares pools by number: `p000`…
async fn declare_pools(admin: &Caller, numbers: Range<usize>) {
    for number in numbers {
        let path = format!("/v1/pools/p{number:03}");
        admin.put(&path, &fleet::pool()).await.expect(201);
    }
}

#[tokio::test]
async fn missing_stacks_and_pools_beyond_the_page_are_told() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    declare_pools(&admin, 0..99).await;
    // The pool of the fleet is the hundredth.
    assert!(!page(&admin, "/claims").await.contains("more-pools"));
    let path = "/v1/pools/last";
    admin.put(path, &fleet::pool()).await.expect(201);
    assert!(page(&admin, "/claims").await.contains("more-pools"));

    execute(
        &server,
        "UPDATE objects SET spec = jsonb_set(spec, '{stack}', to_jsonb('gone-' || name))
         WHERE kind = 'pool' AND name < 'p020' AND name LIKE 'p0%'",
    )
    .await;
    let list = page(&admin, "/stacks").await;
    assert_eq!(list.matches("The stack does not exist").count(), 20);
    assert!(!list.contains("more stacks of pools"), "{list}");
    execute(
        &server,
        "UPDATE objects SET spec = jsonb_set(spec, '{stack}', to_jsonb('gone-' || name))
         WHERE kind = 'pool' AND name < 'p025' AND name LIKE 'p0%'",
    )
    .await;
    let list = page(&admin, "/stacks").await;
    assert_eq!(list.matches("The stack does not exist").count(), 20);
    for (name, is_named) in [("gone-p019", true), ("gone-p020", false)] {
        assert_eq!(list.contains(name), is_named, "{name}: {list}");
    }
    let more = "And <span class=\"num\">5</span> more stacks of pools do not exist.";
    assert!(list.contains(more), "{list}");
    let searched = "You have more pools than this page searches";
    assert!(!list.contains(searched), "{list}");
    declare_pools(&admin, 100..200).await;
    for path in ["/stacks", "/stacks/base"] {
        let seen = page(&admin, path).await;
        assert!(seen.contains(searched), "{path}: {seen}");
    }
}

#[tokio::test]
async fn breakers_and_agents_beyond_the_first_page_are_told() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let fleet = page(&admin, "/").await;
    assert!(
        fleet.contains("A site without an agent runs no jobs"),
        "{fleet}"
    );
    let add = "INSERT INTO agents (id, site_id, name)
               SELECT gen_random_uuid(), o.id, 'extra-' || number
               FROM objects o, generate_series(1, 20) AS number WHERE o.kind = 'site' AND o.name = 'lab'";
    let open = "INSERT INTO breakers (id, signature, because, opened_at)
                SELECT gen_random_uuid(), 'gate:g' || number, 'a test', now() FROM generate_series(1, 8) AS number";
    execute(&server, open).await;
    let fleet = page(&admin, "/").await;
    assert!(!fleet.contains("more-breakers"), "{fleet}");
    assert!(!fleet.contains("more agents"), "{fleet}");
    let one = "INSERT INTO breakers (id, signature, because, opened_at)
               VALUES (gen_random_uuid(), 'gate:last', 'a test', now())";
    execute(&server, one).await;
    execute(&server, add).await;
    let fleet = page(&admin, "/").await;
    assert!(fleet.contains("more-breakers"), "{fleet}");
    let more = "<span class=\"num\">12</span> more agents";
    assert!(fleet.contains(more), "{fleet}");
}
