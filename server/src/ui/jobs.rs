//! Logs of job steps: unfolded inside a timeline, or as a separate page.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use muster_core::ids::JobId;
use serde::Deserialize;

use super::chips::{self, Chip};
use super::format;
use super::frame::{Frame, Live, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::{Path, Query};

/// Most lines of one answer.
const LINES: i64 = 500;
/// Most characters shown of a line.
const LINE: usize = 2000;

#[derive(Template, WebTemplate)]
#[template(path = "log_page.html")]
struct Page {
    frame: Frame,
    node: String,
    step: String,
    chip: Chip,
    operation: Option<String>,
    log: Log,
}

/// The fragment inserted into a page by htmx.
#[derive(Template, WebTemplate)]
#[template(path = "log_part.html")]
struct Part {
    log: Log,
}

struct Log {
    lines: Vec<Line>,
    /// URL of the next part of the log.
    more: String,
    running: bool,
    /// Whether this part is the first one shown, so earlier lines may exist.
    first: bool,
    earlier: String,
}

struct Line {
    time: String,
    attempt: i32,
    text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    /// Id of the last line already shown. Without an id, the newest lines are returned.
    after: Option<i64>,
}

/// Shows the log of a job, as a page or as an htmx fragment.
pub(super) async fn show_log(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(id): Path<JobId>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Error> {
    let mut conn = app.pool.acquire().await?;
    let job = db::pages::work::find_job(&mut conn, id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("job {id}")))?;
    let after = match query.after {
        Some(after) => after,
        None => db::pages::work::find_tail(&mut conn, id, LINES).await?,
    };
    let rows = db::pages::work::list_lines(&mut conn, id, after, LINES).await?;
    let last = rows.last().map_or(after, |row| row.id);
    let full = i64::try_from(rows.len()).is_ok_and(|rows| rows == LINES);
    let log = Log {
        more: format!("/jobs/{id}/log?after={last}"),
        running: job.state.is_open() || (full && query.after.is_some()),
        first: query.after.is_none(),
        earlier: if query.after.is_none() && after > 0 {
            format!("/jobs/{id}/log?after=0")
        } else {
            String::new()
        },
        lines: rows
            .into_iter()
            .map(|row| Line {
                time: row.at.strftime("%T").to_string(),
                attempt: row.attempt,
                text: format::cut(&row.text, LINE),
            })
            .collect(),
    };
    if visit.part {
        return Ok(Part { log }.into_response());
    }
    let path = job
        .operation
        .map(|operation| format!("/v1/operations/{operation}/log"))
        .unwrap_or_default();
    let cli = job
        .operation
        .map(|operation| format!("muster operation log {operation}"))
        .unwrap_or_default();
    let step = job.step.as_str().replace('_', " ");
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Operations, format!("Log: {step}"))
            .by_hand(cli, &path)
            .live(Live::Never),
        node: job.node,
        step,
        chip: chips::outcome(job.state.as_str()),
        operation: job.operation.map(|operation| operation.to_string()),
        log,
    }
    .into_response())
}
