//! Plans a rollout: the nodes with their effects, and the policy, under a digest. A person starts the
//! plan by the digest.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use muster_api::kind::Kind as _;
use muster_api::monitors::MonitorSpec;
use muster_api::rollouts::PlanRollout;
use muster_core::effects::Effect as Cost;
use muster_core::ids::{ObjectId, RolloutId};
use muster_core::rollout::{
    Fleet, HaltWhen, MaintenanceWindow, Opening, RolloutPolicy, Rule, find_unit_faults,
    plan as plan_tick,
};
use muster_core::values::Digest;
use serde_json::json;
use sqlx::PgConnection;

use super::fleet::{self, Loaded};
use super::view::{self, Parts};
use super::windows::Windows;
use super::{fits, promotion, regressions, reinstalls};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::revisions::StoredRevision;
use crate::db::rollouts::{NewRollout, RolloutRow};
use crate::document::fault;
use crate::engine::signatures;
use crate::error::{Error, Fault};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::find_pool;
use crate::intents::revisions;
use crate::intents::writing::{self, Effect};

/// Time until a plan ends without a start.
const WAITS: SignedDuration = SignedDuration::from_hours(24);

/// Plans a rollout of a pool to a revision.
///
/// # Errors
/// 404 for an unknown pool; 409 for an unfit revision, or a pool without nodes to
/// change; 422 for an unknown revision and a wrong policy.
pub(crate) async fn plan(
    app: &App,
    actor: &Actor,
    idempotency: IdempotencyKey,
    body: &PlanRollout,
) -> Result<Answer, Error> {
    check(&body.policy)?;
    writing::once(app, actor, idempotency, body, async |conn| {
        check_date(&body.policy, app.clock.now())?;
        check_window(conn, &body.policy).await?;
        check_monitors(conn, &body.policy).await?;
        let pool = find_pool(conn, &body.pool).await?;
        // A hidden pool is reported by the name in the request, like a missing pool.
        let (kind, key) = ("pool", body.pool.as_str());
        let named = Named { kind, key };
        actor.need(conn, "rollout.plan", named).await?;
        regressions::check(conn, pool.id, &body.policy, &RolloutPolicy::default()).await?;
        reinstalls::need_right(conn, actor, &body.policy, named).await?;
        db::revisions::lock(conn, pool.id).await?;
        let stored = revisions::find_named(conn, pool.id, body.revision).await?;
        let (id, name) = (pool.id, &pool.name);
        let (row, _) = store(conn, app, actor, &stored, &body.policy, id, name).await?;
        let rollout = view::load(conn, actor, &row.name, app.clock.now(), Parts::Nodes).await?;
        let answer = Answer::ok(&rollout)?.status(StatusCode::CREATED);
        Ok(Effect::Done(answer.location(rollout.link)))
    })
    .await
}

/// Plans a rollout and stores the plan. The caller holds the lock on the pool's revisions.
///
/// # Errors
/// 409 for an unfit revision, or a pool without nodes to change.
pub(super) async fn store(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    stored: &StoredRevision,
    policy: &RolloutPolicy,
    pool: ObjectId,
    pool_name: &str,
) -> Result<(RolloutRow, Loaded), Error> {
    let target = revisions::parse_installable(stored)?;
    promotion::check(conn, actor, pool, &target, policy).await?;
    let now = app.clock.now();
    let number = db::rollouts::find_next_number(conn, pool_name).await?;
    let name = format!("{pool_name}-{number}");
    let mut new = NewRollout {
        id: RolloutId::new(),
        name: &name,
        pool,
        target: stored.id,
        policy,
        digest: "",
        expires_at: now + WAITS,
        planned: 0,
        actor: &actor.name,
        person: &actor.person,
        now,
    };
    db::rollouts::insert(conn, &new).await?;
    db::rollout_nodes::follow_members(conn, new.id, now).await?;
    let row = super::find(conn, &name).await?;
    let loaded = fleet::load(conn, &row, now).await?;
    let planned = count_changes(&loaded);
    let revision = stored.number;
    if planned == 0 {
        let detail = format!("No node of {pool_name} needs a change for revision {revision}.");
        return Err(Error::conflict("nothing_to_change", detail));
    }
    refuse_impossible(policy, &loaded, now)?;
    let mut effects = loaded.fleet.nodes.iter().map(|node| node.effect);
    if effects.any(|effect| effect >= Cost::Reinstall && policy.allow.permits(effect)) {
        signatures::need_proof(conn, pool, &target.image, now).await?;
    }
    fits::keep_unfit(conn, &row, &loaded, &target).await?;
    reinstalls::keep(conn, &row, &loaded).await?;
    let digest = find_digest(&row, &loaded);
    new.digest = &digest;
    new.planned = i32::try_from(planned).unwrap_or(i32::MAX);
    db::rollouts::set_plan(conn, &new).await?;
    let summary =
        format!("rollout {name} is planned: {planned} nodes of {pool_name} to revision {revision}");
    let event = actor
        .event(now, "rollout.planned", None, summary)
        .about(pool);
    let detail = json!({ "rollout": name, "pool": pool_name, "revision": revision, "planned": planned, "plan": digest });
    db::events::insert(conn, event.with(detail)).await?;
    Ok((super::find(conn, &name).await?, loaded))
}

