//! Sightings of the boot services. Known machines get an event on their timeline, and unknown
//! machines become discovered nodes. Reports are untrusted, so sizes and numbers are bounded.

use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use muster_core::wire::calls::{Seen, Sighting, Sightings};
use serde_json::json;
use sqlx::PgConnection;

use super::Agent;
use super::told::Told;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::strangers::MinuteRow;
use crate::engine::strangers;
use crate::error::Error;

/// The largest number of sightings stored from one call. Agents send smaller batches.
const MAX_BATCH: usize = 500;

pub(super) async fn report(
    State(app): State<App>,
    agent: Agent,
    Told(report): Told<Sightings>,
) -> Result<StatusCode, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    agent.fence(&mut tx, report.epoch, &app).await?;
    let mut minute = strangers::begin(&mut tx, agent.site, now).await?;
    for sighting in report.sightings.iter().take(MAX_BATCH) {
        record_sighting(&mut tx, &agent, &mut minute, sighting, now).await?;
    }
    db::strangers::set_minute(&mut tx, &minute).await?;
    tx.commit().await?;
    app.wake_readers.send_modify(|revision| *revision += 1);
    Ok(StatusCode::NO_CONTENT)
}

async fn record_sighting(
    conn: &mut PgConnection,
    agent: &Agent,
    minute: &mut MinuteRow,
    sighting: &Sighting,
    now: Timestamp,
) -> Result<(), Error> {
    let actor = format!("agent:{}", agent.name);
    let node = match db::agents::find_node_by_mac(conn, sighting.mac).await? {
        Some((node, site)) if site == agent.site => Some(node),
        // The machine belongs to another site, so the agent must not write the history of the node.
        Some(_) => None,
        None if sighting.what == Seen::Dhcp => {
            match strangers::discover(conn, minute, &actor, sighting.mac, now).await? {
                Some(node) => Some(node),
                None => return Ok(()),
            }
        }
        None => return Ok(()),
    };
    if !strangers::allow_event(conn, minute, node, sighting.what, now).await? {
        return Ok(());
    }
    let (kind, told) = match sighting.what {
        Seen::Dhcp => ("boot.dhcp", "requested an address for network boot"),
        Seen::Tftp => ("boot.tftp", "fetched the boot loader"),
        Seen::Script => ("boot.script", "received a boot script"),
        Seen::Kernel => ("boot.kernel", "fetched the live image"),
        Seen::Report => ("boot.report", "reported its host key"),
        Seen::RogueDhcp => ("boot.rogue_dhcp", "was answered by another DHCP server"),
        Seen::FetchedTwice => (
            "boot.fetched_twice",
            "fetched its boot script again, or another machine did",
        ),
    };
    let detail: String = sighting
        .detail
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    let because = if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    };
    let whose = if node.is_some() {
        ""
    } else {
        ", and belongs to another site"
    };
    let event = NewEvent {
        at: now,
        actor,
        kind,
        node,
        object: node.is_none().then_some(agent.site),
        operation: None,
        request_id: None,
        summary: format!("{} {told}{because}{whose}", sighting.mac),
        detail: json!({}),
    };
    db::events::insert(conn, event.with(describe_machine(sighting))).await
}

/// The identity that the machine claims, cut.
fn describe_machine(sighting: &Sighting) -> serde_json::Value {
    let cap = |text: &Option<String>| {
        text.as_ref()
            .map(|text| text.chars().take(100).collect::<String>())
    };
    json!({ "mac": sighting.mac, "uuid": cap(&sighting.uuid), "serial": cap(&sighting.serial) })
}
