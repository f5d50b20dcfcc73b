//! The forms of a rollout. A halt and changed budgets take effect at once. The other acts are
//! confirmed first: a start by the digest and the number of nodes, the rest on a page of their own.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use muster_api::rollouts::{AdjustRollout, Rollout, StartRollout, SteerNode, SteerRollout};
use muster_core::rollout::{Amount, Mark};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::page::{self, Adjust, NodesQuery, Refused};
use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::rollouts::view::{self, Parts};
use crate::intents::rollouts::{self, Request};
use crate::ui::format;
use crate::ui::frame::{Frame, Live, Section, Visit};
use crate::ui::replace::refusal;

#[derive(Template, WebTemplate)]
#[template(path = "rollout_act.html")]
struct Page {
    frame: Frame,
    rollout: String,
    act: &'static str,
    title: String,
    /// The effects of the act, as sentences.
    tells: Vec<String>,
    /// Name of the node. Empty for an act on the whole rollout.
    node: String,
    reason: String,
    /// Why the request was rejected. Empty when accepted.
    refused: String,
    button: String,
}

/// An act that is confirmed on a page of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Resume,
    Promote,
    Skip,
    Retry,
    Requeue,
}

impl Act {
    const ALL: [Self; 5] = [
        Self::Resume,
        Self::Promote,
        Self::Skip,
        Self::Retry,
        Self::Requeue,
    ];

    /// Returns the word of the API and of the form's path.
    fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Promote => "promote",
            Self::Skip => "skip",
            Self::Retry => "retry",
            Self::Requeue => "requeue",
        }
    }

    fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|act| act.as_str() == word)
    }
}

/// The typed values of the forms.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::ui) struct Fields {
    reason: String,
    node: String,
    /// `confirm` confirms the act. Any other value asks for the page of the act.
    step: String,
    /// Digest of the plan as shown.
    plan: String,
    /// The number of planned nodes, typed.
    typed: String,
    /// Budgets, as shown: `3` or `25%`.
    max_changing: String,
    max_waiting: String,
    max_validating: String,
    /// Number of tolerated failures, as shown.
    failures: String,
    /// Values of the form before a person typed.
    shown_changing: String,
    shown_waiting: String,
    shown_validating: String,
    shown_failures: String,
    /// Present if the start takes over from the open rollout.
    supersede: Option<String>,
}

/// Halts a rollout, as `POST /v1/rollouts/{rollout}/actions/halt` does. The answer is the page of the
/// rollout, with the nodes whose work goes on.
pub(in crate::ui) async fn halt_rollout(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Form(given): Form<Fields>,
) -> Result<Response, Error> {
    let body = SteerRollout {
        reason: given.reason,
    };
    let request = Request::new(&app, &actor, &key);
    match rollouts::halt(request, IdempotencyKey::none(), &body).await {
        Ok(_) => Ok(show(&key)),
        Err(error) => refuse(&app, &actor, &visit, &key, error).await,
    }
}

/// Starts, resumes, promotes or adjusts a rollout, or skips, retries or requeues a node, as the API
/// does.
pub(in crate::ui) async fn act_on_rollout(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path((key, word)): Path<(String, String)>,
    Form(given): Form<Fields>,
) -> Result<Response, Error> {
    if word == "start" {
        return start(&app, &actor, &visit, &key, &given).await;
    }
    if word == "adjust" {
        return adjust(&app, &actor, &visit, &key, &given).await;
    }
    let act = Act::find(&word).ok_or_else(|| Error::NotFound(format!("The act {word:?}")))?;
    let mut conn = app.pool.acquire().await?;
    let rollout = view::load(&mut conn, &actor, &key, visit.now, Parts::Nodes).await?;
    drop(conn);
    if given.step != "confirm" {
        let page = confirm(&visit, &actor, &rollout, act, given, String::new());
        return Ok(page.into_response());
    }
    match steer(Request::new(&app, &actor, &key), act, &given).await {
        Ok(_) => Ok(show(&rollout.name)),
        Err(error) => {
            let (status, why) = refusal(error)?;
            let page = confirm(&visit, &actor, &rollout, act, given, why);
            Ok((status, page).into_response())
        }
    }
}

