//! The page of one rollout: the halt first, then the rule in force, the estimated end, the waves and
//! the nodes.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_api::rollouts::{
    Rollout, RolloutNode, RolloutNow, RolloutReason, RolloutState, RolloutWindow,
};
use muster_core::rollout::{Mark, MonitorState, RolloutPolicy};
use serde::Deserialize;
use sqlx::PgConnection;

use super::bar::{self, Bar};
use super::list::name_revisions;
use super::parts::{self, Busy, Chosen, End, Rights, Start, Table};
use super::waves::{self, Waves};
use crate::access::Place;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::intents::pairs::find_pool;
use crate::intents::rollouts::view::{self, Parts};
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};
use crate::ui::frame::{Frame, Live, Section, Visit};

/// Most revisions offered for the way back.
const REVISIONS: i64 = 20;
/// Newest rollouts of the pool in which an open one is looked for.
const ROLLOUTS: i64 = 100;

#[derive(Template, WebTemplate)]
#[template(path = "rollout.html")]
pub(in crate::ui) struct Page {
    frame: Frame,
    name: String,
    pool: String,
    revisions: String,
    chip: Chip,
    /// Why a form was rejected. Empty when accepted.
    refused: String,
    is_halted: bool,
    is_planned: bool,
    /// The reason of the halt.
    halt: String,
    busy: Busy,
    may_halt: bool,
    /// Whether the reader may resume, promote, skip and retry.
    may_resume: bool,
    may_promote: bool,
    start: Option<Start>,
    adjust: Option<AdjustForm>,
    /// The form that plans again with the present nodes.
    may_replan: bool,
    revision: i32,
    expires: Moment,
    bar: Bar,
    facts: Facts,
    end: Option<End>,
    waves: Waves,
    table: Table,
    /// Revisions offered for the way back, the former revision first.
    back: Vec<i32>,
    policy: String,
    /// Chips of all marks, for the legend.
    legend: Vec<Chip>,
}

/// The form that changes the budgets of an open rollout.
struct AdjustForm {
    /// The values of the rollout. Values that a person leaves alone are not sent.
    shown: Adjust,
    typed: Adjust,
    is_refused: bool,
}

/// Values of the form for budgets.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjust {
    pub changing: String,
    pub waiting: String,
    pub validating: String,
    /// Empty without a number.
    pub failures: String,
    pub reason: String,
}

/// Lines about the rollout as a whole.
struct Facts {
    planned: u32,
    /// `2 of at most 5`. Empty after the end.
    changing: String,
    bound_by: String,
    binding: String,
    failure_rule: String,
    /// The start of the time without progress.
    stalled: Option<Moment>,
    promoted: bool,
    actor: String,
    created: Moment,
    started: Option<Moment>,
    ended: Option<Moment>,
    windows: Vec<Window>,
    signals: Vec<Signal>,
    /// Name of the rollout before. Empty without one.
    after: String,
    /// The date of the policy.
    visit_by: Option<Moment>,
    /// `3 nodes are late`. Empty while every node may end in time.
    late: String,
    /// `12.0 GPU-hours lost by waiting`. Empty without a loss.
    losses: String,
    /// The reservations of the waiting nodes fail.
    reservations: Option<Reservations>,
}

/// Failing reservations of waiting nodes.
struct Reservations {
    since: Moment,
    sentence: String,
}

/// An alert or a monitor that halts the rollout.
struct Signal {
    sentence: String,
    /// The signal halts the rollout, or keeps further nodes back.
    is_late: bool,
}

/// A maintenance window.
struct Window {
    name: String,
    /// `site lab`, `pool gpu` or `rollout gpu-3`.
    named_by: String,
    open: bool,
    unreadable: bool,
    /// The end of the open time, or the next opening.
    changes: Option<Moment>,
    /// The reason of the freeze of today. Empty without a freeze.
    frozen: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::ui) struct NodesQuery {
    mark: String,
    after: String,
}

/// Shows one rollout.
pub(in crate::ui) async fn show_rollout(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Query(query): Query<NodesQuery>,
) -> Result<Page, Error> {
    let refused = Refused::default();
    load(&app, &actor, &visit, &key, &query, refused).await
}

/// A rejected form of the page.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Why the form was rejected. Empty without a form.
    pub why: String,
    /// The typed values of the form for budgets.
    pub adjust: Option<Adjust>,
}

