//! Rollouts as returned to readers: the stored row, with the plan as of now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::rollouts::{Rollout, RolloutNode, RolloutNow, RolloutReason, RolloutState};
use muster_core::ids::{NodeId, ObjectId};
use muster_core::rollout::{Placement, Plan, Rule, plan};
use sqlx::PgConnection;

use super::fleet::{self, Loaded};
use crate::access::Place;
use crate::auth::Actor;
use crate::db;
use crate::db::rollout_nodes::NodeRow;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// Number of rollouts in a list.
const NEWEST: i64 = 100;

/// Loads a rollout with the nodes. Nodes outside the actor's read scope are counted, and are not
/// named.
///
/// # Errors
/// 404 for an unknown rollout; 409 for an unreadable revision.
pub(crate) async fn load(
    conn: &mut PgConnection,
    actor: &Actor,
    key: &str,
    now: Timestamp,
) -> Result<Rollout, Error> {
    let row = super::find(conn, key).await?;
    render(conn, actor, row, now, true).await
}

/// Lists the newest hundred rollouts, of all pools or of one, without nodes.
///
/// # Errors
/// When the database fails.
pub(crate) async fn list(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: Option<ObjectId>,
    now: Timestamp,
) -> Result<Vec<Rollout>, Error> {
    let mut rollouts = Vec::new();
    for row in db::rollouts::list(conn, pool, NEWEST).await? {
        let Some(place) = db::access::find_place(conn, "pool", &row.pool.to_string()).await? else {
            continue;
        };
        if actor.holding.there("fleet.read", &place) {
            rollouts.push(render(conn, actor, row, now, false).await?);
        }
    }
    Ok(rollouts)
}

/// Renders a rollout. Only an open rollout is planned.
async fn render(
    conn: &mut PgConnection,
    actor: &Actor,
    row: RolloutRow,
    now: Timestamp,
    with_nodes: bool,
) -> Result<Rollout, Error> {
    let is_open = matches!(
        row.state,
        RolloutState::Planned | RolloutState::Running | RolloutState::Halted
    );
    let loaded = match is_open || with_nodes {
        // An unreadable revision keeps neither a list nor a halt from its answer.
        true => match fleet::load(conn, &row, now).await {
            Ok(loaded) => Some(loaded),
            Err(Error::Conflict { .. }) => None,
            Err(error) => return Err(error),
        },
        false => None,
    };
    let planned = loaded.as_ref().map(|loaded| {
        let planned = plan(&row.policy, &loaded.fleet, now);
        (loaded, planned)
    });
    let nodes = planned
        .as_ref()
        .filter(|_| with_nodes)
        .map(|(loaded, planned)| render_nodes(actor, &row, loaded, planned));
    let seen = planned.filter(|_| is_open).map(|(_, planned)| RolloutNow {
        // The rule may be of a node outside the actor's read scope.
        binding: planned
            .binding
            .as_ref()
            .map(|rule| describe(&rule.without_holders())),
        failure_rule: planned.failure_rule,
        changing: planned.concurrency.now,
        most_changing: planned.concurrency.max,
    });
    let marks = db::rollout_nodes::count_marks(conn, row.id).await?;
    Ok(Rollout {
        id: row.id.0,
        link: format!("/v1/rollouts/{}", row.name),
        marks: marks.into_iter().collect(),
        halt: row.halt.as_ref().map(|reason| RolloutReason {
            code: reason.0.code().to_owned(),
            sentence: reason.0.to_string(),
        }),
        now: seen,
        stalled_since: row.stalled_since.map(|at| at.to_jiff()),
        nodes,
        name: row.name,
        pool: row.pool_name,
        revision: row.number,
        state: row.state,
        plan: row.digest,
        expires_at: row.expires_at,
        policy: row.policy.0,
        planned: u32::try_from(row.planned).unwrap_or_default(),
        promoted: row.promoted,
        actor: row.actor,
        created_at: row.created_at,
        started_at: row.started_at.map(|at| at.to_jiff()),
        ended_at: row.ended_at.map(|at| at.to_jiff()),
    })
}

fn render_nodes(
    actor: &Actor,
    rollout: &RolloutRow,
    loaded: &Loaded,
    planned: &Plan,
) -> Vec<RolloutNode> {
    let placements: BTreeMap<NodeId, &Placement> = planned
        .placements
        .iter()
        .map(|placement| (placement.node, placement))
        .collect();
    loaded
        .rows
        .iter()
        .filter(|row| is_seen(actor, rollout, row))
        .map(|row| RolloutNode {
            node: row.name.clone(),
            mark: row.mark,
            since: row.since,
            running: row.running,
            effect: loaded
                .effects
                .get(&row.running)
                .map(|effect| effect.as_str().to_owned()),
            state: row.state.to_string(),
            why: placements
                .get(&row.node)
                .filter(|_| !row.mark.is_terminal())
                .and_then(|placement| placement.why.as_ref())
                .map(describe_own),
            last: row
                .reason_code
                .clone()
                .zip(row.reason.clone())
                .map(|(code, sentence)| RolloutReason { code, sentence }),
        })
        .collect()
}

fn is_seen(actor: &Actor, rollout: &RolloutRow, row: &NodeRow) -> bool {
    let place = Place {
        site: Some(row.site.clone()),
        rack: row.rack.clone(),
        pool: Some(rollout.pool_name.clone()),
        labels: row.labels.0.clone(),
    };
    actor.holding.there("fleet.read", &place)
}

/// Describes the rule of a node. The rule of a unit may be about another node's job.
fn describe_own(rule: &Rule) -> RolloutReason {
    match rule {
        Rule::Job(_) => describe(rule),
        rule => describe(&rule.without_holders()),
    }
}

fn describe(rule: &Rule) -> RolloutReason {
    RolloutReason {
        code: rule.code().to_owned(),
        sentence: rule.to_string(),
    }
}