/// Starts a plan as shown. The typed number of nodes must be the planned number.
async fn start(
    app: &App,
    actor: &Actor,
    visit: &Visit,
    key: &str,
    given: &Fields,
) -> Result<Response, Error> {
    let mut conn = app.pool.acquire().await?;
    let planned = rollouts::find(&mut conn, key).await?.planned;
    drop(conn);
    if given.typed.trim() != planned.to_string() {
        let detail = format!("Type the number of planned nodes, {planned}, to confirm.");
        let error = Error::unprocessable("/typed", "not_confirmed", detail);
        return refuse(app, actor, visit, key, error).await;
    }
    let body = StartRollout {
        plan: given.plan.clone(),
        supersede: given.supersede.is_some(),
    };
    let request = Request::new(app, actor, key);
    match rollouts::start(request, IdempotencyKey::none(), &body).await {
        Ok(_) => Ok(show(key)),
        Err(error) => refuse(app, actor, visit, key, error).await,
    }
}

/// Changes the budgets of an open rollout to the typed values. Values left alone are not sent: another
/// person may have changed them since.
async fn adjust(
    app: &App,
    actor: &Actor,
    visit: &Visit,
    key: &str,
    given: &Fields,
) -> Result<Response, Error> {
    let request = Request::new(app, actor, key);
    let adjusted = match read_budgets(given) {
        Ok(policy) => {
            let reason = given.reason.clone();
            let body = AdjustRollout { policy, reason };
            rollouts::adjust(request, IdempotencyKey::none(), &body).await
        }
        Err(error) => Err(error),
    };
    let Err(error) = adjusted else {
        return Ok(show(key));
    };
    let (status, why) = refusal(error)?;
    let typed = Adjust {
        changing: format::cut(&given.max_changing, 20),
        waiting: format::cut(&given.max_waiting, 20),
        validating: format::cut(&given.max_validating, 20),
        failures: format::cut(&given.failures, 20),
        reason: format::cut(&given.reason, 1000),
    };
    let refused = Refused {
        why,
        adjust: Some(typed),
    };
    show_refused(app, actor, visit, key, status, refused).await
}

/// Returns the changed values as a merge patch. Empty if no value differs from the shown value.
fn read_budgets(given: &Fields) -> Result<Map<String, Value>, Error> {
    let mut budgets = Map::new();
    for (member, label, typed, shown) in [
        (
            "max_changing",
            "Nodes that change",
            &given.max_changing,
            &given.shown_changing,
        ),
        (
            "max_waiting",
            "Nodes that wait",
            &given.max_waiting,
            &given.shown_waiting,
        ),
        (
            "max_validating",
            "Nodes that run their gates",
            &given.max_validating,
            &given.shown_validating,
        ),
    ] {
        if typed.trim() != shown {
            let amount = typed.trim().parse::<Amount>().map_err(|why| {
                let detail = format!("{label}: {why}");
                Error::unprocessable(format!("/{member}"), "out_of_range", detail)
            })?;
            budgets.insert(member.to_owned(), json!(amount));
        }
    }
    let mut policy = Map::new();
    if !budgets.is_empty() {
        policy.insert("budgets".to_owned(), Value::Object(budgets));
    }
    let failures = given.failures.trim();
    if failures != given.shown_failures {
        let count: u32 = failures.parse().map_err(|_| {
            let detail = format!("Tolerated failures: {failures:?} is no number of nodes.");
            Error::unprocessable("/failures", "out_of_range", detail)
        })?;
        policy.insert(
            "failure_budget".to_owned(),
            json!({ "count": count, "percent": null }),
        );
    }
    Ok(policy)
}

async fn steer(request: Request<'_>, act: Act, given: &Fields) -> Result<Answer, Error> {
    let once = IdempotencyKey::none();
    let whole = SteerRollout {
        reason: given.reason.clone(),
    };
    let one = SteerNode {
        node: given.node.clone(),
        reason: given.reason.clone(),
    };
    match act {
        Act::Resume => rollouts::resume(request, once, &whole).await,
        Act::Promote => rollouts::promote(request, once, &whole).await,
        Act::Skip => rollouts::skip(request, once, &one).await,
        Act::Retry => rollouts::retry(request, once, &one).await,
        Act::Requeue => rollouts::requeue(request, once, &one).await,
    }
}

