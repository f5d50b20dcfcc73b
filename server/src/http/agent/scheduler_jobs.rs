//! Jobs on the nodes of a scheduler, kept for rollouts. A report is untrusted: texts are cut, and only
//! members of the agent's own clusters have jobs. The reply lists the nodes waiting for a change.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::extract::State;
use jiff::Timestamp;
use muster_core::ids::{NodeId, RolloutId};
use muster_core::rollout::Opening;
use muster_core::wire::scheduler::{
    ClusterJob, ClusterWaits, JobsReply, JobsReport, Reservations, Wait, WindowWait,
};
use serde_json::json;
use sqlx::PgConnection;

use super::told::Told;
use super::{Agent, Standing};
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::scheduler::ClusterRow;
use crate::db::scheduler_jobs::{KEPT, KeptJob, NodeJobs};
use crate::error::Error;
use crate::http::extract::Json;
use crate::intents::rollouts::jobs::FRESH;
use crate::intents::rollouts::windows::Windows;

/// The longest stored id, user and state, in characters.
const TEXT_CHARS: usize = 60;
/// The longest stored message about reservations, in characters.
const MESSAGE_CHARS: usize = 400;

pub(super) async fn report(
    State(app): State<App>,
    agent: Agent,
    Told(report): Told<JobsReport>,
) -> Result<Json<JobsReply>, Error> {
    let mut tx = app.pool.begin().await?;
    let mut reply = JobsReply {
        clusters: Vec::new(),
        takes_reservations: true,
    };
    let mut has_event = false;
    match agent.fence_alone(&mut tx, report.epoch, &app).await? {
        Standing::Acts => {
            let now = app.clock.now();
            for cluster in db::scheduler::list_clusters(&mut tx, &agent.site_name).await? {
                let look = report.looks.iter().find(|look| look.cluster == cluster.id);
                if let Some(look) = look {
                    keep_jobs(&mut tx, &cluster, &look.jobs, now).await?;
                    if let Some(reservations) = &look.reservations {
                        has_event |=
                            keep_reservations(&mut tx, &cluster, reservations, now).await?;
                    }
                    reply
                        .clusters
                        .push(list_waits(&mut tx, &cluster, now).await?);
                }
            }
        }
        // An agent without a valid lease may report an old view of its cluster.
        Standing::Unheard | Standing::StandsBy => {}
    }
    tx.commit().await?;
    if has_event {
        app.wake_readers.send_modify(|revision| *revision += 1);
    }
    Ok(Json(reply))
}

/// Records whether the reservations of waiting nodes are as needed. Returns whether an event tells the
/// beginning or the end of failures.
async fn keep_reservations(
    conn: &mut PgConnection,
    cluster: &ClusterRow,
    reservations: &Reservations,
    now: Timestamp,
) -> Result<bool, Error> {
    let shown = match reservations {
        Reservations::AsNeeded => None,
        Reservations::Failed(failure) => Some((
            failure.code.shortened(TEXT_CHARS),
            shorten_text(&failure.message, MESSAGE_CHARS),
        )),
    };
    let failure = shown.as_ref();
    let failure = failure.map(|(code, message)| (code.as_str(), message.as_str()));
    let had_failed = db::scheduler_jobs::set_failure(conn, cluster.id, failure, now).await?;
    let name = &cluster.name;
    let (kind, summary, code) = match (had_failed, failure) {
        (false, Some((code, message))) => (
            "cluster.reservations_failed",
            format!(
                "{name}: waiting nodes may get jobs that are too long, because their reservations failed: {message}"
            ),
            Some(code),
        ),
        (true, None) => (
            "cluster.reservations_restored",
            format!("{name}: the reservations of waiting nodes are as needed again"),
            None,
        ),
        (true, Some(_)) | (false, None) => return Ok(false),
    };
    let event = NewEvent::new(now, "muster", kind, summary).about(cluster.id);
    db::events::insert(conn, event.with(json!({ "code": code }))).await?;
    Ok(true)
}

