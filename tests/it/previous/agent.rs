//! Agents over the whole life of a node, under today's server. Yesterday's agent does every kind of
//! order. Today's agent reads yesterday's muster-node.

use std::collections::BTreeSet;
use std::process::Command;

use muster_core::lifecycle::steps::Step;
use muster_core::wire::orders::{MEMBERS, SITE_MEMBERS, WORDS, current_kind};
use muster_server::engine::orders;
use serde_json::{Value, json};

use super::site::{Site, Version};
use super::wire::Leased;
use super::{network, programs};

/// Kinds impossible with a single machine without hardware, and the reasons.
const ELSEWHERE: [(&str, &str); 2] = [
    ("adopt", "needs a machine that somebody else installed"),
    ("pair", "needs two nodes in service"),
];
/// Kinds of orders done by muster-node.
const ON_THE_NODE: [&str; 6] = [
    "boot_live",
    "inventory",
    "write_image",
    "converge",
    "gates",
    "wipe",
];

/// Registers, inspects and claims the node, until the node is in service.
async fn enter(site: &Site) {
    site.register().await;
    site.state("available").await;
    let claim = json!({ "name": "c1", "spec": { "pool": "gpu", "node": "n1" } });
    site.admin.post("/v1/claims", &claim).await.expect(201);
    site.state("in_service").await;
    site.done("check-drift").await;
}

/// Releases the node, until the node is wiped, inspected and available.
async fn leave(site: &Site) {
    let admin = site.admin.expecting(1);
    admin.delete("/v1/claims/c1").await.expect(202);
    site.state("available").await;
}

/// Every kind succeeded. No job failed, no call was refused, and the agent reads every word of the
/// orders.
async fn check(site: &Site, kinds: &[&str]) {
    let succeeded = site
        .sql("SELECT DISTINCT step FROM jobs WHERE state = 'succeeded'")
        .await;
    let done: BTreeSet<&str> = succeeded
        .iter()
        .map(|step| orders::kind(step.parse::<Step>().unwrap()))
        .collect();
    let missing: Vec<&&str> = kinds.iter().filter(|kind| !done.contains(**kind)).collect();
    assert!(
        missing.is_empty(),
        "no job of these kinds succeeded: {missing:?}"
    );
    let failed = site
        .sql("SELECT step || ': ' || coalesce(failure::text, '') FROM jobs WHERE state NOT IN ('succeeded', 'cancelled')")
        .await;
    assert!(failed.is_empty(), "{failed:?}");
    let refused = site.wire.look(|notes| {
        let calls = notes.calls.clone().into_iter();
        let refused = calls.filter(|(_, statuses)| statuses.iter().any(|status| *status >= 300));
        refused.collect::<Vec<_>>()
    });
    let unread = site.wire.look(|notes| {
        let unread = notes.leased.iter().flat_map(Leased::unread);
        unread.collect::<BTreeSet<_>>()
    });
    assert!(unread.is_empty(), "the agent does not read {unread:?}");
    assert!(
        refused.is_empty(),
        "today's server refuses calls: {refused:?}"
    );
}

/// A console server that sends a line to every connection.
fn print_on_the_console() {
    let listener = std::net::TcpListener::bind((network::BMC, 7001)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"the node prints\n")
                .await
                .ok();
            open.push(stream);
        }
    });
}

#[test]
fn yesterdays_agent_enrols_and_takes_a_node_through_its_life() {
    network::within(async || {
        print_on_the_console();
        let mut site = Site::start(Version::Before, Version::Today).await;
        let said = async || site.wire.look(|notes| notes.said.clone());
        site.until("a call for jobs", async || !said().await.is_empty())
            .await;
        let said = said().await;
        let words: Vec<&str> = said.split(',').collect();
        // An order or a member read by yesterday's agent keeps the name.
        let known = |word: &&&str| {
            let listed = [MEMBERS, SITE_MEMBERS, WORDS];
            current_kind(word).is_some() || listed.iter().any(|list| list.contains(word))
        };
        let unknown: Vec<&&str> = words.iter().filter(|word| !known(word)).collect();
        assert!(
            unknown.is_empty(),
            "today's server does not know {unknown:?}"
        );
        let kinds: Vec<&str> = words
            .into_iter()
            .filter_map(current_kind)
            .filter(|word| ELSEWHERE.iter().all(|(kind, _)| kind != word))
            .collect();

        enter(&site).await;
        site.done("rotate-bmc").await;
        site.done("maintain").await;
        site.state("maintenance").await;
        hold_back(&mut site).await;
        site.ask("resume").await;
        site.state("in_service").await;
        leave(&site).await;
        site.done("run-gates").await;
        check(&site, &kinds).await;
        check_reports(&site).await;
    });
}

