//! `POST /v1/plan`: a set of objects is written as their own routes write them, in one transaction that is rolled back. So a plan can promise
//! nothing that the write would refuse.

mod diff; // What differs
mod fit; // What the rules say of a stack on the nodes it reaches
mod reach; // Whom it reaches, and at what cost

use axum::extract::{DefaultBodyLimit, State};
use muster_api::access::RoleBindingSpec;
use muster_api::claims::{ClaimSpec, CreateClaim};
use muster_api::credentials::CredentialSpec;
use muster_api::kind::{self, Kind};
use muster_api::nodes::NodeSpec;
use muster_api::object::Draft;
use muster_api::plans::{Desired, MakePlan, Plan, PlannedObject};
use muster_api::pools::PoolSpec;
use muster_api::problem::{self, Problem};
use muster_api::racks::RackSpec;
use muster_api::sites::SiteSpec;
use muster_api::subnets::SubnetSpec;
use muster_api::webhooks::WebhookSpec;
use muster_core::clusters::ClusterSpec;
use muster_core::effects::Effect;
use muster_core::gates::Suite;
use muster_core::images::ImageManifest;
use muster_core::network::NetworkProfile;
use muster_core::profiles::HardwareProfile;
use muster_core::stacks::StackSpec;
use muster_core::values::Name;
use serde_json::{Value, json};
use sqlx::{Acquire as _, PgConnection};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::reach::Reach;
use super::answer::Answer;
use super::claims::change::Content;
use super::declared::{self, Declared};
use super::document::Document;
use super::extract::Json;
use super::{claims, nodes, taken, writing};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::engine::compatibility::Onto;
use crate::error::Error;

const MOST: usize = 1000;
/// Images and stacks list their packages. Bytes.
const BODY_LIMIT: usize = 32 << 20;

/// The route of plans.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(make_plan))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// What writing these objects would do: what differs, what it costs which nodes, what is in the way. Nothing is written.
#[utoipa::path(post, path = "/v1/plan", tag = "plans", request_body = MakePlan, responses(
    (status = 200, description = "The plan; what is in the way is part of it", body = Plan),
    (status = 422, description = "There is no such kind, or one object is there twice", body = Problem, content_type = "application/problem+json"),
))]
async fn make_plan(
    State(app): State<App>,
    actor: Actor,
    Json(request): Json<MakePlan>,
) -> Result<Answer, Error> {
    let objects = ordered(request.objects)?;
    let planned = writing::tell(&app, async |conn| {
        let mut planned = Vec::with_capacity(objects.len());
        for object in &objects {
            planned.push(plan(&app, conn, &actor, object).await?);
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

/// In the order in which kinds build on each other.
fn ordered(mut objects: Vec<Desired>) -> Result<Vec<Desired>, Error> {
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
            let detail = format!("{} {} is there twice.", object.kind, object.name);
            return Err(Error::unprocessable(pointer, "twice", detail));
        }
    }
    objects.sort_by_key(place);
    Ok(objects)
}

/// One object. What refuses it is told in its plan; the others are planned without it.
async fn plan(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    // Alone, so that a refusal by the database ends no more than this one.
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
            Ok(blocked(object, &taken::named(conn, actor, error).await))
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
            "Only a claim touches a machine as it goes.",
        )),
        SiteSpec::KIND => plan_declared::<SiteSpec>(app, conn, actor, object).await,
        RackSpec::KIND => plan_declared::<RackSpec>(app, conn, actor, object).await,
        SubnetSpec::KIND => plan_declared::<SubnetSpec>(app, conn, actor, object).await,
        HardwareProfile::KIND => plan_declared::<HardwareProfile>(app, conn, actor, object).await,
        NetworkProfile::KIND => plan_declared::<NetworkProfile>(app, conn, actor, object).await,
        CredentialSpec::KIND => plan_declared::<CredentialSpec>(app, conn, actor, object).await,
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

async fn plan_declared<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    let verb = format!("{}.write", K::KIND);
    actor.need_somewhere(&verb)?;
    let before = db::objects::find_for_update(conn, K::KIND, &object.name).await?;
    if let Some(row) = &before {
        actor
            .need(
                conn,
                &verb,
                Named {
                    kind: K::KIND,
                    key: &row.id.to_string(),
                },
            )
            .await?;
    }
    let (generation, spec) = (
        before.as_ref().map(|row| row.generation),
        before
            .as_ref()
            .map(|row| declared::read::shown::<K>(row.spec.clone())),
    );
    let was = before.as_ref().zip(spec.as_ref());
    let was = was.map(|(row, spec)| parts(&json!(row.labels), &json!(row.annotations), spec));
    let raw = parts(
        &json!(object.labels),
        &json!(object.annotations),
        &object.spec,
    );
    let document = Document::<Draft<K>>::read(raw)?;
    // Before it is written: what a pool names may be what it named.
    let reach = Reach::of(conn, K::KIND, spec.as_ref(), &object.spec).await?;
    let answer = declared::write::write(app, conn, actor, &object.name, before, document).await?;
    let written = &answer.body;
    let is = parts(
        &written["labels"],
        &written["annotations"],
        &written["spec"],
    );
    let mut differences = diff::of(was.as_ref(), &is);
    let changed = written["generation"].as_i64() != generation;
    if changed && generation.is_some() && differences.is_empty() {
        // All that can differ and is not shown.
        differences = diff::of(
            Some(&json!({ "spec": {} })),
            &json!({ "spec": { "secret": "changed" } }),
        );
    }
    let planned = planned(object, (generation.is_some(), changed), differences);
    let planned = match changed && generation.is_some() {
        true => {
            reach
                .told(conn, written["id"].as_str().unwrap_or_default(), planned)
                .await?
        }
        false => planned,
    };
    match changed && K::KIND == PoolSpec::KIND {
        true => reach::claiming(conn, actor, planned).await,
        false => Ok(planned),
    }
}

