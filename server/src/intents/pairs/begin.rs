//! The record of a requested run: the operation, the nodes and the event, written in one
//! transaction.

use jiff::{SignedDuration, Timestamp};
use muster_api::pairs::{DEFAULT_MOST, DEFAULT_WITHIN_S, RunPairs};
use muster_core::gates::Suite;
use muster_core::ids::{NodeId, OperationId};
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db::objects::ObjectRow;
use crate::db::operations::NewOperation;
use crate::db::pairs::ends::Candidate;
use crate::db::pairs::runs::NewRun;
use crate::engine::disruption::OpenLedger;
use crate::error::Error;
use crate::intents::pairs::rules::{self, Selection};
use crate::{db, document};

/// The largest number of a pool's nodes considered by a run.
const CONSIDERED: i64 = 4096;

/// Begins a run inside the caller's transaction.
///
/// # Errors
/// The errors of the route `run_pairs`.
pub(crate) async fn begin(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pool: &ObjectRow,
    body: &RunPairs,
) -> Result<OperationId, Error> {
    let suite = find_suite(conn, &body.suite).await?;
    let candidates = list_candidates(conn, pool, &body.nodes).await?;
    let now = app.clock.now();
    let mut selection = Selection::of(&candidates, body.most.unwrap_or(DEFAULT_MOST) as usize);
    if let Some(reason) = &body.override_budget {
        let key = &pool.id.to_string();
        let named = Named { kind: "pool", key };
        actor.need(conn, "budget.override", named).await?;
        rules::check_override(reason)?;
    } else {
        leave_out_beyond_budget(conn, &mut selection, now).await?;
    }
    allow(pool, &selection)?;
    let message = format!(
        "{} against each other by {} {}",
        count_nodes(selection.taken.len()),
        suite.name,
        suite.version
    );
    let operation = new_operation(actor, message.clone(), now);
    db::operations::insert(conn, &operation).await?;
    let within = SignedDuration::from_secs(i64::from(body.within_s.unwrap_or(DEFAULT_WITHIN_S)));
    let run = NewRun {
        id: operation.id,
        pool: pool.id,
        actor: &actor.name,
        suite: &suite,
        variables: &body.variables,
        beyond: selection.beyond,
        begun_at: now,
        deadline_at: now + within,
    };
    db::pairs::runs::insert(conn, &run).await?;
    db::pairs::ends::insert(conn, run.id, &selection.taken, &selection.left, now).await?;
    db::pairs::ends::wake(conn, run.id, now).await?;
    let summary = format!(
        "{} requested a pair run of {}: {message}",
        actor.name, pool.name
    );
    let event = actor
        .event(now, "pairs.started", None, summary)
        .about(pool.id)
        .under(Some(run.id));
    let names: Vec<&str> = selection.taken.iter().map(|(_, name)| *name).collect();
    let detail = json!({ "pool": pool.name, "suite": suite.name, "nodes": names, "override_budget": body.override_budget });
    db::events::insert(conn, event.with(detail)).await?;
    Ok(run.id)
}

/// Loads the suite, with its pair gates only.
async fn find_suite(conn: &mut PgConnection, name: &str) -> Result<Suite, Error> {
    let missing = || {
        let detail = format!("There is no suite called {name:?}.");
        Error::unprocessable("/suite", "not_found", detail)
    };
    let row = db::objects::find_for_reference(conn, "suite", name).await?;
    let row = row.ok_or_else(missing)?;
    let suite: Suite = document::stored(&row)?;
    rules::keep_pair_gates(suite, name)
}

/// The nodes of the pool to choose from: the named nodes, or all nodes where the request names
/// none.
///
/// # Errors
/// 422 for a name outside the pool.
async fn list_candidates(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    names: &[String],
) -> Result<Vec<Candidate>, Error> {
    let named = Some(names).filter(|names| !names.is_empty());
    let candidates = db::pairs::ends::list_candidates(conn, pool.id, named, CONSIDERED).await?;
    let unknown = |name: &&String| candidates.iter().all(|one| one.name != **name);
    match names.iter().find(unknown) {
        None => Ok(candidates),
        Some(stranger) => {
            let detail = format!("{} holds no node called {stranger:?}.", pool.name);
            Err(Error::unprocessable("/nodes", "not_found", detail))
        }
    }
}

/// Leaves out the nodes without a free slot of the disruption budget. The slots of the others are
/// taken: a node of an open run counts as out of service.
async fn leave_out_beyond_budget(
    conn: &mut PgConnection,
    selection: &mut Selection<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let nodes: Vec<NodeId> = selection.taken.iter().map(|(id, _)| *id).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let Some(mut open) = OpenLedger::open(conn, &nodes, now).await? else {
        let detail = "The pool or its site is being changed; try again.";
        return Err(Error::conflict("contended", detail));
    };
    for (id, name) in std::mem::take(&mut selection.taken) {
        match open.take(id) {
            Ok(_) => selection.taken.push((id, name)),
            Err(full) => {
                let why = format!("the disruption budget has no free slot: {full}");
                selection.left.push((id, name, why));
            }
        }
    }
    Ok(())
}

/// Checks that a run has two nodes.
///
/// # Errors
/// 409 where fewer than two nodes are idle; the sentence names the first five left-out nodes.
fn allow(pool: &ObjectRow, selection: &Selection<'_>) -> Result<(), Error> {
    if selection.taken.len() >= 2 {
        return Ok(());
    }
    let first: Vec<String> = selection
        .left
        .iter()
        .take(5)
        .map(|(_, name, why)| format!("{name}: {why}"))
        .collect();
    let detail = format!(
        "Fewer than two nodes of {} are idle and may be held back. {}",
        pool.name,
        first.join("; ")
    );
    Err(Error::conflict("too_few", detail.trim().to_owned()))
}

/// The operation of a run, without a node and without a claim.
fn new_operation(actor: &Actor, message: String, now: Timestamp) -> NewOperation {
    NewOperation {
        id: OperationId::new(),
        kind: "run-pairs",
        node: None,
        claim: None,
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
        message,
        now,
    }
}

fn count_nodes(nodes: usize) -> String {
    if nodes == 1 {
        "1 node".to_owned()
    } else {
        format!("{nodes} nodes")
    }
}
