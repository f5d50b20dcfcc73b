//! Writing declared objects. Everything is checked before the first row changes, and everything changes in one transaction.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use muster_api::object::Draft;
use muster_core::values::{Name, Secret};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::read::{answer, missing};
use super::{Declared, Targets, Writer, fault};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::objects::{Content, ObjectRow, RefRow};
use crate::engine::orders::secret_place;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::{Body, Document, Path};
use crate::http::preconditions::Preconditions;
use crate::http::{document, writing};

/// How many of those who refer to an object are named in a refusal.
const REFERRERS: i64 = 5;

pub(super) async fn put<K: Declared>(
    State(app): State<App>,
    Writer(actor, _): Writer<K>,
    Path(name): Path<String>,
    preconditions: Preconditions,
    Document { typed: draft, raw }: Document<Draft<K>>,
) -> Result<Answer, Error> {
    writing::write(&app, &actor, async |conn| {
        let current = db::objects::find_for_update(conn, K::KIND, &name).await?;
        preconditions.allow_write(current.as_ref().map(|row| row.generation))?;
        write(&app, conn, &actor, (&name, current), draft, raw).await
    })
    .await
}

pub(super) async fn patch<K: Declared>(
    State(app): State<App>,
    Writer(actor, _): Writer<K>,
    Path(name): Path<String>,
    preconditions: Preconditions,
    Body(patch): Body,
) -> Result<Answer, Error> {
    writing::write(&app, &actor, async |conn| {
        let current = db::objects::find_for_update(conn, K::KIND, &name).await?.ok_or_else(|| missing::<K>(&name))?;
        preconditions.allow_write(Some(current.generation))?;
        let mut raw = json!({ "labels": current.labels, "annotations": current.annotations, "spec": current.spec });
        document::merge(&mut raw, &patch);
        let draft = document::typed(&raw)?;
        write::<K>(&app, conn, &actor, (&name, Some(current)), draft, raw).await
    })
    .await
}