async fn plan_node(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    actor.need_somewhere("node.write")?;
    let before = db::nodes::find_for_update(conn, &object.name).await?;
    if let Some(node) = &before {
        actor
            .need(
                conn,
                "node.write",
                Named {
                    kind: "node",
                    key: &node.id.to_string(),
                },
            )
            .await?;
    }
    let was = before
        .as_ref()
        .map(|row| parts(&json!(row.labels), &json!(row.annotations), &row.spec));
    let generation = before.as_ref().map(|row| row.generation);
    let claimed = before.as_ref().is_some_and(|node| node.claimed);
    let raw = parts(
        &json!(object.labels),
        &json!(object.annotations),
        &object.spec,
    );
    let document = Document::<Draft<NodeSpec>>::read(raw.clone())?;
    let accepted = document.typed().spec.accept;
    let answer = nodes::write::write(app, conn, actor, &object.name, before, document).await?;
    let differences = diff::of(was.as_ref(), &raw);
    let relabelled = differences
        .iter()
        .any(|difference| difference.pointer.starts_with("/labels"));
    let changed = answer.body["generation"].as_i64() != generation;
    let (effect, begins) = match generation {
        // It is inspected at once, in the live image.
        None if accepted => (Effect::Reboot, true),
        // A file of its stack may name a label.
        Some(_) if claimed && relabelled => (Effect::InPlace, false),
        _ => (Effect::None, false),
    };
    let planned = planned(object, (generation.is_some(), changed), differences);
    Ok(match effect {
        Effect::None => planned,
        effect => PlannedObject {
            effect: effect.to_string(),
            begins,
            nodes: vec![object.name.clone()],
            node_count: 1,
            ..planned
        },
    })
}

