//! `POST /v1/plan`: writes a set of objects like their own routes, in one transaction, and rolls
//! back. A plan therefore fails where the write would fail.

mod claim; // Plans of claims and releases
mod declared; // Plans of declared kinds
mod diff; // Differences between two documents
mod fit; // Compatibility of a stack with affected nodes
mod node; // Plans of nodes
mod reach; // Affected nodes, and the cost of a change

use axum::extract::{DefaultBodyLimit, State};
use muster_api::access::RoleBindingSpec;
use muster_api::claims::ClaimSpec;
use muster_api::credentials::CredentialSpec;
use muster_api::kind::{self, Kind};
use muster_api::monitors::MonitorSpec;
use muster_api::nodes::NodeSpec;
use muster_api::plans::{Desired, Difference, MakePlan, Plan, PlannedObject};
use muster_api::pools::PoolSpec;
use muster_api::problem::{self, Problem};
use muster_api::racks::RackSpec;
use muster_api::signing_keys::SigningKeySpec;
use muster_api::sites::SiteSpec;
use muster_api::subnets::SubnetSpec;
use muster_api::webhooks::WebhookSpec;
use muster_core::clusters::ClusterSpec;
use muster_core::effects::Effect;
use muster_core::gates::Suite;
use muster_core::images::ImageManifest;
use muster_core::network::NetworkProfile;
use muster_core::profiles::HardwareProfile;
use muster_core::rollout::MaintenanceWindow;
use muster_core::stacks::StackSpec;
use serde_json::{Value, json};
use sqlx::{Acquire as _, PgConnection};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::claim::{plan_claim, plan_release};
use self::declared::plan_declared;
use self::node::plan_node;
use super::extract::Json;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::{taken, writing};

const MOST: usize = 1000;
/// The largest body, in bytes. Images and stacks list their packages.
const BODY_LIMIT: usize = 32 << 20;

/// The route of plans.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(make_plan))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// Plans the write of a set of objects, without any stored effect.
///
/// The plan lists the differences, the affected nodes with the cost for each object, and the
/// blockers.
// A plan writes no rows. Each object of a plan is checked like a write of the object.
#[utoipa::path(post, path = "/v1/plan",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "plans", request_body = MakePlan, responses(
    (status = 200, description = "The plan, including the blockers", body = Plan),
    (status = 422, description = "A kind is unknown, or an object is listed twice", body = Problem, content_type = "application/problem+json"),
))]
async fn make_plan(
    State(app): State<App>,
    actor: Actor,
    Json(request): Json<MakePlan>,
) -> Result<Answer, Error> {
    let objects = sort_by_kind(request.objects)?;
    let planned = writing::plan_effect(&app, async |conn| {
        let mut planned = Vec::with_capacity(objects.len());
        for object in &objects {
            planned.push(plan_object(&app, conn, &actor, object).await?);
        }
        Ok(planned)
    })
    .await?;
    let dearest = planned
        .iter()
        .filter_map(|object| object.effect.parse::<Effect>().ok())
        .max();
    let effect = dearest.unwrap_or(Effect::None).to_string();
    Answer::ok(&Plan {
        effect,
        objects: planned,
    })
}

/// Sorts the objects by kind, so that each object follows the kinds it refers to.
fn sort_by_kind(mut objects: Vec<Desired>) -> Result<Vec<Desired>, Error> {
    if objects.len() > MOST {
        return Err(Error::unprocessable(
            "/objects",
            "too_many",
            format!("At most {MOST}."),
        ));
    }
    let place = |object: &Desired| {
        kind::COLLECTIONS
            .iter()
            .position(|(kind, _)| *kind == object.kind)
    };
    let mut seen = std::collections::BTreeSet::new();
    for (at, object) in objects.iter().enumerate() {
        let pointer = format!("/objects/{at}/kind");
        if place(object).is_none() {
            return Err(Error::unprocessable(
                pointer,
                "unknown_kind",
                format!("{:?} is no kind.", object.kind),
            ));
        }
        if !seen.insert((object.kind.as_str(), object.name.as_str())) {
            let detail = format!("{} {} is listed twice.", object.kind, object.name);
            return Err(Error::unprocessable(pointer, "twice", detail));
        }
    }
    objects.sort_by_key(place);
    Ok(objects)
}

/// Plans one object. A refusal becomes part of the object's plan, and the other objects are planned
/// without that object.
async fn plan_object(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    // A savepoint: an error of the database ends the plan of this object only.
    let mut alone = conn.begin().await?;
    match plan_kind(app, &mut alone, actor, object).await {
        Ok(planned) => {
            db::check_constraints(&mut alone).await?;
            alone.commit().await?;
            Ok(planned)
        }
        Err(error @ (Error::Internal(_) | Error::Unavailable(_) | Error::Contended(_))) => {
            Err(error)
        }
        Err(error) => {
            alone.rollback().await?;
            Ok(plan_refused(
                object,
                &taken::name_holder(conn, actor, error).await,
            ))
        }
    }
}

