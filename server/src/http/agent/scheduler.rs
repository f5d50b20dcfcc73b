//! Nodes out of service in their scheduler. The state is stored on the node, with one event at the
//! begin and one at the end. A node in service, drained by Muster's health check and seen drained
//! twice, is handled by its lifecycle. Drains by other people or programs are left alone, because
//! their reason is unknown.

use std::collections::BTreeMap;

use axum::extract::State;
use jiff::Timestamp;
use muster_core::clusters::{DrainReason, DrainedBy};
use muster_core::wire::scheduler::{NodeOut, SchedulerReport, SchedulerWatch, WatchedCluster};
use serde_json::json;
use sqlx::PgConnection;

use super::told::Told;
use super::{Agent, Standing};
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::scheduler::{ClusterRow, MemberOut};
use crate::error::Error;
use crate::http::extract::Json;

/// The interval between two reports, in seconds.
const EVERY_S: u64 = 60;
/// The largest stored state, in characters; below, the largest reason.
const STATE_CHARS: usize = 60;
const REASON_CHARS: usize = 300;

pub(super) async fn report(
    State(app): State<App>,
    agent: Agent,
    Told(report): Told<SchedulerReport>,
) -> Result<Json<SchedulerWatch>, Error> {
    let mut tx = app.pool.begin().await?;
    let standing = agent.fence_alone(&mut tx, report.epoch, &app).await?;
    let clusters = match standing {
        Standing::Acts => db::scheduler::list_clusters(&mut tx, &agent.site_name).await?,
        // An agent without a valid lease may report an old view of its cluster.
        Standing::Unheard | Standing::StandsBy => Vec::new(),
    };
    let now = app.clock.now();
    let mut changed = false;
    for look in &report.looks {
        // Ignore clusters of another site.
        if let Some(cluster) = clusters.iter().find(|cluster| cluster.id == look.cluster) {
            changed |= compare(&mut tx, &agent, cluster, &look.out, now).await?;
        }
    }
    tx.commit().await?;
    if changed {
        app.wake_readers.send_modify(|revision| *revision += 1);
    }
    if !report.looks.is_empty() {
        app.wake_engine.notify_one();
    }
    let watched = clusters
        .into_iter()
        .map(|ClusterRow { id, spec, .. }| WatchedCluster {
            id,
            cluster: spec.0,
        });
    Ok(Json(SchedulerWatch {
        clusters: watched.collect(),
        every_s: EVERY_S,
    }))
}

/// Compares the members of one cluster with the scheduler's latest report. Returns whether anything
/// changed.
async fn compare(
    conn: &mut PgConnection,
    agent: &Agent,
    cluster: &ClusterRow,
    out: &[NodeOut],
    now: Timestamp,
) -> Result<bool, Error> {
    let out: BTreeMap<&str, &NodeOut> = out.iter().map(|node| (node.name.as_str(), node)).collect();
    let (mut again, mut back, mut changed) = (Vec::new(), Vec::new(), false);
    for member in db::scheduler::list_members(conn, &cluster.name).await? {
        // During a pair measurement, the drain for a measurement is Muster's own. A drain with
        // another reason is not.
        let own = |node: &&&NodeOut| {
            let by = DrainedBy::read(node.reason.as_deref());
            member.held && by == DrainedBy::Muster(DrainReason::Measurement)
        };
        let said = out
            .get(member.name.as_str())
            .filter(|node| !own(node))
            .map(|node| shorten_report(node));
        match (&member.state, said) {
            (None, None) => {}
            // Keep the first state while the reason is unchanged: a drain reports `draining`, then
            // `drained`.
            (Some(_), Some((_, reason))) if member.reason == reason => again.push(member.id),
            (_, Some((state, reason))) => {
                changed = true;
                db::scheduler::set_out(conn, member.id, &state, reason.as_deref(), now).await?;
                emit_change(conn, agent, &member, Some((&state, reason.as_deref())), now).await?;
            }
            (Some(_), None) => {
                changed = true;
                emit_change(conn, agent, &member, None, now).await?;
                // The node is back in the scheduler: wake a pass waiting for the return.
                db::lifecycle::make_due(conn, member.id, now).await?;
                back.push(member.id);
            }
        }
    }
    db::scheduler::see_again(conn, &again, now).await?;
    db::scheduler::forget(conn, &back).await?;
    Ok(changed)
}

/// Shortens a reported state and reason, because reports are untrusted.
fn shorten_report(node: &NodeOut) -> (String, Option<String>) {
    let short = |text: &str, most| {
        text.chars()
            .filter(|c| !c.is_control())
            .take(most)
            .collect::<String>()
    };
    let state = short(&node.state, STATE_CHARS);
    let state = if state.is_empty() {
        "out".to_owned()
    } else {
        state
    };
    (
        state,
        node.reason
            .as_deref()
            .map(|reason| short(reason, REASON_CHARS))
            .filter(|reason| !reason.is_empty()),
    )
}

/// Emits an event for a node in service only. Joining and leaving nodes are drained by Muster.
async fn emit_change(
    conn: &mut PgConnection,
    agent: &Agent,
    member: &MemberOut,
    said: Option<(&str, Option<&str>)>,
    now: Timestamp,
) -> Result<(), Error> {
    if !member.serves {
        return Ok(());
    }
    let (kind, summary) = match said {
        Some((state, reason)) => {
            let because = reason
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default();
            (
                "scheduler.out",
                format!(
                    "{}: the scheduler shows the node as {state}{because}",
                    member.name
                ),
            )
        }
        None => (
            "scheduler.back",
            format!("{}: the scheduler gives the node jobs again", member.name),
        ),
    };
    let detail = said.map(|(state, reason)| json!({ "state": state, "reason": reason }));
    let event = NewEvent::node(
        now,
        format!("agent:{}", agent.name),
        kind,
        member.id,
        summary,
    );
    db::events::insert(conn, event.with(detail.unwrap_or_else(|| json!({})))).await
}