pub(super) fn check(policy: &RolloutPolicy) -> Result<(), Error> {
    let mut faults: Vec<Fault> = policy
        .faults()
        .into_iter()
        .map(|wrong| {
            fault(
                format!("/policy/{}", wrong.pointer),
                wrong.code,
                wrong.detail,
            )
        })
        .collect();
    if policy.train {
        let detail =
            "A rollout changes the stack of a node. Other changes of the node are separate.";
        faults.push(fault("/policy/train", "unsupported", detail));
    }
    if !policy.notice_before_s.is_empty() {
        let detail = "A rollout sends no notices to the users of a node.";
        faults.push(fault("/policy/notice_before_s", "unsupported", detail));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}

/// Checks that the policy's date is in the future.
pub(super) fn check_date(policy: &RolloutPolicy, now: Timestamp) -> Result<(), Error> {
    match policy.visit_by {
        Some(by) if by <= now => Err(Error::unprocessable(
            "/policy/visit_by",
            "out_of_range",
            format!("The date has passed; now it is {now:.0}."),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Checks that the policy's maintenance window exists. The lock keeps the window until the plan is
/// stored.
pub(super) async fn check_window(
    conn: &mut PgConnection,
    policy: &RolloutPolicy,
) -> Result<(), Error> {
    let Some(name) = &policy.maintenance_window else {
        return Ok(());
    };
    let found = db::objects::find_for_reference(conn, MaintenanceWindow::KIND, name).await?;
    match found {
        Some(_) => Ok(()),
        None => Err(Error::unprocessable(
            "/policy/maintenance_window",
            "not_found",
            format!("There is no maintenance_window called {name:?}."),
        )),
    }
}

/// Checks that the policy's monitors exist. The locks keep the monitors until the plan is stored.
pub(super) async fn check_monitors(
    conn: &mut PgConnection,
    policy: &RolloutPolicy,
) -> Result<(), Error> {
    let mut faults = Vec::new();
    for (at, signal) in policy.halt_when.iter().enumerate() {
        let HaltWhen::Monitor(name) = signal else {
            continue;
        };
        let found = db::objects::find_for_reference(conn, MonitorSpec::KIND, name).await?;
        if found.is_none() {
            let pointer = format!("/policy/halt_when/{at}/monitor");
            let detail = format!("There is no monitor called {name:?}.");
            faults.push(fault(pointer, "not_found", detail));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}

/// Counts the nodes to be changed.
fn count_changes(loaded: &Loaded) -> usize {
    let nodes = loaded.fleet.nodes.iter();
    nodes.filter(|node| node.effect != Cost::None).count()
}

/// Refuses windows without a common opening.
///
/// # Errors
/// 409 `never_open` with the names of the windows.
pub(super) fn refuse_never_open(windows: &Windows, now: Timestamp) -> Result<(), Error> {
    if windows.calendar.open_at(now) == (Opening::Closed { opens: None }) {
        let names = windows.list_names();
        let detail =
            format!("The rollout could never take a node: no common opening of {names} is near.");
        return Err(Error::conflict("never_open", detail));
    }
    Ok(())
}

/// Refuses a rollout never able to close a node.
///
/// # Errors
/// 409 with the exhausted budget and the numbers, with a limit smaller than a unit, or with the names
/// of windows never open together.
fn refuse_impossible(policy: &RolloutPolicy, loaded: &Loaded, now: Timestamp) -> Result<(), Error> {
    refuse_never_open(&loaded.windows, now)?;
    // A closed window and a monitor without an answer hide the budget.
    let open = Fleet {
        planned: u32::try_from(count_changes(loaded)).unwrap_or(u32::MAX),
        window: Opening::Open { until: None },
        frozen_until: None,
        silent: None,
        ..loaded.fleet.clone()
    };
    if let Some(fault) = find_unit_faults(policy, &open, now).first() {
        return Err(Error::conflict("unit_too_large", fault.detail.clone()));
    }
    let ticked = plan_tick(policy, &open, now);
    match ticked.concurrency.bound_by {
        Some(Rule::Budget(refusal)) if ticked.concurrency.max == 0 && refusal.max == 0 => {
            Err(Error::conflict(
                "budget",
                format!("The rollout could never begin: {refusal}."),
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the digest of the plan: the target, the policy, and the nodes with their effects.
pub(super) fn find_digest(row: &RolloutRow, loaded: &Loaded) -> String {
    let nodes = loaded.fleet.nodes.iter();
    let nodes: Vec<(&str, Cost, Option<u32>)> = nodes
        .map(|node| {
            (
                node.name.as_str(),
                node.effect,
                node.runs.map(|number| number.0),
            )
        })
        .collect();
    let plan =
        json!({ "pool": row.pool, "target": row.target, "policy": row.policy, "nodes": nodes });
    Digest::of(plan.to_string().as_bytes()).to_string()
}