/// A claim is made once; what of it can be changed touches no node.
async fn plan_claim(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    actor.need_somewhere("claim.create")?;
    let content = Document::<Content>::read(json!({ "spec": object.spec }))?;
    if let Some(row) = db::claims::find(conn, &object.name).await? {
        // Under the name that was sent: the id would tell of one that lies elsewhere.
        actor
            .need(
                conn,
                "fleet.read",
                Named {
                    kind: "claim",
                    key: &object.name,
                },
            )
            .await?;
        if row.spec == object.spec {
            return Ok(planned(object, (true, false), Vec::new()));
        }
        actor
            .need(
                conn,
                "claim.release",
                Named {
                    kind: "claim",
                    key: &object.name,
                },
            )
            .await?;
        let (_, claim) = claims::release::locked(conn, &row.id.to_string()).await?;
        let changed = claims::change::change(conn, app, actor, &claim, content).await?;
        let differences = diff::of(
            Some(&json!({ "spec": claim.spec })),
            &json!({ "spec": object.spec }),
        );
        return Ok(planned(object, (true, changed), differences));
    }
    let wrong = |error: muster_core::values::InvalidValue| {
        Error::invalid("/name", "invalid_name", error.why)
    };
    let name: Name = object.name.parse().map_err(wrong)?;
    let claim = json!({ "name": name, "spec": object.spec });
    let claim = Document::<CreateClaim>::read(claim)?;
    let pool = claim.typed().spec.pool.clone();
    let answer = claims::create::create(conn, app, actor, claim).await?;
    let node = answer.body["status"]["node"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let pools: Vec<_> = db::objects::find(conn, "pool", &pool)
        .await?
        .into_iter()
        .map(|row| row.id)
        .collect();
    let planned = planned(
        object,
        (false, true),
        diff::of(None, &json!({ "spec": object.spec })),
    );
    let gates = reach::gates(conn, &pools).await?;
    let nodes = vec![node];
    // In this transaction the claim is there.
    let findings = fit::held(conn, &nodes, Onto::Image).await?;
    let effect = Effect::Reinstall.to_string();
    Ok(PlannedObject {
        effect,
        begins: true,
        nodes,
        node_count: 1,
        gates,
        findings,
        ..planned
    })
}

/// A release, begun and taken back: what it counts and what refuses it are the release's own.
async fn plan_release(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    actor.need_somewhere("claim.release")?;
    let nothing = planned(object, (true, false), Vec::new());
    let Some(claim) = db::claims::find(conn, &object.name).await? else {
        return Ok(nothing);
    };
    match actor
        .need(
            conn,
            "claim.release",
            Named {
                kind: "claim",
                key: &object.name,
            },
        )
        .await
    {
        // As one that there is not.
        Err(Error::NotFound(_)) => return Ok(nothing),
        allowed => allowed?,
    }
    let disks = if object.erase_now {
        claims::release::Disks::ErasedNow
    } else {
        claims::release::Disks::Kept
    };
    let Some(told) = claims::release::plan(app, conn, actor, &claim, disks).await? else {
        return Ok(nothing);
    };
    let effect = Effect::Wipe.to_string();
    let node_count = i64::try_from(told.nodes.len()).unwrap_or(i64::MAX);
    let (nodes, limits) = (told.nodes, told.limits);
    Ok(PlannedObject {
        change: "delete".into(),
        effect,
        begins: true,
        nodes,
        node_count,
        limits,
        ..nothing
    })
}

fn parts(labels: &Value, annotations: &Value, spec: &Value) -> Value {
    json!({ "labels": labels, "annotations": annotations, "spec": spec })
}

fn planned(
    object: &Desired,
    (exists, changed): (bool, bool),
    diff: Vec<muster_api::plans::Difference>,
) -> PlannedObject {
    let change = match (exists, changed) {
        (false, _) => "create",
        (true, true) => "change",
        (true, false) => "none",
    };
    PlannedObject {
        kind: object.kind.clone(),
        name: object.name.clone(),
        change: change.into(),
        diff: if changed { diff } else { Vec::new() },
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

fn blocked(object: &Desired, error: &Error) -> PlannedObject {
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
    PlannedObject {
        blockers,
        ..planned(object, (true, false), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    /// What the plan knows is what can be declared: a kind that is added is added to `plan_kind`, too.
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
