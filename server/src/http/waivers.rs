//! Waivers: asked for by one person, agreed to by another as an approval, over at their time. What a gate measured is never changed.

use axum::extract::State;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use muster_api::problem::Problem;
use muster_api::tokens::FIRST;
use muster_api::waivers::{CreateWaiver, Waiver, WaiverState};
use muster_core::ids::NodeId;
use serde::Deserialize;
use serde_json::json;
use sqlx::PgConnection;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::extract::{Json, Path, Query};
use super::idempotency::IdempotencyKey;
use super::paging::{self, CountedPage, ListQuery};
use super::preconditions::Preconditions;
use super::writing::{self, Effect};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::{Named, Sight};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::filter::{self, Term};
use crate::db::waivers::{NewWaiver, WaiverRow};
use crate::error::Error;

/// Nothing is waived for longer: what is normal by then belongs into the profile.
const LONGEST: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Characters of a reason: it is read on one line of a timeline.
const LONGEST_REASON: usize = 300;

/// The routes of waivers.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_waivers, create_waiver))
        .routes(routes!(get_waiver, end_waiver))
}

/// Which waivers to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaiversQuery {
    /// 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// Of the page before.
    page_token: Option<String>,
    /// By `gate`, `state`, `node`, `rack`, `pool`, `covers` and `requested_by`: `state=active AND gate~"disk.*"`. `covers` is a node that they are for
    /// by themselves, by its rack, or by the pool that has claimed it.
    filter: Option<String>,
    /// `-created_at` or `created_at`: the newest or the oldest first.
    sort: Option<String>,
    /// Parts of each item, as `gate,until`; `id` is always there. All of it when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: how many fit in all. `none` when absent.
    count: Option<String>,
    /// Name or id of a node, which must be there: short for `filter=covers=NAME`.
    node: Option<String>,
}

/// Waivers, newest first unless another sort is asked for, those that are over with them.
#[utoipa::path(get, path = "/v1/waivers", tag = "waivers", params(WaiversQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Waiver>),
    (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
))]
async fn list_waivers(
    State(app): State<App>,
    _: Actor,
    Query(query): Query<WaiversQuery>,
) -> Result<Answer, Error> {
    let WaiversQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
        node,
    } = query;
    let mut conn = app.pool.acquire().await?;
    let mut only = Vec::new();
    if let Some(key) = node {
        let found = db::nodes::find_id(&mut conn, &key).await?;
        let found = found.ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
        only.push(Term::equal("covers", found.to_string()));
    }
    let now = app.clock.now();
    let query = ListQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
    };
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::waivers::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(|row| object(row, now))
            .collect()
    };
    paging::page(
        &mut conn,
        &filter::waivers(now),
        &query,
        only,
        &Sight::new(),
        load,
        |waiver: &Waiver| (waiver.id, ""),
    )
    .await
}

/// Asks to let a gate count as passed on a node, a rack or a pool. It counts for nothing until a second person agrees to it.
#[utoipa::path(post, path = "/v1/waivers", tag = "waivers", params(("Idempotency-Key" = Option<String>, Header)), request_body = CreateWaiver, responses(
    (status = 201, description = "Asked for; its approval is in it", body = Waiver),
    (status = 404, description = "There is no such node, rack or pool", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "No reason, no end, not one place, or a gate that no suite of the pool has", body = Problem, content_type = "application/problem+json"),
))]
async fn create_waiver(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(request): Json<CreateWaiver>,
) -> Result<Answer, Error> {
    let now = app.clock.now();
    let (kind, name) = place(&request, now)?;
    writing::once(&app, &actor, idempotency, &request, async |conn| {
        actor
            .need(conn, "waiver.create", Named { kind, key: name })
            .await?;
        let at = find(conn, kind, name).await?;
        check_gate(conn, kind, at, &request.gate).await?;
        let waiver = NewWaiver {
            id: Uuid::now_v7(),
            node: (kind == "node").then_some(at),
            rack: (kind == "rack").then_some(at),
            pool: (kind == "pool").then_some(at),
            gate: &request.gate,
            reason: &request.reason,
            requested_by: &actor.name,
            person: &actor.person,
            now,
            until: request.until,
        };
        db::waivers::insert(conn, &waiver).await?;
        let because = format!(
            "gate {} would count as passed on {kind} {name} until {}: {}",
            waiver.gate,
            waiver.until.strftime("%F %H:%M UTC"),
            waiver.reason
        );
        db::approvals::ask_for_waiver(conn, &waiver, &because).await?;
        let row = db::waivers::lock(conn, waiver.id).await?;
        let row = row.ok_or_else(|| {
            Error::internal(anyhow::anyhow!("a waiver that was just written is gone"))
        })?;
        let summary = format!("{} asks for {}: {}", actor.name, describe(&row), row.reason);
        db::events::insert(conn, event(&app, &actor, "waiver.asked", &row, summary)).await?;
        Ok(Effect::Done(
            Answer::ok(&object(row, now)?)?.status(StatusCode::CREATED),
        ))
    })
    .await
}