/// Loads the page. `refused`: a rejected form of the page.
pub(super) async fn load(
    app: &App,
    actor: &Actor,
    visit: &Visit,
    key: &str,
    query: &NodesQuery,
    refused: Refused,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let now = visit.now;
    let rollout = view::load(&mut conn, actor, key, now, Parts::Estimate).await?;
    let place = db::access::find_place(&mut conn, "rollout", key).await?;
    let rights = find_rights(actor, place.as_ref());
    let other = find_other(&mut conn, &rollout).await?;
    let back = match rights.plan {
        true => list_back(&mut conn, &rollout).await?,
        false => Vec::new(),
    };
    let mark = match query.mark.as_str() {
        "" => None,
        word => Some(word.parse::<Mark>().map_err(|_| {
            let detail = format!("{word:?} is not a mark.");
            Error::unprocessable("/mark", "unknown", detail)
        })?),
    };
    let after = query.after.as_str();
    let table = parts::render_table(&rollout, &Chosen { mark, after }, rights.start, now);
    let name = format::shell(&rollout.name);
    let frame = Frame::new(visit, actor, Section::Rollouts, rollout.name.clone()).by_hand(
        format!("muster rollout show {name}"),
        &format!("/v1/rollouts/{}", format::escape(&rollout.name)),
    );
    let frame = frame.live(find_liveness(&rollout));
    let beside = Beside {
        rights,
        other,
        back,
        table,
        refused,
    };
    Ok(render(frame, rollout, beside, now))
}

fn find_rights(actor: &Actor, place: Option<&Place>) -> Rights {
    let may = |verb: &str| place.is_some_and(|place| actor.holding.there(verb, place));
    Rights {
        halt: may("rollout.halt"),
        start: may("rollout.start"),
        plan: may("rollout.plan"),
    }
}

/// An ended rollout no longer changes. A plan is read and confirmed as shown.
fn find_liveness(rollout: &Rollout) -> Live {
    match rollout.state {
        RolloutState::Running | RolloutState::Halted => Live::Any,
        RolloutState::Planned
        | RolloutState::Done
        | RolloutState::Superseded
        | RolloutState::Expired => Live::Never,
    }
}

/// Returns the name of another rollout of the pool that runs or is halted. Empty without one.
async fn find_other(conn: &mut PgConnection, rollout: &Rollout) -> Result<String, Error> {
    if rollout.state != RolloutState::Planned {
        return Ok(String::new());
    }
    let pool = find_pool(conn, &rollout.pool).await?.id;
    let rows = db::rollouts::list(conn, Some(pool), ROLLOUTS).await?;
    let is_open =
        |row: &RolloutRow| matches!(row.state, RolloutState::Running | RolloutState::Halted);
    let open = rows.into_iter().find(is_open);
    Ok(open.map(|row| row.name).unwrap_or_default())
}

/// Returns the revisions other than the target, the former revision first. Empty for a plan.
async fn list_back(conn: &mut PgConnection, rollout: &Rollout) -> Result<Vec<i32>, Error> {
    match rollout.state {
        RolloutState::Planned | RolloutState::Expired => return Ok(Vec::new()),
        RolloutState::Running
        | RolloutState::Halted
        | RolloutState::Done
        | RolloutState::Superseded => {}
    }
    let pool = find_pool(conn, &rollout.pool).await?.id;
    let rows = db::revisions::list(conn, pool, None, REVISIONS).await?;
    let mut numbers: Vec<i32> = rows
        .into_iter()
        .map(|row| row.number)
        .filter(|number| *number != rollout.revision)
        .collect();
    let former = rollout.from.last().copied();
    numbers.sort_by_key(|number| (Some(*number) != former, std::cmp::Reverse(*number)));
    Ok(numbers)
}

/// The parts of the page beside the rollout.
struct Beside {
    rights: Rights,
    /// Name of the open rollout of the pool.
    other: String,
    back: Vec<i32>,
    table: Table,
    refused: Refused,
}

fn render(frame: Frame, rollout: Rollout, beside: Beside, now: Timestamp) -> Page {
    let rights = beside.rights;
    let nodes = rollout.nodes.as_deref().unwrap_or_default();
    let state = rollout.state;
    let is_open = matches!(state, RolloutState::Running | RolloutState::Halted);
    let is_fresh = state == RolloutState::Planned && rollout.expires_at > now;
    let start = (is_fresh && rights.start).then(|| Start {
        planned: rollout.planned,
        effects: parts::count_effects(nodes),
        plan: rollout.plan.clone(),
        other: beside.other,
    });
    let shown = render_adjust(&rollout.policy);
    let is_refused = beside.refused.adjust.is_some();
    Page {
        revisions: name_revisions(&rollout.from, rollout.revision),
        chip: chips::rollout(state),
        is_halted: state == RolloutState::Halted,
        is_planned: state == RolloutState::Planned,
        halt: tell(rollout.halt.as_ref()),
        busy: parts::find_busy(nodes),
        may_halt: state == RolloutState::Running && rights.halt,
        may_resume: state == RolloutState::Halted && rights.start,
        may_promote: is_open && rights.start && is_in_canary(&rollout),
        may_replan: rights.plan && matches!(state, RolloutState::Planned | RolloutState::Expired),
        start,
        adjust: (is_open && rights.start).then(|| AdjustForm {
            shown: shown.clone(),
            typed: beside.refused.adjust.unwrap_or(shown),
            is_refused,
        }),
        expires: format::moment(rollout.expires_at, now),
        bar: bar::draw(&rollout.marks),
        end: rollout
            .estimate
            .as_ref()
            .map(|estimate| parts::render_end(estimate, now)),
        waves: waves::draw(nodes),
        policy: serde_json::to_string_pretty(&rollout.policy).unwrap_or_default(),
        legend: Mark::ALL.iter().map(|mark| chips::mark(*mark)).collect(),
        facts: render_facts(&rollout, now),
        revision: rollout.revision,
        name: rollout.name,
        pool: rollout.pool,
        refused: format::cut(&beside.refused.why, 600),
        table: beside.table,
        back: beside.back,
        frame,
    }
}

