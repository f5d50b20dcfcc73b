//! The form for adopting a running machine: first the plan, then the confirmation. Each error is
//! shown beside its field, and the typed values are kept.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use muster_api::nodes::{AdoptNode, NodePlan};
use serde::Deserialize;
use sqlx::PgConnection;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::{self, Path};
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::adopt::adopt;
use crate::intents::nodes::place::DryRun;
use crate::ui::frame::{Frame, Section, Visit};

/// Most names offered in a list of choices. Other names are available by the API.
const MOST: i64 = 200;

#[derive(Template, WebTemplate)]
#[template(path = "adopt.html")]
struct Page {
    frame: Frame,
    name: String,
    form: Form,
}

/// The fields of the form, the typed values and their errors.
#[derive(Clone, Debug, Default)]
pub(in crate::ui) struct Form {
    pub node: String,
    pub pool: Choice,
    pub credential: Choice,
    pub host_key: Field,
    pub claim: Field,
    pub reason: Field,
    /// Why the request was rejected as a whole. Empty when an error belongs to a field, or without
    /// an error.
    pub refused: String,
    pub plan: Option<Plan>,
}

/// A choice of one name from a list.
#[derive(Clone, Debug, Default)]
pub(in crate::ui) struct Choice {
    pub names: Vec<String>,
    pub chosen: String,
    pub wrong: String,
}

/// A line of text, with its error.
#[derive(Clone, Debug, Default)]
pub(in crate::ui) struct Field {
    pub value: String,
    pub wrong: String,
}

/// The changes planned by the adoption, the blockers, and the label of the button.
#[derive(Clone, Debug)]
pub(in crate::ui) struct Plan {
    pub changes: Vec<String>,
    pub blockers: Vec<String>,
    pub button: String,
}

impl Form {
    /// Returns an empty form with the pools and credentials to choose from.
    pub(super) async fn empty(
        conn: &mut PgConnection,
        sight: &Sight,
        node: &str,
    ) -> Result<Self, Error> {
        let pools = db::objects::list(conn, "pool", sight, MOST).await?;
        let credentials = db::adoptions::list_credentials(conn, MOST).await?;
        Ok(Self {
            node: node.to_owned(),
            pool: Choice {
                names: pools.into_iter().map(|row| row.name).collect(),
                ..Choice::default()
            },
            credential: Choice {
                names: credentials,
                ..Choice::default()
            },
            ..Self::default()
        })
    }

    fn answered(mut self, given: Answers) -> Self {
        (self.pool.chosen, self.credential.chosen) = (given.pool, given.credential);
        self.host_key.value = given.host_key;
        self.claim.value = given.claim;
        self.reason.value = given.reason;
        self
    }

    /// Puts each error beside its field. Errors without a field go to `refused`.
    fn refused(mut self, error: &Error) -> Self {
        let (_, sentence, faults) = error.public();
        for fault in faults {
            let place = match fault.pointer.as_str() {
                "/pool" => &mut self.pool.wrong,
                "/credential" => &mut self.credential.wrong,
                "/host_key" => &mut self.host_key.wrong,
                "/claim" => &mut self.claim.wrong,
                "/reason" => &mut self.reason.wrong,
                _ => &mut self.refused,
            };
            place.push_str(&fault.detail);
        }
        if faults.is_empty() {
            self.refused = sentence;
        }
        self
    }

    fn planned(mut self, plan: NodePlan) -> Self {
        let button = match self.host_key.value.is_empty() {
            true => format!("Ask {} for its host key", self.node),
            false => format!("Adopt {}", self.node),
        };
        self.plan = Some(Plan {
            changes: plan.changes,
            blockers: plan.blockers,
            button,
        });
        self
    }
}

/// The typed values of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::ui) struct Answers {
    pool: String,
    credential: String,
    host_key: String,
    claim: String,
    reason: String,
    /// `adopt` confirms the adoption. Any other value asks for the plan.
    step: String,
}

impl Answers {
    fn body(&self) -> AdoptNode {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        AdoptNode {
            pool: self.pool.clone(),
            credential: self.credential.clone(),
            host_key: text(&self.host_key),
            claim: text(&self.claim),
            reason: text(&self.reason),
        }
    }
}

/// Shows the plan, or adopts, as `POST /v1/nodes/{node}/actions/adopt` does. A rejected request
/// returns the form with the errors.
pub(in crate::ui) async fn adopt_node(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(name): Path<String>,
    extract::Form(given): extract::Form<Answers>,
) -> Result<Response, Error> {
    let how = DryRun {
        dry_run: given.step != "adopt",
    };
    let key = IdempotencyKey::none();
    let answer = adopt(&app, &actor, &name, key, how, &given.body()).await;
    let form = Form::empty(&mut *app.pool.acquire().await?, &actor.sight(), &name)
        .await?
        .answered(given);
    let (status, form) = match answer {
        Ok(_) if !how.dry_run => return Ok(Redirect::to(&format!("/nodes/{name}")).into_response()),
        Ok(answer) => {
            let plan = serde_json::from_value(answer.body).map_err(Error::internal)?;
            (StatusCode::OK, form.planned(plan))
        }
        Err(error @ Error::Unprocessable(_)) => {
            (StatusCode::UNPROCESSABLE_ENTITY, form.refused(&error))
        }
        Err(error @ (Error::Conflict { .. } | Error::Taken(_) | Error::Busy { .. })) => {
            (StatusCode::CONFLICT, form.refused(&error))
        }
        Err(other) => return Err(other),
    };
    let frame = Frame::new(&visit, &actor, Section::Nodes, format!("Adopt {name}"))
        .by_hand(
            format!("muster node adopt {name}"),
            &format!("/v1/nodes/{name}"),
        )
        .live(crate::ui::frame::Live::Never);
    Ok((status, Page { frame, name, form }).into_response())
}