/// Redirects to the page of the rollout.
fn show(key: &str) -> Response {
    Redirect::to(&format!("/rollouts/{}", format::escape(key))).into_response()
}

/// Returns the page of the rollout with the reason of the refusal. Other errors get a page of their
/// own.
async fn refuse(
    app: &App,
    actor: &Actor,
    visit: &Visit,
    key: &str,
    error: Error,
) -> Result<Response, Error> {
    let (status, why) = refusal(error)?;
    let refused = Refused { why, adjust: None };
    show_refused(app, actor, visit, key, status, refused).await
}

async fn show_refused(
    app: &App,
    actor: &Actor,
    visit: &Visit,
    key: &str,
    status: StatusCode,
    refused: Refused,
) -> Result<Response, Error> {
    // The address of the form is not the address of the page.
    let visit = visit.at(format!("/rollouts/{}", format::escape(key)));
    let page = page::load(app, actor, &visit, key, &NodesQuery::default(), refused).await?;
    Ok((status, page).into_response())
}

fn confirm(
    visit: &Visit,
    actor: &Actor,
    rollout: &Rollout,
    act: Act,
    given: Fields,
    refused: String,
) -> Page {
    let name = rollout.name.clone();
    let node = format::cut(&given.node, 63);
    let (title, button) = match act {
        Act::Resume => (format!("Resume {name}"), format!("Resume {name}")),
        Act::Promote => (
            format!("End the canary of {name}"),
            "End the canary now".to_owned(),
        ),
        Act::Skip => (format!("Skip {node} in {name}"), format!("Skip {node}")),
        Act::Retry => (format!("Retry {node} in {name}"), format!("Retry {node}")),
        Act::Requeue => (
            format!("Requeue the jobs of {node} for {name}"),
            format!("Requeue the jobs of {node}"),
        ),
    };
    let on = match act {
        Act::Resume | Act::Promote => String::new(),
        Act::Skip | Act::Retry | Act::Requeue => format!(" {}", format::shell(&node)),
    };
    let act_word = act.as_str();
    let cli = format!(
        "muster rollout {act_word} {}{on} --reason REASON",
        format::shell(&name)
    );
    let path = format!("/v1/rollouts/{}", format::escape(&name));
    Page {
        frame: Frame::new(visit, actor, Section::Rollouts, title.clone())
            .by_hand(cli, &path)
            .live(Live::Never),
        tells: describe(rollout, act, &node),
        rollout: name,
        act: act_word,
        title,
        node,
        reason: given.reason,
        refused,
        button,
    }
}

/// Returns the effects of an act, as sentences.
fn describe(rollout: &Rollout, act: Act, node: &str) -> Vec<String> {
    let count = |mark: Mark| {
        rollout
            .marks
            .get(mark.as_str())
            .copied()
            .unwrap_or_default()
    };
    let left = count(Mark::NotBegun) + count(Mark::Waiting);
    let left = match left {
        1 => "1 node has not begun.".to_owned(),
        left => format!("{left} nodes have not begun."),
    };
    match act {
        Act::Resume => vec![
            format!(
                "The rollout takes further nodes of {} out of service, in waves and within the budgets.",
                rollout.pool
            ),
            left,
            "A reason that still holds halts the rollout again. Failures stay counted.".to_owned(),
        ],
        Act::Promote => vec![
            format!(
                "The canary and its soak end. The rollout takes the nodes of the first wave of {} out of service.",
                rollout.pool
            ),
            left,
        ],
        Act::Skip => vec![format!(
            "The rollout leaves {node} out, and {node} keeps its present revision."
        )],
        Act::Retry => vec![
            format!(
                "The rollout converges or reinstalls {node} in its turn. The node returns to service after its gates."
            ),
            "A failure of the node stays counted.".to_owned(),
        ],
        Act::Requeue => vec![
            format!(
                "The rollout closes {node} in its turn, and the scheduler requeues every job on {node} at that time. The jobs start again from their beginning or their last checkpoint."
            ),
            format!("A job that cannot be requeued keeps {node} open."),
        ],
    }
}
