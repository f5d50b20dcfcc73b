//! The form that plans a rollout of a pool. A plan changes no node. A rejected plan is shown with the
//! reason above the form.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use jiff::Timestamp;
use muster_api::rollouts::PlanRollout;
use muster_core::rollout::RolloutPolicy;
use serde::Deserialize;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::find_pool;
use crate::intents::rollouts;
use crate::ui::format::{self, member};
use crate::ui::frame::{Frame, Live, Section, Visit};
use crate::ui::replace::refusal;

/// Most revisions offered.
const REVISIONS: i64 = 100;

#[derive(Template, WebTemplate)]
#[template(path = "rollout_plan.html")]
struct Page {
    frame: Frame,
    pool: String,
    revisions: Vec<Choice>,
    like: String,
    refused: String,
}

struct Choice {
    number: i32,
    chosen: bool,
}

/// The typed values of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::ui) struct Fields {
    revision: String,
    /// Name of the rollout whose policy the plan takes. Empty for the default policy.
    like: String,
}

/// Plans a rollout, as `POST /v1/rollouts` does, and shows the plan.
pub(in crate::ui) async fn plan_rollout(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Form(given): Form<Fields>,
) -> Result<Response, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &key).await?;
    let request = parse(&mut conn, &pool, &given, visit.now).await;
    drop(conn);
    let planned = match request {
        Ok(body) => rollouts::plan(&app, &actor, IdempotencyKey::none(), &body).await,
        Err(error) => Err(error),
    };
    let error = match planned {
        Ok(answer) => {
            let name = member(&answer.body, "name");
            let path = format!("/rollouts/{}", format::escape(name));
            return Ok(Redirect::to(&path).into_response());
        }
        Err(error) => error,
    };
    let (status, refused) = refusal(error)?;
    let mut conn = app.pool.acquire().await?;
    let rows = db::revisions::list(&mut conn, pool.id, None, REVISIONS).await?;
    let title = format!("Plan a rollout of {}", pool.name);
    let cli = format!(
        "muster rollout plan {} --revision REVISION",
        format::shell(&pool.name)
    );
    let page = Page {
        frame: Frame::new(&visit, &actor, Section::Rollouts, title)
            .by_hand(cli, "/v1/rollouts")
            .live(Live::Never),
        revisions: rows
            .into_iter()
            .map(|row| Choice {
                number: row.number,
                chosen: row.number.to_string() == given.revision.trim(),
            })
            .collect(),
        pool: pool.name,
        like: given.like,
        refused,
    };
    Ok((status, page).into_response())
}

async fn parse(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    given: &Fields,
    now: Timestamp,
) -> Result<PlanRollout, Error> {
    let revision = given.revision.trim().parse().map_err(|_| {
        Error::unprocessable("/revision", "required", "Choose a revision of the pool.")
    })?;
    Ok(PlanRollout {
        pool: pool.id.to_string(),
        revision,
        policy: find_policy(conn, pool, revision, &given.like, now).await?,
    })
}

/// Returns the policy of a former rollout of the same pool, or the default policy.
async fn find_policy(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    revision: i32,
    like: &str,
    now: Timestamp,
) -> Result<RolloutPolicy, Error> {
    if like.is_empty() {
        return Ok(RolloutPolicy::default());
    }
    let former = rollouts::find(conn, like).await?;
    // The reader has the right on this pool only.
    if former.pool != pool.id {
        return Err(Error::NotFound(format!("rollout {like:?}")));
    }
    rollouts::reuse_policy(conn, former, revision, now).await
}
