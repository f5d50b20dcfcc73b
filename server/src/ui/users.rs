//! People with at least one sign-in, and the form by which an administrator disables or enables a
//! person.

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::chips::{self, Chip};
use super::format::{self, Moment};
use super::frame::{Frame, Live, Section, Visit};
use crate::access::Sight;
use crate::app::App;
use crate::auth::{Actor, vouching};
use crate::db;
use crate::db::filter::{self, USERS};
use crate::db::users::PersonRow;
use crate::error::Error;
use crate::http::extract::{Form, Path, Query};
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::users::{disable, enable};

/// Most people of one page.
const ROWS: usize = 100;

#[derive(Template, WebTemplate)]
#[template(path = "users.html")]
pub(super) struct Page {
    frame: Frame,
    people: Vec<Person>,
    may_decide: bool,
    next: String,
}

struct Person {
    id: String,
    name: String,
    chip: Chip,
    role: String,
    issuer: String,
    groups: String,
    seen: Option<Moment>,
    since: Moment,
    /// When the identity provider vouches no longer for the person, without another sign-in.
    vouched_until: Option<Moment>,
    /// A warning about the end: a day before, and afterwards.
    vouched_note: &'static str,
    /// Since when the person is disabled, and by whom.
    out: Option<Moment>,
    by: String,
    oneself: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UsersQuery {
    after: String,
}

/// Lists people by name.
pub(super) async fn list_users(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<UsersQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let from = filter::Page {
        sort: filter::BY_NAME[0],
        after: Some(query.after.as_str()),
        limit,
    };
    let mut ids = filter::list_ids(&mut conn, &USERS, &[], &Sight::new(), from).await?;
    let more = ids.len() > ROWS;
    ids.truncate(ROWS);
    let mut rows = db::users::list_by_id(&mut conn, &ids).await?;
    rows.sort_by_key(|row| ids.iter().position(|id| *id == row.id.0));
    let ends = list_ends(&mut conn, &app, &ids).await?;
    let last = rows.last().filter(|_| more);
    let next = last
        .map(|row| format!("/users?after={}", format::escape(&row.name)))
        .unwrap_or_default();
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Agents, "People")
            .by_hand("muster user list", "/v1/users")
            .live(Live::Never),
        people: rows
            .into_iter()
            .map(|row| {
                let end = ends.get(&row.id.0).copied();
                person(row, &actor, visit.now).vouched(end, vouching::warned(&app), visit.now)
            })
            .collect(),
        may_decide: actor.holding.everywhere("user.disable"),
        next,
    })
}

/// Returns the times at which the identity provider vouches no longer, by the ids of people.
async fn list_ends(
    conn: &mut PgConnection,
    app: &App,
    ids: &[Uuid],
) -> Result<BTreeMap<Uuid, Timestamp>, Error> {
    let lasts = vouching::lasts(app);
    let rows = db::vouching::list(conn, ids).await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id.0, row.vouched_at + lasts))
        .collect())
}

impl Person {
    fn vouched(self, end: Option<Timestamp>, warned: SignedDuration, now: Timestamp) -> Self {
        let note = match end.map(|end| end.duration_since(now)) {
            Some(left) if left <= SignedDuration::ZERO => "must sign in again",
            Some(left) if left <= warned => "sign in soon",
            Some(_) | None => "",
        };
        Self {
            vouched_until: end.map(|end| format::moment(end, now)),
            vouched_note: note,
            ..self
        }
    }
}

fn person(row: PersonRow, actor: &Actor, now: Timestamp) -> Person {
    let at = |at: jiff_sqlx::Timestamp| format::moment(at.to_jiff(), now);
    Person {
        id: row.id.to_string(),
        chip: chips::outcome(if row.disabled_at.is_some() {
            "kept_out"
        } else {
            "active"
        }),
        role: row.role.to_string(),
        issuer: format::cut(
            row.issuer.as_deref().unwrap_or("a local administrator"),
            100,
        ),
        groups: format::cut(&row.groups.join(", "), 100),
        seen: row.last_seen.map(at),
        since: format::moment(row.created_at, now),
        vouched_until: None,
        vouched_note: "",
        out: row.disabled_at.map(at),
        by: format::cut(row.disabled_by.as_deref().unwrap_or_default(), 60),
        oneself: actor.person == format!("user:{}", row.name),
        name: format::cut(&row.name, 100),
    }
}

#[derive(Template, WebTemplate)]
#[template(path = "user.html")]
struct Asking {
    frame: Frame,
    id: String,
    name: String,
    /// `disable` or `enable`.
    word: &'static str,
    /// Why the request was rejected. Empty before the first submission.
    refused: String,
}

/// The typed values of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answers {
    /// The person's name, typed as confirmation. Absent when the form is only opened.
    typed: Option<String>,
}

/// Asks for the person's name first. A confirmed request then acts as `POST
/// /v1/users/{user}/actions/…` does.
pub(super) async fn decide_user(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path((id, word)): Path<(Uuid, String)>,
    Form(given): Form<Answers>,
) -> Result<Response, Error> {
    let word = match word.as_str() {
        "disable" => "disable",
        "enable" => "enable",
        _ => return Err(Error::NotFound(format!("The decision {word:?}"))),
    };
    let person = db::users::list_by_id(&mut *app.pool.acquire().await?, &[id])
        .await?
        .pop();
    let person = person.ok_or_else(|| Error::NotFound(format!("user {id}")))?;
    let (status, refused) = match given.typed.as_deref().map(str::trim) {
        Some(typed) if typed == person.name => {
            let (key, once) = (id.to_string(), IdempotencyKey::none());
            let done = match word {
                "disable" => disable(&app, &actor, &key, once).await,
                _ => enable(&app, &actor, &key, once).await,
            };
            match done {
                Ok(_) => return Ok(Redirect::to("/users").into_response()),
                Err(Error::Conflict { detail, .. }) => (StatusCode::CONFLICT, detail),
                Err(other) => return Err(other),
            }
        }
        Some(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("Type {} to confirm.", person.name),
        ),
        None => (StatusCode::OK, String::new()),
    };
    let asking = Asking {
        frame: Frame::new(&visit, &actor, Section::Agents, person.name.clone())
            .by_hand(
                format!("muster user {word} {}", format::shell(&person.name)),
                &format!("/v1/users/{id}"),
            )
            .live(Live::Never),
        id: id.to_string(),
        name: person.name,
        word,
        refused,
    };
    Ok((status, asking).into_response())
}
