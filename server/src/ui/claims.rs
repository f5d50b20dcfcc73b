//! The page of pools and of the nodes bound to pools.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_core::claims::ClaimState;
use serde::Deserialize;

use super::approvals::{self, Pending};
use super::chips::{self, Chip};
use super::format::{self, Moment, member};
use super::frame::{Frame, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::filter::{self, Term};
use crate::db::objects::ObjectRow;
use crate::db::pages::work::PoolCount;
use crate::db::replacements::ChangeRow;
use crate::error::Error;
use crate::http::extract::Query;

const ROWS: usize = 100;
const POOLS: i64 = 100;
const WAITING: i64 = 1000;

#[derive(Template, WebTemplate)]
#[template(path = "claims.html")]
pub(super) struct Page {
    frame: Frame,
    pools: Vec<Pool>,
    /// Whether the reader has more pools.
    more_pools: bool,
    claims: Vec<Claim>,
    pending: Vec<Pending>,
    /// Whether more requests wait.
    more_pending: bool,
    pool: String,
    next: String,
}

struct Pool {
    name: String,
    image: String,
    stack: String,
    suite: String,
    cluster: String,
    claims: i64,
    states: Vec<Counted>,
}

struct Counted {
    chip: Chip,
    count: i64,
}

struct Claim {
    name: String,
    node: String,
    node_id: String,
    node_chip: Chip,
    pool: String,
    chip: Chip,
    created: Moment,
    epoch: i64,
    /// The claim is on hold: automation must not change the node's software.
    held: Option<Chip>,
    /// Name of the replacement node on its way. Empty without a replacement.
    coming: String,
    /// Name of the claim replaced by this claim. Empty for other claims.
    replaces: String,
    /// Whether the pool created the claim to fill its replica count.
    replica: bool,
    may_replace: bool,
    /// Last time at which the release can be undone.
    undo: Option<Moment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClaimsQuery {
    pool: String,
    after: String,
}

/// Lists the pools, and a page of claims by name.
pub(super) async fn list_claims(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<ClaimsQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let sight = actor.sight();
    let nodes = filter::list_visible(&mut conn, &filter::NODES, &sight).await?;
    let mut pools = db::objects::list(&mut conn, "pool", &sight, POOLS + 1).await?;
    let more_pools = cut_surplus(&mut pools, POOLS);
    let counts = db::pages::work::count_pools(&mut conn, nodes.as_deref()).await?;
    let only = Some(query.pool.as_str()).filter(|name| !name.is_empty());
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let terms: Vec<Term> = only
        .map(|pool| Term::equal("pool", pool))
        .into_iter()
        .collect();
    let from = filter::Page {
        sort: filter::BY_NAME[0],
        after: Some(query.after.as_str()),
        limit,
    };
    let mut ids = filter::list_ids(&mut conn, &filter::CLAIMS, &terms, &sight, from).await?;
    let more = ids.len() > ROWS;
    ids.truncate(ROWS);
    let claims = db::claims::list_by_id(&mut conn, &ids).await?;
    let changes = db::replacements::list(&mut conn, &ids).await?;
    let may_replace = actor.holding.somewhere("claim.release");
    let waits = filter::approvals_at(visit.now);
    let oldest = filter::Page {
        sort: filter::OLDEST_FIRST,
        after: None,
        limit: WAITING + 1,
    };
    let mut waiting = filter::list_ids(&mut conn, &waits, &[], &sight, oldest).await?;
    let more_pending = cut_surplus(&mut waiting, WAITING);
    let waiting = db::approvals::list_by_id(&mut conn, &waiting).await?;
    let pool_part = only
        .map(|name| format!("pool={}&", format::escape(name)))
        .unwrap_or_default();
    let next = claims
        .last()
        .filter(|_| more)
        .map(|last| format!("/claims?{pool_part}after={}", last.name))
        .unwrap_or_default();
    let path = only.map_or_else(
        || "/v1/claims".to_owned(),
        |name| format!("/v1/claims?pool={}", format::escape(name)),
    );
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Claims, "Claims")
            .by_hand("muster claim list", &path),
        pools: pools.into_iter().map(|row| pool(row, &counts)).collect(),
        more_pools,
        claims: claims
            .into_iter()
            .map(|row| claim(row, &changes, may_replace, visit.now))
            .collect(),
        pending: waiting
            .into_iter()
            .map(|row| approvals::pending(row, &actor, visit.now))
            .collect(),
        more_pending,
        pool: query.pool,
        next,
    })
}

/// Cuts a list read with one row more than the limit. Returns whether more rows exist.
fn cut_surplus<Row>(rows: &mut Vec<Row>, most: i64) -> bool {
    format::cut_rows(rows, usize::try_from(most).unwrap_or(0)) > 0
}

fn pool(row: ObjectRow, counts: &[PoolCount]) -> Pool {
    let mut own: Vec<&PoolCount> = counts.iter().filter(|count| count.pool == row.id).collect();
    // The largest count comes first. Equal counts are ordered by state name, so the order stays
    // stable between refreshes.
    own.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.state.cmp(&b.state)));
    let text = |name| format::cut(member(&row.spec, name), 63);
    Pool {
        image: text("image"),
        stack: text("stack"),
        suite: text("suite"),
        cluster: text("cluster"),
        claims: own.iter().map(|count| count.count).sum(),
        states: own
            .iter()
            .map(|count| Counted {
                chip: chips::state(count.state),
                count: count.count,
            })
            .collect(),
        name: row.name,
    }
}

fn claim(row: ClaimRow, changes: &[ChangeRow], may_replace: bool, now: Timestamp) -> Claim {
    let coming = changes
        .iter()
        .find(|change| change.replaces == row.id && change.state == ClaimState::Bound);
    Claim {
        held: row.hold.then(|| chips::outcome("held")),
        may_replace: may_replace
            && row.state == ClaimState::Bound
            && coming.is_none()
            && row.replaces.is_none(),
        coming: coming.map(|change| change.node.clone()).unwrap_or_default(),
        replaces: row.replaces.unwrap_or_default(),
        replica: row.replica,
        node_id: row.node.to_string(),
        node_chip: chips::state(row.node_state),
        chip: chips::outcome(row.state.as_str()),
        created: format::moment(row.created_at, now),
        epoch: row.epoch,
        undo: row
            .undo_until
            .filter(|_| row.state == ClaimState::Releasing)
            .map(|at| format::moment(at.to_jiff(), now)),
        pool: row.pool,
        node: row.node_name,
        name: row.name,
    }
}