/// Lists the waiting nodes of a cluster, by the longest job allowed to start. While the maintenance
/// windows of a rollout are closed, its nodes run every job that ends before the next opening.
async fn list_waits(
    conn: &mut PgConnection,
    cluster: &ClusterRow,
    now: Timestamp,
) -> Result<ClusterWaits, Error> {
    let rows = db::rollout_waits::list_waiting(conn, &cluster.name).await?;
    let mut openings: BTreeMap<RolloutId, Opening> = BTreeMap::new();
    for row in &rows {
        if let Entry::Vacant(unknown) = openings.entry(row.rollout) {
            let windows = Windows::load(conn, row.rollout).await?;
            unknown.insert(windows.calendar.open_at(now));
        }
    }
    let mut waits: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut window_waits: BTreeMap<Timestamp, Vec<String>> = BTreeMap::new();
    for row in rows {
        match openings[&row.rollout] {
            Opening::Open { .. } => {
                let lead_s = u32::try_from(row.lead_s).unwrap_or_default();
                waits.entry(lead_s).or_default().push(row.name);
            }
            Opening::Closed { opens: Some(at) } => {
                window_waits.entry(at).or_default().push(row.name);
            }
            Opening::Closed { opens: None } => {}
        }
    }
    // A rollout without a lead closes a node after the end of its jobs: no job may start.
    let waits = waits.into_iter().map(|(lead_s, nodes)| Wait {
        lead_s: lead_s.max(1),
        nodes,
    });
    let window_waits = window_waits
        .into_iter()
        .map(|(opens_at, nodes)| WindowWait { opens_at, nodes });
    Ok(ClusterWaits {
        cluster: cluster.id,
        waits: waits.collect(),
        window_waits: window_waits.collect(),
    })
}

async fn keep_jobs(
    conn: &mut PgConnection,
    cluster: &ClusterRow,
    jobs: &[ClusterJob],
    now: Timestamp,
) -> Result<(), Error> {
    let members = db::scheduler::list_members(conn, &cluster.name).await?;
    let members: BTreeMap<&str, NodeId> = members
        .iter()
        .map(|member| (member.name.as_str(), member.id))
        .collect();
    let mut by_node: BTreeMap<NodeId, Vec<&ClusterJob>> = BTreeMap::new();
    for job in jobs {
        for node in &job.nodes {
            if let Some(id) = members.get(node.as_str()) {
                by_node.entry(*id).or_default().push(job);
            }
        }
    }
    let nodes: Vec<NodeJobs> = by_node
        .into_iter()
        .map(|(node, jobs)| keep_last(node, jobs))
        .collect();
    let before = db::scheduler_jobs::replace(conn, cluster.id, &nodes, now).await?;
    let watched = before.is_some_and(|before| now.duration_since(before) <= FRESH);
    db::rollout_waits::follow_jobs(conn, cluster.id, watched, now).await
}

/// Keeps the jobs that end last. A job without an end is the last. Of the jobs that the scheduler does
/// not requeue, the last is kept in any case.
fn keep_last(node: NodeId, mut jobs: Vec<&ClusterJob>) -> NodeJobs {
    jobs.sort_by_key(|job| std::cmp::Reverse((job.ends.is_none(), job.ends, &job.id)));
    let running = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    if let Some(stays) = jobs.iter().position(|job| !job.requeues)
        && stays >= KEPT
    {
        jobs.swap(KEPT - 1, stays);
    }
    NodeJobs {
        node,
        running,
        jobs: jobs.into_iter().take(KEPT).map(shorten).collect(),
    }
}

fn shorten_text(text: &str, characters: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(characters).collect()
}

fn shorten(job: &ClusterJob) -> KeptJob {
    let short = |text: &str| shorten_text(text, TEXT_CHARS);
    KeptJob {
        ends: job.ends,
        id: short(&job.id),
        user: short(&job.user),
        state: short(&job.state),
        requeues: job.requeues,
    }
}
