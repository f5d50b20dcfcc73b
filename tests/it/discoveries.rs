//! Machines that discover themselves: strangers on the network stay within the limits of their site.

use muster_api::tokens::Role;
use muster_core::values::Mac;
use muster_core::wire::calls::{Seen, Sighting, Sightings};
use muster_server::engine::strangers::{self, EVENTS_IN_A_MINUTE, MOST_STRANGERS, NEW_IN_A_MINUTE};
use serde_json::json;

use crate::simulated::World;
use crate::support::fleet;

const UNTOUCHED: &str = "SELECT count(*) FROM untouched_strangers";
const UNKNOWN: &str = "SELECT count(*) FROM nodes WHERE name LIKE 'unknown-%'";
const SUMMARIES: &str = "SELECT count(*) FROM events WHERE kind = 'site.strangers'";
const ABOUT_STRANGERS: &str =
    "SELECT count(*) FROM events e JOIN strangers s ON s.node_id = e.node_id";

async fn count(world: &World, query: &'static str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

fn stranger(number: usize) -> Mac {
    let [.., high, low] = number.to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

fn name_of(mac: Mac) -> String {
    format!("unknown-{}", mac.to_string().replace(':', ""))
}

/// The site's agent reports requests for addresses.
async fn see(world: &World, macs: impl IntoIterator<Item = Mac>) {
    report(world, Seen::Dhcp, macs).await;
}

async fn report(world: &World, what: Seen, macs: impl IntoIterator<Item = Mac>) {
    let at = world.server.app.clock.now();
    let sighting = |(number, mac): (usize, Mac)| Sighting {
        at,
        mac,
        what,
        uuid: None,
        serial: None,
        detail: format!("vendor {number}"),
    };
    let report = Sightings {
        epoch: world.agent.epoch,
        sightings: macs.into_iter().enumerate().map(sighting).collect(),
    };
    world
        .agent
        .call::<()>("/agent/v1/sightings", &report)
        .await
        .unwrap();
}

/// Plants as many strangers as a site keeps. The first was seen the least recently.
async fn plant_strangers(world: &World) {
    for statement in [
        "INSERT INTO nodes (id, name, created_at, updated_at, spec, site_id, power, power_person, state, entered_at)
         SELECT gen_random_uuid(), 'unknown-f' || n, $1, $1, '{}', o.id, 'manual', 'nobody yet', 'discovered', $1
         FROM objects o, generate_series(1, $2) AS n WHERE o.kind = 'site'",
        "INSERT INTO strangers (node_id, site_id, seen_at)
         SELECT id, site_id, $1 - ($2 - substring(name FROM 10)::bigint) * interval '1 ms' FROM nodes WHERE name LIKE 'unknown-f%'",
    ] {
        let now = jiff_sqlx::Timestamp::from(world.server.app.clock.now());
        sqlx::query(statement)
            .bind(now)
            .bind(MOST_STRANGERS)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn strangers_above_the_limit_are_forgotten_and_a_persons_node_stays() {
    let world = World::start(1).await;
    let kept = name_of(stranger(1));
    see(&world, [stranger(1)]).await;
    let labels = json!({ "labels": { "row": "7" } });
    world
        .admin
        .patch(&format!("/v1/nodes/{kept}"), &labels)
        .await
        .expect(200);
    plant_strangers(&world).await;
    see(&world, [stranger(2)]).await;

    assert_eq!(count(&world, UNTOUCHED).await, MOST_STRANGERS);
    assert_eq!(world.state(&name_of(stranger(2))).await, "discovered");
    assert_eq!(world.state(&kept).await, "discovered");
    let least_recent = "SELECT count(*) FROM nodes WHERE name = 'unknown-f1'";
    let next = "SELECT count(*) FROM nodes WHERE name = 'unknown-f2'";
    assert_eq!(count(&world, least_recent).await, 0);
    assert_eq!(count(&world, next).await, 1);
    world.advance(61);
    strangers::end_minutes(&world.server.app).await.unwrap();
    let summary: String =
        sqlx::query_scalar("SELECT summary FROM events WHERE kind = 'site.strangers'")
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
    assert!(summary.contains("1 forgotten"), "{summary}");
    // A recorded machine that is seen again takes no place of another machine.
    see(&world, [stranger(2)]).await;
    assert_eq!(count(&world, UNTOUCHED).await, MOST_STRANGERS);
}

#[tokio::test]
async fn new_strangers_of_a_minute_are_limited_and_summed_up_in_one_event() {
    let world = World::start(1).await;
    let own = world.machine("n1", |machine| machine.mac);
    let flood = 50 + usize::try_from(NEW_IN_A_MINUTE).unwrap();
    see(&world, (0..flood).map(stranger).chain([own])).await;

    assert_eq!(count(&world, UNKNOWN).await, NEW_IN_A_MINUTE);
    assert_eq!(count(&world, ABOUT_STRANGERS).await, EVENTS_IN_A_MINUTE);
    assert!(
        world.history("n1").await.contains(&"boot.dhcp".to_owned()),
        "a declared node has its event during a flood"
    );
    // The same machine again and again.
    see(&world, [stranger(1); 500]).await;
    assert_eq!(count(&world, ABOUT_STRANGERS).await, EVENTS_IN_A_MINUTE);
    assert_eq!(
        count(&world, SUMMARIES).await,
        0,
        "the minute is not over yet"
    );

    world.advance(61);
    see(&world, [stranger(flood)]).await;
    strangers::end_minutes(&world.server.app).await.unwrap();
    assert_eq!(count(&world, UNKNOWN).await, NEW_IN_A_MINUTE + 1);
    assert_eq!(count(&world, SUMMARIES).await, 1);
    let refused: String =
        sqlx::query_scalar("SELECT detail ->> 'refused' FROM events WHERE kind = 'site.strangers'")
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
    assert_eq!(refused, "50");
}

/// A server of the version before records discovered nodes without a mark.
#[tokio::test]
async fn strangers_recorded_by_the_version_before_count_too() {
    let world = World::start(1).await;
    see(&world, [stranger(1)]).await;
    sqlx::query("DELETE FROM strangers")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(count(&world, UNTOUCHED).await, 0);
    strangers::end_minutes(&world.server.app).await.unwrap();
    assert_eq!(count(&world, UNTOUCHED).await, 1);
    assert_eq!(
        count(&world, "SELECT count(*) FROM strangers").await,
        1,
        "a declared node is no stranger"
    );
}

#[tokio::test]
async fn a_declared_node_has_boot_events_up_to_the_limit_of_a_minute() {
    let world = World::start(1).await;
    let own = world.machine("n1", |machine| machine.mac);
    let boots = "SELECT count(*) FROM events WHERE kind = 'boot.dhcp'";
    see(&world, [own; 100]).await;
    assert_eq!(count(&world, boots).await, 60);
    world.advance(61);
    see(&world, [own]).await;
    assert_eq!(count(&world, boots).await, 61);
}

#[tokio::test]
async fn boot_events_take_no_place_of_an_alarm_and_alarms_have_a_limit() {
    let world = World::start(1).await;
    let own = world.machine("n1", |machine| machine.mac);
    see(&world, [own; 100]).await;
    report(&world, Seen::RogueDhcp, [own]).await;
    report(&world, Seen::FetchedTwice, [own; 9]).await;
    let alarms =
        "SELECT count(*) FROM events WHERE kind IN ('boot.fetched_twice', 'boot.rogue_dhcp')";
    assert_eq!(count(&world, alarms).await, 5);
    let fetched = "SELECT count(*) FROM events WHERE kind = 'boot.fetched_twice'";
    assert_eq!(count(&world, fetched).await, 4);
    // Alarms take no place of a boot either.
    world.advance(61);
    report(&world, Seen::FetchedTwice, [own; 9]).await;
    see(&world, [own; 100]).await;
    let boots = "SELECT count(*) FROM events WHERE kind = 'boot.dhcp'";
    assert_eq!(count(&world, boots).await, 120);
}

#[tokio::test]
async fn a_declaration_takes_the_mac_of_a_stranger_and_of_no_accepted_node() {
    let world = World::start(1).await;
    let automation = world.server.caller(Role::Automation).await;
    see(&world, [stranger(1), stranger(2)]).await;
    let with = |node: u8, mac: Mac| {
        let mut document = fleet::node(node);
        document["spec"]["macs"][0]["mac"] = json!(mac);
        document
    };
    automation
        .put("/v1/nodes/n8", &with(8, stranger(1)))
        .await
        .expect(201);
    let gone = format!("/v1/nodes/{}", name_of(stranger(1)));
    assert_eq!(world.admin.get(&gone).await.status, 404);

    world.ask(&name_of(stranger(2)), "accept").await.expect(202);
    let refused = automation.put("/v1/nodes/n9", &with(9, stranger(2))).await;
    assert_eq!(refused.problem(), (409, "mac_taken", ""));
}
