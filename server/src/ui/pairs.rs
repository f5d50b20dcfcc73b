//! The form for pair measurements of a pool: first a preview of the nodes, then the run. An error
//! is shown above the form, and the typed values are kept.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use muster_api::pairs::{MOST, PairEnd, PairRun, RunPairs};
use serde::Deserialize;
use sqlx::PgConnection;

use super::format;
use super::frame::{Frame, Live, Section, Visit};
use super::replace::refusal;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::pairs::{begin_run, preview_run};

/// Most suites offered in the form.
const SUITES: i64 = 100;
/// Most names shown of each list.
const SHOWN: usize = MOST as usize;

#[derive(Template, WebTemplate)]
#[template(path = "pairs.html")]
struct Page {
    frame: Frame,
    pool: String,
    /// Suites with at least one gate measured between two nodes.
    suites: Vec<Suite>,
    most: String,
    most_there_is: u32,
    rdma_device: String,
    /// Why the request was rejected. Empty when accepted.
    refused: String,
    plan: Option<Foreseen>,
}

struct Suite {
    name: String,
    chosen: bool,
}

struct Foreseen {
    taken: Vec<String>,
    /// Idle nodes beyond the limit of the run.
    beyond: u32,
    left: Vec<String>,
}

/// The typed values of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answers {
    suite: String,
    most: String,
    rdma_device: String,
    /// `measure` starts the run. Any other value asks for the preview.
    step: String,
}

/// Shows the preview, or starts the run, as `POST /v1/pools/{pool}/actions/run-pairs` does. A
/// rejected request returns the form with the error.
pub(super) async fn measure_pairs(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Form(given): Form<Answers>,
) -> Result<Response, Error> {
    let missing = || Error::NotFound(format!("pool {key:?}"));
    let mut conn = app.pool.acquire().await?;
    let pool = db::objects::find(&mut conn, "pool", &key)
        .await?
        .ok_or_else(missing)?
        .name;
    let suites = list_suites(&mut conn, &actor).await?;
    drop(conn);
    let request = parse(&given, &suites);
    let chosen = request.as_ref().map(|body| body.suite.clone());
    let chosen = chosen.unwrap_or_default();
    let preview = match request {
        Ok(body) if given.step == "measure" => match begin_run(&app, &actor, &pool, &body).await {
            Ok(id) => {
                let path = format!("/pools/{}?run={id}", format::escape(&pool));
                return Ok(Redirect::to(&path).into_response());
            }
            Err(error) => Err(error),
        },
        Ok(body) => preview_run(&app, &actor, &pool, &body).await.map(Some),
        Err(error) => Err(error),
    };
    let (status, refused, run) = match preview {
        Ok(run) => (StatusCode::OK, String::new(), run),
        Err(error) => refusal(error).map(|(status, why)| (status, why, None))?,
    };
    let title = format!("Measure the nodes of {pool}");
    let page = Page {
        frame: Frame::new(&visit, &actor, Section::Claims, title)
            .by_hand(
                format!("muster pool run-pairs {}", format::shell(&pool)),
                &format!("/v1/pools/{}/pair-runs", format::escape(&pool)),
            )
            .live(Live::Never),
        suites: suites
            .into_iter()
            .map(|name| Suite {
                chosen: name == chosen,
                name,
            })
            .collect(),
        most: given.most,
        most_there_is: MOST,
        rdma_device: given.rdma_device,
        refused,
        plan: run.map(render_foreseen),
        pool,
    };
    Ok((status, page).into_response())
}

/// Returns the names of the suites with a gate between two nodes.
async fn list_suites(conn: &mut PgConnection, actor: &Actor) -> Result<Vec<String>, Error> {
    let rows = db::objects::list(conn, "suite", &actor.sight(), SUITES).await?;
    let has_pair_gate = |spec: &serde_json::Value| {
        spec["gates"]
            .as_array()
            .is_some_and(|gates| gates.iter().any(|gate| gate.get("peer").is_some()))
    };
    Ok(rows
        .into_iter()
        .filter(|row| has_pair_gate(&row.spec))
        .map(|row| row.name)
        .collect())
}

/// Splits the ends of a run into the nodes to measure and the nodes left out, each with a reason.
fn render_foreseen(run: PairRun) -> Foreseen {
    let (left, taken): (Vec<_>, Vec<_>) = run
        .ends
        .into_iter()
        .partition(|end| end.verdict == "left_out");
    let why = |end: PairEnd| {
        let why = end.why.unwrap_or_default();
        format::cut(&format!("{}: {why}", end.node), 300)
    };
    Foreseen {
        taken: taken.into_iter().take(SHOWN).map(|end| end.node).collect(),
        beyond: run.beyond,
        left: format::cut_sentences(left.into_iter().map(why).collect(), SHOWN),
    }
}

/// Parses the form. Without a chosen suite, the request names the shipped suite `pairs`, or else
/// the first suite.
fn parse(given: &Answers, suites: &[String]) -> Result<RunPairs, Error> {
    let typed = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let own = || {
        suites
            .iter()
            .find(|name| *name == "pairs")
            .or(suites.first())
            .cloned()
    };
    let none = || {
        Error::conflict(
            "no_suite",
            "No suite has a gate that is measured between two nodes: apply suites/pairs.toml first.".to_owned(),
        )
    };
    let most = typed(&given.most)
        .map(|most| most.parse::<u32>())
        .transpose();
    let most = most.map_err(|_| {
        Error::unprocessable("/most", "out_of_range", format!("2 to {MOST} nodes."))
    })?;
    Ok(RunPairs {
        suite: typed(&given.suite).or_else(own).ok_or_else(none)?,
        most,
        variables: typed(&given.rdma_device)
            .map(|name| ("rdma_device".to_owned(), name))
            .into_iter()
            .collect(),
        ..RunPairs::default()
    })
}
