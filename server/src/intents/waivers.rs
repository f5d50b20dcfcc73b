//! Waivers of gates. One person requests a waiver, another approves, and the waiver ends at its
//! time. The measured result of a gate never changes.

use crate::db::waivers::{Consent, NewWaiver, WaiverRow};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use muster_api::tokens::FIRST;
use muster_api::waivers::{CreateWaiver, Waiver, WaiverState};
use muster_core::ids::NodeId;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;
use crate::intents::writing::{self, Effect};

/// The longest waiver: 90 days. A deviation that is normal for longer belongs in the hardware
/// profile.
const LONGEST: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The longest reason, in characters: the timeline shows a reason on one line.
const LONGEST_REASON: usize = 300;

/// Checks the request. Returns the kind and the name of the node, rack or pool to be covered.
///
/// # Errors
/// 422 for more or fewer than one place, and for an invalid gate, reason or time.
fn check_request(request: &CreateWaiver, now: Timestamp) -> Result<(&'static str, &str), Error> {
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

/// Rejects a gate the pool never runs, because a waiver with a misspelt gate has no effect. For a
/// rack, and for a node without a claim, the suites are unknown, so any gate is accepted.
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

/// The kind and the name of the place covered by the waiver.
pub(crate) fn covered_place(row: &WaiverRow) -> (&'static str, &str) {
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

/// Describes a waiver: `the waiver of gate disk.smart on node n1 until 2026-12-01 12:00 UTC`
pub(crate) fn describe(row: &WaiverRow) -> String {
    let (kind, name) = covered_place(row);
    format!(
        "the waiver of gate {} on {kind} {name} until {}",
        row.gate,
        row.until.strftime("%F %H:%M UTC")
    )
}

pub(crate) fn waiver_event(
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

/// Renders a waiver for the API and the pages.
pub fn object(row: WaiverRow, now: Timestamp) -> Waiver {
    let state = match row.state {
        Consent::Asked | Consent::Agreed if row.until <= now => WaiverState::Over,
        Consent::Asked => WaiverState::Asked,
        Consent::Agreed => WaiverState::Active,
        Consent::Denied => WaiverState::Denied,
        Consent::Ended => WaiverState::Ended,
    };
    Waiver {
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
    }
}

/// Requests a waiver. A second person must approve the request.
///
/// # Errors
/// 403, 404, 422.
pub async fn request(
    app: &App,
    actor: &Actor,
    idempotency: IdempotencyKey,
    request: &CreateWaiver,
) -> Result<Answer, Error> {
    let now = app.clock.now();
    let (kind, name) = check_request(request, now)?;
    writing::once(app, actor, idempotency, request, async |conn| {
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
        let row = row
            .ok_or_else(|| Error::internal(anyhow::anyhow!("a newly written waiver is missing")))?;
        let summary = format!("{} requests {}: {}", actor.name, describe(&row), row.reason);
        db::events::insert(
            conn,
            waiver_event(app, actor, "waiver.requested", &row, summary),
        )
        .await?;
        Ok(Effect::Done(
            Answer::ok(&object(row, now))?.status(StatusCode::CREATED),
        ))
    })
    .await
}

/// Ends a waiver before its time.
///
/// # Errors
/// 403, 404, 428.
pub async fn end(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("waiver {key:?}"));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let now = app.clock.now();
    writing::write(app, actor, async |conn| {
        let row = db::waivers::lock(conn, id).await?.ok_or_else(missing)?;
        let (kind, name) = covered_place(&row);
        actor
            .need(conn, "waiver.create", Named { kind, key: name })
            .await?;
        preconditions.allow_removal(FIRST)?;
        if db::waivers::end(conn, id, &actor.name, now).await? {
            let summary = format!("{} ended {}", actor.name, describe(&row));
            db::events::insert(
                conn,
                waiver_event(app, actor, "waiver.ended", &row, summary),
            )
            .await?;
        }
        let row = db::waivers::lock(conn, id).await?.ok_or_else(missing)?;
        Answer::ok(&object(row, now))
    })
    .await
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