#[test]
fn todays_agent_reads_yesterdays_muster_node() {
    network::within(async || {
        print_on_the_console();
        let site = Site::start(Version::Today, Version::Before).await;
        enter(&site).await;
        leave(&site).await;
        check(&site, &ON_THE_NODE).await;
    });
}

/// Reports beside the jobs: the agent's heartbeat, the site's configuration on the agent's disk,
/// the console, and every call of yesterday's agent.
async fn check_reports(site: &Site) {
    let agent = async || {
        let agents = site
            .admin
            .get("/v1/sites/lab/agents")
            .await
            .expect(200)
            .body;
        agents["items"][0].clone()
    };
    let before = agent().await;
    let version = Command::new(programs::muster()).arg("--version").output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    let version = version.trim().trim_start_matches("muster ");
    assert_eq!(before["version"], version);
    site.until("a heartbeat", async || {
        agent().await["last_seen"] != before["last_seen"]
    })
    .await;
    let kept = std::fs::read(site.agent.dir.path().join("data/site.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(
        kept["subnets"][0]["reservations"][0]["address"],
        network::NODE,
        "{kept:#}"
    );
    let console = site.admin.get("/v1/nodes/n1/console").await.expect(200);
    assert!(console.text.contains("the node prints"), "{}", console.text);
    let calls: BTreeSet<String> = site
        .wire
        .look(|notes| notes.calls.keys().cloned().collect());
    let expected = [
        "blobs/sha256/ID",
        "consoles",
        "enrol",
        "hello",
        "jobs/ID/act",
        "jobs/ID/members",
        "jobs/ID/outcome",
        "jobs/ID/renew",
        "lease",
        "permits/redeem",
        "scheduler",
        "sightings",
        "site",
    ];
    for call in expected {
        assert!(
            calls.contains(call),
            "yesterday's agent never called {call}: {calls:?}"
        );
    }
}

/// Hides an order and a member from the agent's words. The order waits with an event, and other
/// orders omit the member.
async fn hold_back(site: &mut Site) {
    let (kind, member) = ("power_cycle", "machine");
    let with_member = |text: &str| text.contains(&format!("\"{member}\":"));
    site.wire.look(|notes| {
        assert!(
            notes.leased.iter().any(|leased| with_member(&leased.text)),
            "no order has a machine"
        );
        notes.hidden.extend([kind, member]);
    });
    // The agent's open call for jobs names both words, the next calls neither.
    site.done("power-off").await;
    site.done("power-on").await;
    let waiting = site.ask("power-cycle").await;
    site.until("step.unreadable", async || {
        let told = site
            .sql("SELECT summary FROM events WHERE kind = 'step.unreadable'")
            .await;
        let why = "n1: power_cycle waits for an agent that supports this order: a1 of lab";
        told.iter().any(|line| line.starts_with(why))
    })
    .await;
    site.wire.look(|notes| {
        let without =
            |leased: &&Leased| !leased.reads(member) && leased.text.contains(r#""power":"#);
        let without: Vec<&Leased> = notes.leased.iter().filter(without).collect();
        assert!(
            !without.is_empty(),
            "no power order since {member} is hidden"
        );
        assert!(
            without.iter().all(|leased| leased.unread().is_empty()),
            "{without:#?}"
        );
        notes.hidden.clear();
    });
    // The same agent, started again, names both words and does the order.
    site.agent.restart().await;
    site.succeeded(&waiting).await;
}
