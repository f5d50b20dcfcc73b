//! The form for moving a claim to another node: first the plan, then the confirmation. An error is
//! shown above the form, and the typed values are kept.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use muster_api::claims::ReplaceClaim;
use muster_api::nodes::NodePlan;
use serde::Deserialize;

use super::frame::{Frame, Live, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::claims::replace::{plan, replace};
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;

#[derive(Template, WebTemplate)]
#[template(path = "replace.html")]
struct Page {
    frame: Frame,
    claim: String,
    /// Name of the claim's present node.
    node: String,
    /// Generation of the claim as shown. The replacement is rejected when the claim has changed
    /// since.
    generation: i64,
    spare: String,
    reason: String,
    /// Why the request was rejected. Empty when accepted.
    refused: String,
    plan: Option<NodePlan>,
}

/// The typed values of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answers {
    node: String,
    reason: String,
    typed: String,
    generation: Option<i64>,
    /// `replace` confirms the replacement. Any other value asks for the plan.
    step: String,
}

/// Shows the plan, or replaces the node, as `POST /v1/claims/{claim}/actions/replace` does. A
/// rejected request returns the form with the error.
pub(super) async fn replace_claim(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Form(given): Form<Answers>,
) -> Result<Response, Error> {
    let missing = || Error::NotFound(format!("claim {key:?}"));
    let claim = db::claims::find(&mut *app.pool.acquire().await?, &key)
        .await?
        .ok_or_else(missing)?;
    let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let body = ReplaceClaim {
        node: text(&given.node),
        reason: text(&given.reason),
    };
    let id = claim.id.to_string();
    if given.step != "replace" {
        let (status, refused, plan) = match plan(&app, &actor, &id, &body).await {
            Ok(plan) => (StatusCode::OK, String::new(), Some(plan)),
            Err(error) => refusal(error).map(|(status, why)| (status, why, None))?,
        };
        return Ok((status, page(&visit, &actor, claim, given, refused, plan)).into_response());
    }
    // The typed name and the generation must match the claim as shown: a stale page must not
    // replace a newer node.
    let (true, Some(generation)) = (given.typed.trim() == claim.node_name, given.generation) else {
        let why = format!(
            "Type the name of the node that goes, {}, to confirm.",
            claim.node_name
        );
        let shown = plan(&app, &actor, &id, &body).await.ok();
        let page = page(&visit, &actor, claim, given, why, shown);
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response());
    };
    let key = IdempotencyKey::none();
    let preconditions = Preconditions::generation(generation);
    match replace(&app, &actor, &id, key, preconditions, &body).await {
        Ok(_) => Ok(Redirect::to("/claims").into_response()),
        // A replacement waiting for a second person is listed on the page of claims.
        Err(Error::SecondPerson { .. }) => Ok(Redirect::to("/claims").into_response()),
        Err(error) => {
            let (status, why) = refusal(error)?;
            Ok((status, page(&visit, &actor, claim, given, why, None)).into_response())
        }
    }
}

/// Returns the status and the sentence for errors the user can correct in the form. Other errors
/// are returned unchanged and get a page of their own.
pub(super) fn refusal(error: Error) -> Result<(StatusCode, String), Error> {
    let (_, sentence, faults) = error.public();
    let told = faults
        .first()
        .map_or(sentence, |fault| fault.detail.clone());
    match error {
        Error::Unprocessable(_) => Ok((StatusCode::UNPROCESSABLE_ENTITY, told)),
        Error::Conflict { .. } | Error::BreaksNodes(_) | Error::Taken(_) | Error::Busy { .. } => {
            Ok((StatusCode::CONFLICT, told))
        }
        Error::Stale(_) => Ok((StatusCode::PRECONDITION_FAILED, told)),
        other => Err(other),
    }
}

fn page(
    visit: &Visit,
    actor: &Actor,
    claim: ClaimRow,
    given: Answers,
    refused: String,
    plan: Option<NodePlan>,
) -> Page {
    let path = format!("/v1/claims/{}", claim.name);
    let cli = format!("muster claim replace {}", claim.name);
    Page {
        frame: Frame::new(
            visit,
            actor,
            Section::Claims,
            format!("Replace the node of {}", claim.name),
        )
        .by_hand(cli, &path)
        .live(Live::Never),
        node: claim.node_name,
        generation: claim.generation,
        claim: claim.name,
        spare: given.node,
        reason: given.reason,
        refused,
        plan,
    }
}