/// A waiver, also once it is over. Its ETag is always `"1"`.
#[utoipa::path(get, path = "/v1/waivers/{waiver}", tag = "waivers", params(("waiver", description = "Id")), responses(
    (status = 200, description = "It", body = Waiver),
    (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
))]
async fn get_waiver(
    State(app): State<App>,
    _: Actor,
    Path(key): Path<String>,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("waiver {key:?}"));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let row = db::waivers::list_by_id(&mut *app.pool.acquire().await?, &[id])
        .await?
        .pop()
        .ok_or_else(missing)?;
    Ok(Answer::ok(&object(row, app.clock.now())?)?.etag(FIRST))
}

/// Ends a waiver before its time. Nodes that are in service stay there. Its ETag is always `"1"`; `If-Match: *` will do.
#[utoipa::path(delete, path = "/v1/waivers/{waiver}", tag = "waivers", params(("waiver", description = "Id"), ("If-Match" = String, Header)), responses(
    (status = 200, description = "It counts no more", body = Waiver),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
))]
async fn end_waiver(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("waiver {key:?}"));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let now = app.clock.now();
    writing::write(&app, &actor, async |conn| {
        let row = db::waivers::lock(conn, id).await?.ok_or_else(missing)?;
        let (kind, name) = covered_place(&row);
        actor
            .need(conn, "waiver.create", Named { kind, key: name })
            .await?;
        preconditions.allow_removal(FIRST)?;
        if db::waivers::end(conn, id, &actor.name, now).await? {
            let summary = format!("{} ended {}", actor.name, describe(&row));
            db::events::insert(conn, event(&app, &actor, "waiver.ended", &row, summary)).await?;
        }
        let row = db::waivers::lock(conn, id).await?.ok_or_else(missing)?;
        Answer::ok(&object(row, now)?)
    })
    .await
}

/// The kind and the name of what it is for.
fn place(request: &CreateWaiver, now: Timestamp) -> Result<(&'static str, &str), Error> {
    let given = [
        ("node", &request.node),
        ("rack", &request.rack),
        ("pool", &request.pool),
    ];
    let mut given = given
        .into_iter()
        .filter_map(|(kind, name)| Some((kind, name.as_deref()?)));
    let (Some(place), None) = (given.next(), given.next()) else {
        return Err(Error::unprocessable(
            "/node",
            "one_place",
            "One of node, rack and pool.",
        ));
    };
    let plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    if !(1..=100).contains(&request.gate.len()) || !request.gate.chars().all(plain) {
        return Err(Error::unprocessable(
            "/gate",
            "invalid_name",
            "A gate's id: a-z, 0-9, '-', '.', '_'.",
        ));
    }
    let length = request.reason.trim().chars().count();
    if !(1..=LONGEST_REASON).contains(&length) || request.reason.chars().any(char::is_control) {
        let detail = format!("1 to {LONGEST_REASON} characters on one line.");
        return Err(Error::unprocessable("/reason", "out_of_range", detail));
    }
    if request.until <= now || request.until > now + LONGEST {
        return Err(Error::unprocessable(
            "/until",
            "out_of_range",
            "From now to 90 days.",
        ));
    }
    Ok(place)
}