fn render_adjust(policy: &RolloutPolicy) -> Adjust {
    let failures = policy.failure_budget.count;
    Adjust {
        changing: policy.budgets.max_changing.to_string(),
        waiting: policy.budgets.max_waiting.to_string(),
        validating: policy.budgets.max_validating.to_string(),
        failures: failures.map(|count| count.to_string()).unwrap_or_default(),
        reason: String::new(),
    }
}

/// Returns whether the canary or its soak holds the waves back: no node of a wave has begun.
fn is_in_canary(rollout: &Rollout) -> bool {
    let nodes = rollout.nodes.as_deref().unwrap_or_default();
    let has_begun = |node: &RolloutNode| node.wave > Some(0) && node.mark != Mark::NotBegun;
    rollout.policy.canary.is_some() && !rollout.promoted && !nodes.iter().any(has_begun)
}

fn render_facts(rollout: &Rollout, now: Timestamp) -> Facts {
    let seen = rollout.now.as_ref();
    let changing =
        |seen: &RolloutNow| format!("{} of at most {}", seen.changing, seen.most_changing);
    Facts {
        planned: rollout.planned,
        changing: seen.map(changing).unwrap_or_default(),
        bound_by: tell(seen.and_then(|seen| seen.bound_by.as_ref())),
        binding: tell(seen.and_then(|seen| seen.binding.as_ref())),
        failure_rule: seen
            .map(|seen| seen.failure_rule.clone())
            .unwrap_or_default(),
        stalled: rollout.stalled_since.map(|at| format::moment(at, now)),
        promoted: rollout.promoted,
        actor: format::cut(&rollout.actor, 80),
        created: format::moment(rollout.created_at, now),
        started: rollout.started_at.map(|at| format::moment(at, now)),
        ended: rollout.ended_at.map(|at| format::moment(at, now)),
        windows: seen
            .iter()
            .flat_map(|seen| &seen.windows)
            .map(|window| render_window(window, now))
            .collect(),
        signals: seen
            .iter()
            .flat_map(|seen| &seen.signals)
            .map(|signal| Signal {
                sentence: format::cut(&signal.sentence, 400),
                is_late: signal.state != MonitorState::Quiet,
            })
            .collect(),
        after: rollout.policy.after.clone().unwrap_or_default(),
        visit_by: rollout.policy.visit_by.map(|by| format::moment(by, now)),
        late: tell_late(rollout),
        losses: seen
            .and_then(|seen| seen.losses.as_ref())
            .map(|losses| losses.sentence.clone())
            .unwrap_or_default(),
        reservations: seen
            .and_then(|seen| seen.reservations_failed.as_ref())
            .map(|failed| Reservations {
                since: format::moment(failed.since, now),
                sentence: failed.sentence.clone(),
            }),
    }
}

/// Tells of nodes after the date of the policy, and of an estimated end after the date.
fn tell_late(rollout: &Rollout) -> String {
    let nodes = rollout.nodes.as_deref().unwrap_or_default();
    let late = nodes.iter().filter(|node| node.overdue).count();
    let end = rollout.estimate.as_ref().and_then(|end| end.late);
    match late {
        0 if end > rollout.policy.visit_by => "the late estimate is after this date".to_owned(),
        0 => String::new(),
        1 => "1 node is late".to_owned(),
        late => format!("{late} nodes are late"),
    }
}

fn render_window(window: &RolloutWindow, now: Timestamp) -> Window {
    Window {
        name: window.name.clone(),
        named_by: format!("{} {}", window.named_by, window.namer),
        open: window.open,
        unreadable: window.unreadable,
        changes: window.changes_at.map(|at| format::moment(at, now)),
        frozen: match window.frozen.as_deref() {
            Some("") => "no reason recorded".to_owned(),
            reason => format::cut(reason.unwrap_or_default(), 200),
        },
    }
}

fn tell(reason: Option<&RolloutReason>) -> String {
    reason
        .map(|reason| format::cut(&reason.sentence, 400))
        .unwrap_or_default()
}
