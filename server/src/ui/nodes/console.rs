//! The end of a node's serial console output. New output is appended while the page is open.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use muster_core::consoles::Plain;
use serde::Deserialize;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::consoles::ChunkRow;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::ui::format;
use crate::ui::frame::{Frame, Live, Section, Visit};

/// Most chunks of one answer.
const CHUNKS: i64 = 200;
/// Most characters of one answer. Longer output is cut at the beginning, because the end matters
/// most.
const LONGEST: usize = 64 * 1024;

#[derive(Template, WebTemplate)]
#[template(path = "console_page.html")]
struct Page {
    frame: Frame,
    node: String,
    tail: Tail,
}

/// The fragment inserted into a page by htmx.
#[derive(Template, WebTemplate)]
#[template(path = "console_part.html")]
struct Part {
    tail: Tail,
}

struct Tail {
    text: String,
    /// URL of the next part of the output.
    more: String,
    /// Whether this part is the first one shown.
    first: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::ui) struct ConsoleQuery {
    /// Id of the last chunk already shown. Without an id, the newest chunks are returned.
    after: Option<i64>,
}

/// Shows the end of a console, as a page or as an htmx fragment.
pub(in crate::ui) async fn show_console(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Query(query): Query<ConsoleQuery>,
) -> Result<Response, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
    let chunks = db::consoles::tail(&mut conn, id, query.after, CHUNKS).await?;
    let last = chunks
        .last()
        .map_or(query.after.unwrap_or(0), |chunk| chunk.id);
    let tail = Tail {
        text: text(&chunks),
        more: format!("/nodes/{id}/console?after={last}"),
        first: query.after.is_none(),
    };
    if visit.part {
        return Ok(Part { tail }.into_response());
    }
    let frame = Frame::new(&visit, &actor, Section::Nodes, format!("Console of {key}"));
    let frame = frame.by_hand(
        format!("muster node console {}", format::shell(&key)),
        &format!("/v1/nodes/{key}/console"),
    );
    Ok(Page {
        frame: frame.live(Live::Never),
        node: key,
        tail,
    }
    .into_response())
}

/// Returns plain text. Escape sequences for cursor, colour and bell are removed.
fn text(chunks: &[ChunkRow]) -> String {
    let all: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
    let plain = Plain::default().feed(&all);
    let from = plain.chars().count().saturating_sub(LONGEST);
    plain.chars().skip(from).collect()
}
