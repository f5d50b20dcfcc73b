//! The serial console of a node.

use axum::extract::State;
use muster_api::nodes::{ConsoleChunk, ConsoleLog};
use muster_api::problem::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::intents::answer::Answer;

/// The largest number of chunks in one answer. Chunks are small: the server keeps about 512 KiB for
/// each node.
const MOST: u32 = 1000;

/// The part of the console to read.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ConsoleQuery {
    /// The id of the last chunk seen. When absent, the latest chunks are returned.
    after: Option<i64>,
    /// The largest number of chunks, at most 1000.
    limit: Option<u32>,
}

/// Returns the stored output of a node's serial console, oldest first.
#[utoipa::path(get, path = "/v1/nodes/{node}/console",
    extensions(("x-muster-access" = json!({ "verb": "node.console", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id"), ConsoleQuery), responses(
    (status = 200, description = "The chunks, as written by the node", body = ConsoleLog),
    (status = 404, description = "No such node", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_node_console(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
    Query(query): Query<ConsoleQuery>,
) -> Result<Answer, Error> {
    let limit = query.limit.unwrap_or(MOST);
    if !(1..=MOST).contains(&limit) {
        return Err(Error::invalid(
            "limit",
            "out_of_range",
            format!("1 to {MOST}"),
        ));
    }
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &node)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {node:?}")))?;
    let rows = db::consoles::tail(&mut conn, id, query.after, i64::from(limit)).await?;
    let last_id = rows.last().map_or(query.after.unwrap_or(0), |row| row.id);
    let items = rows
        .into_iter()
        .map(|row| ConsoleChunk {
            id: row.id,
            at: row.at,
            text: row.text,
        })
        .collect();
    Answer::ok(&ConsoleLog { items, last_id })
}