pub(super) async fn delete<K: Declared>(
    State(app): State<App>,
    Writer(actor, _): Writer<K>,
    Path(name): Path<String>,
    preconditions: Preconditions,
) -> Result<Response, Error> {
    writing::write(&app, &actor, async |conn| {
        let row = db::objects::find_for_update(conn, K::KIND, &name)
            .await?
            .ok_or_else(|| missing::<K>(&name))?;
        preconditions.allow_removal(row.generation)?;
        let referrers = db::objects::list_referrers(conn, row.id, REFERRERS).await?;
        if !referrers.is_empty() {
            let detail = format!(
                "{} is referred to by {}; remove that first.",
                row.name,
                referrers.join(", ")
            );
            return Err(Error::conflict("in_use", detail));
        }
        db::objects::delete(conn, row.id).await?;
        record(
            conn,
            &app,
            &actor,
            ("object.removed", "removed"),
            (&row, Value::Null),
        )
        .await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Creates or replaces inside the caller's transaction.
pub(in crate::http) async fn write<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    (name, current): (&str, Option<ObjectRow>),
    draft: Draft<K>,
    raw: Value,
) -> Result<Answer, Error> {
    check_labels(&draft)?;
    refuse_faults(draft.spec.faults())?;
    let targets = resolve(conn, &draft.spec).await?;
    refuse_faults(draft.spec.faults_beside(&targets)?)?;
    let content = content(&draft, raw);
    let secret = draft.spec.secret();
    if draft
        .spec
        .references()
        .iter()
        .any(|reference| reference.kind == "credential")
    {
        actor.need_everywhere("credential.use")?;
    }
    let (row, former, told, status) = match current {
        None => {
            draft.spec.allow_actor(actor, None, &targets)?;
            let name: Name = name
                .parse()
                .map_err(|error: muster_core::values::InvalidValue| {
                    Error::invalid("name", "invalid_name", error.why)
                })?;
            let row = db::objects::insert(conn, K::KIND, name.as_str(), &content, app.clock.now())
                .await?;
            (
                row,
                None,
                ("object.created", "created"),
                StatusCode::CREATED,
            )
        }
        Some(former) => {
            if same(&former, &content) && same_secret(app, conn, &former, secret).await? {
                return answer::<K>(app, conn, former).await;
            }
            let before = document::typed::<K>(&former.spec)?;
            before.allow_change(&draft.spec)?;
            if let Some(verb) = before.loosened(&draft.spec) {
                actor
                    .need(
                        conn,
                        verb,
                        Named {
                            kind: K::KIND,
                            key: &former.id.to_string(),
                        },
                    )
                    .await?;
            }
            draft.spec.allow_actor(actor, Some(&before), &targets)?;
            let row = db::objects::set_content(conn, former.id, &content, app.clock.now()).await?;
            (
                row,
                Some(former),
                ("object.changed", "changed"),
                StatusCode::OK,
            )
        }
    };
    let refs: Vec<RefRow> = targets
        .0
        .iter()
        .map(|(pointer, to)| RefRow {
            pointer: pointer.clone(),
            to: to.id,
        })
        .collect();
    db::objects::set_refs(conn, row.id, &refs).await?;
    let verb = format!("{}.write", K::KIND);
    allow(
        conn,
        actor,
        &verb,
        Named {
            kind: K::KIND,
            key: &row.id.to_string(),
        },
    )
    .await?;
    K::allow_beside(conn, former.as_ref(), &row).await?;
    if let Some(secret) = secret {
        let sealed = app
            .keys
            .master
            .seal(&secret_place(row.id), secret.reveal().as_bytes());
        db::keys::set_secret(conn, row.id, &sealed.map_err(Error::internal)?).await?;
    }
    K::written(app, conn, &row).await?;
    record(conn, app, actor, told, (&row, draft.spec.noted())).await?;
    let location = format!("/v1/{}/{}", K::COLLECTION, row.name);
    Ok(answer::<K>(app, conn, row)
        .await?
        .status(status)
        .location(location))
}

/// The object as it is now must be theirs to write as well: what it refers to lies where they may.
async fn allow(
    conn: &mut PgConnection,
    actor: &Actor,
    verb: &str,
    object: Named<'_>,
) -> Result<(), Error> {
    match actor.need(conn, verb, object).await {
        // No word on whether it exists.
        Err(Error::NotFound(_)) => Err(Error::unprocessable(
            "/spec",
            "not_found",
            "It refers to what does not exist.",
        )),
        other => other,
    }
}

/// What is stored: the client's own words, less the secret.
fn content<K: Declared>(draft: &Draft<K>, mut raw: Value) -> Content {
    let mut spec = raw.get_mut("spec").map(Value::take).unwrap_or_default();
    if let (Some(_), Some(members)) = (draft.spec.secret(), spec.as_object_mut()) {
        members.remove("secret");
    }
    Content {
        labels: draft.labels.clone(),
        annotations: draft.annotations.clone(),
        spec,
    }
}

fn same(row: &ObjectRow, content: &Content) -> bool {
    row.labels.0 == content.labels
        && row.annotations.0 == content.annotations
        && row.spec == content.spec
}

/// Whether a write brings no other secret than the one that is stored.
async fn same_secret(
    app: &App,
    conn: &mut PgConnection,
    row: &ObjectRow,
    secret: Option<&Secret>,
) -> Result<bool, Error> {
    let Some(secret) = secret else {
        return Ok(true);
    };
    let Some(sealed) = db::keys::find_secret(conn, row.id).await? else {
        return Ok(false);
    };
    let stored = app
        .keys
        .master
        .open(&secret_place(row.id), &sealed)
        .map_err(Error::internal)?;
    Ok(
        aws_lc_rs::constant_time::verify_slices_are_equal(&stored, secret.reveal().as_bytes())
            .is_ok(),
    )
}

/// Finds what every reference names; each that names nothing is a fault of its own.
async fn resolve<K: Declared>(conn: &mut PgConnection, spec: &K) -> Result<Targets, Error> {
    let mut targets = Targets::default();
    let mut faults = Vec::new();
    for reference in spec.references() {
        match db::objects::find_for_reference(conn, reference.kind, reference.name).await? {
            Some(row) => drop(targets.0.insert(reference.pointer, row)),
            None => {
                let detail = format!(
                    "There is no {} called {:?}.",
                    reference.kind, reference.name
                );
                faults.push(fault(reference.pointer, "not_found", detail));
            }
        }
    }
    refuse_faults(faults)?;
    Ok(targets)
}

fn refuse_faults(faults: Vec<crate::error::Fault>) -> Result<(), Error> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}

fn check_labels<S>(draft: &Draft<S>) -> Result<(), Error> {
    refuse_faults(super::label_faults(&draft.labels, &draft.annotations))
}

async fn record(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (kind, verb): (&'static str, &str),
    (row, noted): (&ObjectRow, Value),
) -> Result<(), Error> {
    let summary = format!("{} {} {verb}", row.kind.replace('_', " "), row.name);
    let event = actor.event(app.clock.now(), kind, None, summary);
    let mut detail = json!({ "kind": row.kind, "name": row.name, "generation": row.generation });
    if let (Some(detail), Value::Object(noted)) = (detail.as_object_mut(), noted) {
        detail.extend(noted);
    }
    let event = event.with(detail);
    db::events::insert(conn, event.about(row.id)).await
}