async fn plan_kind(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    match object.kind.as_str() {
        ClaimSpec::KIND if object.absent => plan_release(app, conn, actor, object).await,
        _ if object.absent => Err(Error::unprocessable(
            "/absent",
            "not_planned",
            "Only the removal of a claim affects a machine.",
        )),
        SiteSpec::KIND => plan_declared::<SiteSpec>(app, conn, actor, object).await,
        RackSpec::KIND => plan_declared::<RackSpec>(app, conn, actor, object).await,
        SubnetSpec::KIND => plan_declared::<SubnetSpec>(app, conn, actor, object).await,
        HardwareProfile::KIND => plan_declared::<HardwareProfile>(app, conn, actor, object).await,
        NetworkProfile::KIND => plan_declared::<NetworkProfile>(app, conn, actor, object).await,
        MaintenanceWindow::KIND => {
            plan_declared::<MaintenanceWindow>(app, conn, actor, object).await
        }
        MonitorSpec::KIND => plan_declared::<MonitorSpec>(app, conn, actor, object).await,
        CredentialSpec::KIND => plan_declared::<CredentialSpec>(app, conn, actor, object).await,
        SigningKeySpec::KIND => plan_declared::<SigningKeySpec>(app, conn, actor, object).await,
        ImageManifest::KIND => plan_declared::<ImageManifest>(app, conn, actor, object).await,
        StackSpec::KIND => plan_declared::<StackSpec>(app, conn, actor, object).await,
        Suite::KIND => plan_declared::<Suite>(app, conn, actor, object).await,
        ClusterSpec::KIND => plan_declared::<ClusterSpec>(app, conn, actor, object).await,
        PoolSpec::KIND => plan_declared::<PoolSpec>(app, conn, actor, object).await,
        WebhookSpec::KIND => plan_declared::<WebhookSpec>(app, conn, actor, object).await,
        RoleBindingSpec::KIND => plan_declared::<RoleBindingSpec>(app, conn, actor, object).await,
        NodeSpec::KIND => plan_node(app, conn, actor, object).await,
        ClaimSpec::KIND => plan_claim(app, conn, actor, object).await,
        other => Err(Error::unprocessable(
            "/kind",
            "unknown_kind",
            format!("{other:?} is no kind."),
        )),
    }
}

fn plan_parts(labels: &Value, annotations: &Value, spec: &Value) -> Value {
    json!({ "labels": labels, "annotations": annotations, "spec": spec })
}

/// The effect of a write on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Created,
    Changed,
    Unchanged,
}

/// The plan of an object without affected nodes.
fn planned(object: &Desired, change: Change, diff: Vec<Difference>) -> PlannedObject {
    let (word, diff) = match change {
        Change::Created => ("create", diff),
        Change::Changed => ("change", diff),
        Change::Unchanged => ("none", Vec::new()),
    };
    PlannedObject {
        kind: object.kind.clone(),
        name: object.name.clone(),
        change: word.into(),
        diff,
        effect: Effect::None.to_string(),
        begins: false,
        nodes: Vec::new(),
        node_count: 0,
        gates: Vec::new(),
        blockers: Vec::new(),
        limits: Vec::new(),
        findings: Vec::new(),
        claims: 0,
    }
}

/// The plan of an object with a refused write.
fn plan_refused(object: &Desired, error: &Error) -> PlannedObject {
    let (code, detail, faults) = error.public();
    let fault = |pointer: &str, code: &str, detail: String| problem::Fault {
        pointer: pointer.to_owned(),
        code: code.to_owned(),
        detail,
    };
    let blockers = match faults.is_empty() {
        true => vec![fault("", code, detail)],
        false => faults
            .iter()
            .map(|one| fault(&one.pointer, one.code, one.detail.clone()))
            .collect(),
    };
    let refused = PlannedObject {
        blockers,
        ..planned(object, Change::Unchanged, Vec::new())
    };
    if let Error::BreaksNodes(broken) = error {
        return PlannedObject {
            nodes: broken.nodes.clone(),
            node_count: broken.count,
            ..refused
        };
    }
    refused
}

#[cfg(test)]
mod tests {
    /// Each kind of `COLLECTIONS` must have an arm in `plan_kind`.
    #[test]
    fn every_kind_is_planned() {
        let source = include_str!("mod.rs");
        let arms = source
            .split("async fn plan_kind")
            .nth(1)
            .and_then(|rest| rest.split("\nasync fn").next());
        let arms = arms.unwrap().matches("::KIND => ").count();
        assert_eq!(
            arms,
            muster_api::kind::COLLECTIONS.len(),
            "each kind has its arm in plan_kind"
        );
    }
}
