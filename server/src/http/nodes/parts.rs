//! Components by serial, and their replacement: the id of the node stays, what passed and what was pinned does not.

use axum::extract::State;
use muster_api::nodes::{Component, ReplaceParts, ReplacedPart};
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::Wish;
use muster_core::parts::PartKind;
use serde::Deserialize;
use serde_json::json;
use sqlx::PgConnection;
use utoipa::IntoParams;
use uuid::Uuid;

use super::wishes::{self, ActionRequest};
use super::write;
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Sight;
use crate::db;
use crate::db::components::{ComponentRow, Exchange};
use crate::db::filter::{COMPONENTS, Term};
use crate::db::nodes::LockedNode;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::{Json, Path, Query};
use crate::http::idempotency::IdempotencyKey;
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::http::writing::{self, Effect};

/// More parts than anybody replaces at once.
const MOST: usize = 64;

/// Says which parts were replaced, old serials against new. The node is inspected, and quarantined when it is not so; earlier gate runs are void.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/replace-parts", tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = ReplaceParts), responses(
    (status = 202, description = "Asked; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow it, it is protected, or busy", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The node never had such a part", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn replace_parts(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<ReplaceParts>,
) -> Result<Answer, Error> {
    replace(&app, &actor, &key, idempotency, &body).await
}

/// Records replaced parts, as the API and the pages do.
///
/// # Errors
/// As [`replace_parts`] answers.
pub async fn replace(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    body: &ReplaceParts,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        record_parts(conn, app, actor, &node, body)
            .await
            .map(Effect::Begun)
    })
    .await
}

/// Requests the inspection of the node, and marks each old part as replaced.
async fn record_parts(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    body: &ReplaceParts,
) -> Result<OperationId, Error> {
    if !(1..=MOST).contains(&body.parts.len()) {
        return Err(Error::unprocessable(
            "/parts",
            "out_of_range",
            format!("1 to {MOST} parts"),
        ));
    }
    let now = app.clock.now();
    let request = ActionRequest {
        wish: Wish::ReplaceParts,
        reason: Some(&body.reason),
        until: None,
        suite: None,
    };
    wishes::check(request, now)?;
    let operation = wishes::write_wish(conn, app, actor, node, request).await?;
    for (at, part) in body.parts.iter().enumerate() {
        check(at, part)?;
        let (kind, old, new) = (part.kind, part.old.trim(), part.new.trim());
        let exchange = Exchange { kind, old, new };
        if !db::components::replace(conn, node.id, exchange, &body.reason, now).await? {
            let detail = format!(
                "{} never had a {kind} with serial {old:?}; see its components.",
                node.name
            );
            return Err(Error::unprocessable(
                format!("/parts/{at}/old"),
                "not_found",
                detail,
            ));
        }
        if matches!(kind, PartKind::Chassis | PartKind::Board) {
            db::components::repin(conn, node.id, old, new).await?;
        }
        let summary = format!(
            "{}: {kind} {old} was replaced by {new}: {}",
            node.name, body.reason
        );
        let event = actor
            .event(now, "node.part_replaced", Some(node.id), summary)
            .under(Some(operation));
        db::events::insert(
            conn,
            event.with(json!({ "kind": kind, "old": old, "new": new })),
        )
        .await?;
    }
    db::gates::void(conn, node.id, now).await?;
    let summary = format!(
        "{}: every disk it had is out of it; none is left to wipe",
        node.name
    );
    if disks_gone(conn, node).await? {
        let event = actor.event(now, "node.disks_out", Some(node.id), summary);
        db::events::insert(conn, event.under(Some(operation))).await?;
    }
    Ok(operation)
}

fn check(at: usize, part: &ReplacedPart) -> Result<(), Error> {
    let fits = |text: &str| (1..=128).contains(&text.trim().len());
    let fault = |member: &str, code, detail| {
        Error::unprocessable(format!("/parts/{at}/{member}"), code, detail)
    };
    match (fits(&part.old), fits(&part.new)) {
        (false, _) => Err(fault("old", "out_of_range", "1 to 128 bytes")),
        (_, false) => Err(fault("new", "out_of_range", "1 to 128 bytes")),
        _ if part.old.trim() == part.new.trim() => {
            Err(fault("new", "same", "It is the part that is out."))
        }
        _ => Ok(()),
    }
}

/// Whether no disk of before is left in a node that nobody holds: then nothing of anybody's is left to wipe either. Disks that no serial tells
/// apart cannot be said to be out.
async fn disks_gone(conn: &mut PgConnection, node: &LockedNode) -> Result<bool, Error> {
    let facts = db::facts::latest_live(conn, node.id).await?;
    let all_named = facts.is_some_and(|facts| facts.disks.iter().all(|disk| disk.serial.is_some()));
    Ok(!node.claimed && all_named && db::components::clear_unsanitised(conn, node.id).await?)
}

/// The parts of a node: those that are in it, and those that were; the one it got last first, unless `created_at` is asked for. They are filtered as
/// those of all nodes are.
#[utoipa::path(get, path = "/v1/nodes/{node}/components", tag = "nodes", params(("node", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Component>),
))]
pub(super) async fn list_node_components(
    State(app): State<App>,
    _: Actor,
    Path(key): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
    let only = vec![Term::equal("node", id.to_string())];
    paging::page(
        &mut conn,
        &COMPONENTS,
        &query,
        only,
        &Sight::new(),
        load,
        |part: &Component| (part.id, ""),
    )
    .await
}

/// Which parts to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ComponentsQuery {
    /// 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// Of the page before.
    page_token: Option<String>,
    /// By `serial`, `kind`, `model`, `node` and `replaced`: `kind=gpu AND replaced=false AND node~"r1*"`.
    filter: Option<String>,
    /// `-created_at` or `created_at`: by when they were first seen where they are or were.
    sort: Option<String>,
    /// Parts of each item, as `serial,node`; `id` is always there. All of it when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: how many fit in all. `none` when absent.
    count: Option<String>,
    /// Everywhere this one was seen: short for `filter=serial=TEXT`.
    serial: Option<String>,
}

/// Parts by serial, where they are and where they were; what was seen last somewhere first, unless `created_at` is asked for.
#[utoipa::path(get, path = "/v1/components", tag = "nodes", params(ComponentsQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Component>),
))]
pub(super) async fn list_components(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ComponentsQuery>,
) -> Result<Answer, Error> {
    let ComponentsQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
        serial,
    } = query;
    let only = serial
        .map(|serial| Term::equal("serial", serial.trim()))
        .into_iter()
        .collect();
    let query = ListQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
    };
    let mut conn = app.pool.acquire().await?;
    paging::page(
        &mut conn,
        &COMPONENTS,
        &query,
        only,
        &actor.sight(),
        load,
        |part: &Component| (part.id, ""),
    )
    .await
}

async fn load(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Component>, Error> {
    Ok(db::components::list_by_id(conn, ids)
        .await?
        .into_iter()
        .map(component)
        .collect())
}

pub(super) fn component(row: ComponentRow) -> Component {
    Component {
        id: row.id,
        node: row.node_name,
        kind: row.kind,
        serial: row.serial,
        slot: row.slot,
        model: row.model,
        first_seen: row.first_seen,
        last_seen: row.last_seen,
        replaced_at: row.replaced_at.map(|at| at.to_jiff()),
        replaced_by: row.replaced_by,
        replaced_reason: row.replaced_reason,
    }
}