async fn find(conn: &mut PgConnection, kind: &str, name: &str) -> Result<Uuid, Error> {
    let found = match kind {
        "node" => db::nodes::find_id(conn, name).await?.map(|id| id.0),
        _ => db::objects::find(conn, kind, name)
            .await?
            .map(|row| row.id.0),
    };
    found.ok_or_else(|| Error::NotFound(format!("{kind} {name:?}")))
}

/// Refuses a gate that the pool never runs, because a waiver with a misspelt gate has no effect. For a rack, and for a node that no pool holds, the suites
/// are unknown, so any gate is accepted.
async fn check_gate(
    conn: &mut PgConnection,
    kind: &str,
    at: Uuid,
    gate: &str,
) -> Result<(), Error> {
    let pool = match kind {
        "pool" => Some(at),
        "node" => db::claims::find_bound(conn, NodeId(at))
            .await?
            .map(|claim| claim.pool_id.0),
        _ => None,
    };
    let Some(pool) = pool else { return Ok(()) };
    let mut known = db::waivers::list_pool_gates(conn, pool).await?;
    if known.iter().any(|id| id == gate) {
        return Ok(());
    }
    known.sort_by_key(|id| edit_distance(id, gate));
    known.truncate(3);
    let detail = format!(
        "No suite of its pool has a gate {gate:?}. The nearest are: {}.",
        known.join(", ")
    );
    Err(Error::unprocessable("/gate", "not_found", detail))
}

/// The number of letters to add, remove or change between two words (Levenshtein).
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], at + 1);
        for (place, wanted) in other.iter().enumerate() {
            let changed = corner + usize::from(letter != *wanted);
            corner = row[place + 1];
            row[place + 1] = changed.min(corner + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

/// The kind and the name of the place that the waiver covers.
fn covered_place(row: &WaiverRow) -> (&'static str, &str) {
    let named = [
        ("node", &row.node_name),
        ("rack", &row.rack_name),
        ("pool", &row.pool_name),
    ];
    named
        .into_iter()
        .find_map(|(kind, name)| Some((kind, name.as_deref()?)))
        .unwrap_or(("node", ""))
}

/// `the waiver of gate disk.smart on node n1 until 2026-12-01 12:00 UTC`
pub(super) fn describe(row: &WaiverRow) -> String {
    let (kind, name) = covered_place(row);
    format!(
        "the waiver of gate {} on {kind} {name} until {}",
        row.gate,
        row.until.strftime("%F %H:%M UTC")
    )
}

pub(super) fn event(
    app: &App,
    actor: &Actor,
    kind: &'static str,
    row: &WaiverRow,
    summary: String,
) -> NewEvent {
    let detail = json!({ "waiver": row.id, "gate": row.gate, "rack": row.rack_name, "pool": row.pool_name, "until": row.until });
    actor
        .event(app.clock.now(), kind, row.node, summary)
        .with(detail)
}

/// As the API and the pages show it.
///
/// # Errors
/// When the row holds a state that there is not.
pub fn object(row: WaiverRow, now: Timestamp) -> Result<Waiver, Error> {
    let state = match row.state.as_str() {
        "asked" | "agreed" if row.until <= now => WaiverState::Over,
        "asked" => WaiverState::Asked,
        "agreed" => WaiverState::Active,
        "denied" => WaiverState::Denied,
        "ended" => WaiverState::Ended,
        other => {
            return Err(Error::internal(anyhow::anyhow!(
                "waiver {}: state {other:?}",
                row.id
            )));
        }
    };
    Ok(Waiver {
        id: row.id,
        node: row.node_name,
        rack: row.rack_name,
        pool: row.pool_name,
        gate: row.gate,
        reason: row.reason,
        requested_by: row.requested_by,
        requested_at: row.requested_at,
        until: row.until,
        state,
        approval: row.approval,
        decided_by: row.decided_by,
        ended_by: row.ended_by,
        generation: FIRST,
    })
}

#[cfg(test)]
mod tests {
    use super::edit_distance;

    #[test]
    fn the_nearest_word_is_the_one_with_the_fewest_changes() {
        for (one, other, changes) in [
            ("disk.smart", "disk.smart", 0),
            ("disk.smrt", "disk.smart", 1),
            ("", "abc", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edit_distance(one, other), changes, "{one} {other}");
            assert_eq!(edit_distance(other, one), changes, "{other} {one}");
        }
    }
}
