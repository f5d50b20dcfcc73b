//! What a node wrote on its serial console: the end of it, followed while somebody looks.

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

/// Pieces of one answer.
const CHUNKS: i64 = 200;
/// Characters of one answer; the end is what matters.
const LONGEST: usize = 64 * 1024;

#[derive(Template, WebTemplate)]
#[template(path = "console_page.html")]
struct Page {
    frame: Frame,
    node: String,
    tail: Tail,
}

/// The part that htmx puts into a page.
#[derive(Template, WebTemplate)]
#[template(path = "console_part.html")]
struct Part {
    tail: Tail,
}

struct Tail {
    text: String,
    /// Where the part that follows is.
    more: String,
    /// Whether nothing is shown before this.
    first: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::ui) struct ConsoleQuery {
    /// The id of the last piece that is there already; the newest pieces without it.
    after: Option<i64>,
}

/// The end of a console.
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

/// Plain text: what would move a cursor, colour or ring is left out.
fn text(chunks: &[ChunkRow]) -> String {
    let all: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
    let plain = Plain::default().feed(&all);
    let from = plain.chars().count().saturating_sub(LONGEST);
    plain.chars().skip(from).collect()
}
