//! `muster admin hold-records`, `release-records` and `list-holds`: nodes under a legal hold.

use anyhow::Context as _;
use muster_core::ids::NodeId;
use muster_server::db;
use muster_server::db::events::NewEvent;
use serde_json::json;
use sqlx::PgConnection;

use super::host::{Act, Host};

/// Longest reason, in bytes.
const REASON: usize = 500;

/// Puts a node under a legal hold.
///
/// # Errors
/// When the node is unknown, the reason is missing, or the database fails.
pub(super) async fn hold(host: &Host, name: &str, reason: &str) -> anyhow::Result<()> {
    check_reason(reason)?;
    let Act { mut tx, now } = host.begin().await?;
    let node = find_node(&mut tx, name).await?;
    let is_new = db::legal_holds::insert(&mut tx, node, reason, &host.actor, now).await?;
    if is_new {
        let summary = format!("the records of {name} are kept by a legal hold: {reason}");
        let event = NewEvent::node(now, &*host.actor, "records.held", node, summary);
        db::events::insert(&mut tx, event.with(json!({ "reason": reason }))).await?;
    }
    tx.commit().await?;
    match is_new {
        true => print_line!("the records of {name} are kept"),
        false => print_line!("{name} is under a legal hold already"),
    }
    Ok(())
}

/// Ends the legal hold of a node.
///
/// # Errors
/// When the node is unknown, the reason is missing, or the database fails.
pub(super) async fn release(host: &Host, name: &str, reason: &str) -> anyhow::Result<()> {
    check_reason(reason)?;
    let Act { mut tx, now } = host.begin().await?;
    let node = find_node(&mut tx, name).await?;
    let was_held = db::legal_holds::delete(&mut tx, node).await?;
    if was_held {
        let summary = format!("the legal hold of {name} is over: {reason}");
        let event = NewEvent::node(now, &*host.actor, "records.released", node, summary);
        db::events::insert(&mut tx, event.with(json!({ "reason": reason }))).await?;
    }
    tx.commit().await?;
    match was_held {
        true => print_line!("old records of {name} are removed again"),
        false => print_line!("{name} is not under a legal hold"),
    }
    Ok(())
}

/// Prints the nodes under a legal hold.
///
/// # Errors
/// When the database fails.
pub(super) async fn list(host: &Host) -> anyhow::Result<()> {
    let Act { mut tx, .. } = host.begin().await?;
    for held in db::legal_holds::list(&mut tx).await? {
        print_line!(
            "{} since {:.0} by {}: {}",
            held.node,
            held.held_at,
            held.held_by,
            held.reason
        );
    }
    Ok(())
}

fn check_reason(reason: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=REASON).contains(&reason.len()),
        "--reason: write why, in at most {REASON} bytes"
    );
    Ok(())
}

async fn find_node(conn: &mut PgConnection, name: &str) -> anyhow::Result<NodeId> {
    let found = db::legal_holds::find_node(conn, name).await?;
    found.with_context(|| {
        format!("there is no node {name} that a person has declared or acted on: `muster node list` shows the names")
    })
}
