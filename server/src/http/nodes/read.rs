//! Reading nodes.

use axum::extract::State;
use muster_api::nodes::Why;
use muster_api::object::Page;
use muster_api::problem::Problem;

use super::view;
use crate::app::App;
use crate::auth::Actor;
use crate::db::filter::{self, Order};
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::{Path, Query};
use crate::http::paging::{ListQuery, Position};

/// A page of the nodes that the caller may read, by name.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", params(ListQuery), responses(
    (status = 200, description = "The page", body = ref("#/components/schemas/NodePage")),
    (status = 422, description = "The filter names a field or value that does not exist", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_nodes(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let (order, count) = (query.order()?, query.count()?);
    let text = query.filter.as_deref().unwrap_or_default();
    let terms = filter::parse(text)?;
    let bound = format!("{order:?} {text}");
    let position = Position::of("nodes", query.limit, query.page_token.as_deref(), &bound)?;
    let sight = actor.holding.sight("fleet.read");
    let mut conn = app.pool.acquire().await?;
    let after = Some(position.after.as_str()).filter(|after| !after.is_empty());
    let mut ids = filter::list_node_ids(&mut conn, &terms, &sight, (order, after), position.rows()).await?;
    let more = ids.len() > position.limit;
    ids.truncate(position.limit);
    let mut items = view::load(&mut conn, &ids, app.clock.now()).await?;
    if order == Order::Down {
        items.reverse();
    }
    let next_page_token = match more {
        // The position is a name, and the row that only showed there is more was not loaded.
        true => items.last().map(|node| position.token(node.name.as_str())),
        false => None,
    };
    items.truncate(position.limit);
    let mut answer = Answer::ok(&Page { items, next_page_token })?;
    if let Some(count) = filter::count_nodes(&mut conn, &terms, &sight, count).await? {
        answer.body["count"] = count.into();
    }
    query.cut(&mut answer.body)?;
    Ok(answer)
}

/// One node, by name or id.
#[utoipa::path(get, path = "/v1/nodes/{node}", tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The node; its generation is the ETag", body = ref("#/components/schemas/Node")),
    (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_node(State(app): State<App>, _: Actor, Path(node): Path<String>) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let object = view::load_one(&mut conn, &node, app.clock.now()).await?;
    Ok(Answer::ok(&object)?.etag(object.generation))
}

/// Why a node is not moving.
#[utoipa::path(get, path = "/v1/nodes/{node}/why", tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "In one sentence, and as data", body = Why),
))]
pub(super) async fn get_node_why(State(app): State<App>, _: Actor, Path(node): Path<String>) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let object = view::load_one(&mut conn, &node, app.clock.now()).await?;
    Answer::ok(&object.status.why)
}
