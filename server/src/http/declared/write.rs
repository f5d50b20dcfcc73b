//! Writes of declared objects. All checks without side effects run before the first row changes,
//! and all changes are in one transaction.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use muster_api::object::Draft;
use muster_core::values::{InvalidValue, Name, Secret};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::read::{answer, not_found};
use super::referrers::describe_referrers;
use super::{Declared, Reference, SECRET, Targets, Writer};
use crate::access;
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::auth::kept;
use crate::db;
use crate::db::objects::{Content, ObjectRow, RefRow};
use crate::document::{self, Document, label_faults};
use crate::engine::orders::secret_place;
use crate::error::Error;
use crate::http::extract::{Body, Path};
use crate::intents::answer::Answer;
use crate::intents::preconditions::Preconditions;
use crate::intents::references::{Referrer, missing_fault};
use crate::intents::revisions;
use crate::intents::writing;

pub(super) async fn put<K: Declared>(
    State(app): State<App>,
    Writer(actor, _): Writer<K>,
    Path(name): Path<String>,
    preconditions: Preconditions,
    document: Document<Draft<K>>,
) -> Result<Answer, Error> {
    writing::write(&app, &actor, async |conn| {
        let current = db::objects::find_for_update(conn, K::KIND, &name).await?;
        preconditions.allow_write(current.as_ref().map(|row| row.generation))?;
        write(&app, conn, &actor, &name, current, document).await
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
        let current = db::objects::find_for_update(conn, K::KIND, &name).await?.ok_or_else(|| not_found::<K>(&name))?;
        preconditions.allow_write(Some(current.generation))?;
        let mut raw = json!({ "labels": current.labels, "annotations": current.annotations, "spec": current.spec });
        document::merge(&mut raw, &patch);
        let document = Document::<Draft<K>>::read(raw)?;
        write(&app, conn, &actor, &name, Some(current), document).await
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
            .ok_or_else(|| not_found::<K>(&name))?;
        allow_write::<K>(conn, &actor, &row).await?;
        preconditions.allow_removal(row.generation)?;
        if let Some(referrers) = describe_referrers(conn, &actor, row.id).await? {
            let detail = format!(
                "{} is referred to by {referrers}; remove that first.",
                row.name
            );
            return Err(Error::conflict("in_use", detail));
        }
        let verb = format!("{}.write", K::KIND);
        let key = row.id.to_string();
        let object = Named {
            kind: K::KIND,
            key: &key,
        };
        kept::note_use(conn, &actor, &verb, object, app.clock.now()).await?;
        db::objects::delete(conn, row.id).await?;
        record(&app, conn, &actor, Done::Removed, &row, Value::Null).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A checked write of an object.
struct Change<K> {
    spec: K,
    content: Content,
    targets: Targets,
}

/// Creates or replaces an object inside the caller's transaction.
pub(in crate::http) async fn write<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    name: &str,
    current: Option<ObjectRow>,
    document: Document<Draft<K>>,
) -> Result<Answer, Error> {
    if let Some(former) = &current {
        allow_write::<K>(conn, actor, former).await?;
    }
    let former_spec = current.as_ref().map(|former| &former.spec);
    let change = check_change(conn, actor, former_spec, document).await?;
    let Some(former) = current else {
        let row = create(app, conn, actor, name, &change).await?;
        write_rows(app, conn, actor, None, &row, &change).await?;
        let location = format!("/v1/{}/{}", K::COLLECTION, row.name);
        let answer = answer::<K>(app, conn, row).await?;
        return Ok(answer.status(StatusCode::CREATED).location(location));
    };
    if is_unchanged(&former, &change.content)
        && same_secret(app, conn, &former, change.spec.secret()).await?
    {
        return answer::<K>(app, conn, former).await;
    }
    let row = replace(app, conn, actor, &former, &change).await?;
    write_rows(app, conn, actor, Some(&former), &row, &change).await?;
    let location = format!("/v1/{}/{}", K::COLLECTION, row.name);
    Ok(answer::<K>(app, conn, row).await?.location(location))
}

/// Checks that the actor may write the stored object. The route has checked the same without a
/// lock. Labels are no place: an object outside of every site belongs to the whole fleet.
pub(in crate::http) async fn allow_write<K: Declared>(
    conn: &mut PgConnection,
    actor: &Actor,
    row: &ObjectRow,
) -> Result<(), Error> {
    let verb = write_verb::<K>();
    let (kind, key) = (K::KIND, row.name.as_str());
    match access::has_place(kind) {
        true => actor.need(conn, &verb, Named { kind, key }).await,
        false => actor.need_everywhere(&verb),
    }
}

fn write_verb<K: Declared>() -> String {
    format!("{}.write", K::KIND)
}

/// Runs the checks before the first row changes. Of the stored object, the references count.
async fn check_change<K: Declared>(
    conn: &mut PgConnection,
    actor: &Actor,
    former: Option<&Value>,
    document: Document<Draft<K>>,
) -> Result<Change<K>, Error> {
    let (draft, raw) = document.into_parts();
    check_labels(&draft)?;
    refuse_faults(draft.spec.faults())?;
    let referrer = Referrer::new(actor, write_verb::<K>(), K::REFERENCES, former);
    let targets = resolve(conn, &referrer, &draft.spec).await?;
    refuse_faults(draft.spec.faults_beside(&targets)?)?;
    let references = draft.spec.references();
    if references.iter().any(|one| one.kind == "credential") {
        actor.need_everywhere("credential.use")?;
    }
    let content = stored_content(&draft, raw);
    Ok(Change {
        spec: draft.spec,
        content,
        targets,
    })
}

async fn create<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    name: &str,
    change: &Change<K>,
) -> Result<ObjectRow, Error> {
    change.spec.allow_actor(actor, None, &change.targets)?;
    let wrong = |error: InvalidValue| Error::invalid("name", "invalid_name", error.why);
    let name: Name = name.parse().map_err(wrong)?;
    let now = app.clock.now();
    db::objects::insert(conn, K::KIND, name.as_str(), &change.content, now).await
}

/// Replaces the content. An unreadable former spec is repaired by the write: the rules for a new
/// object then apply.
async fn replace<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    former: &ObjectRow,
    change: &Change<K>,
) -> Result<ObjectRow, Error> {
    let before: Option<K> = document::stored(former).ok();
    if let Some(before) = &before {
        before.allow_change(&change.spec)?;
    }
    for verb in list_loosened(before.as_ref(), &change.spec) {
        let (kind, key) = (K::KIND, former.name.as_str());
        let object = Named { kind, key };
        actor.need(conn, verb, object).await?;
        kept::note_use(conn, actor, verb, object, app.clock.now()).await?;
    }
    change
        .spec
        .allow_actor(actor, before.as_ref(), &change.targets)?;
    db::objects::set_content(conn, former.id, &change.content, app.clock.now()).await
}

/// The additional permissions for a change. The rules of an unreadable former spec are unknown.
fn list_loosened<K: Declared>(before: Option<&K>, new: &K) -> Vec<&'static str> {
    match before {
        Some(before) => before.loosened(new),
        None => K::LOOSENING.to_vec(),
    }
}

/// Writes the rows of an object: references, secret, rows of its kind and the event. Rejects an
/// object in conflict with the objects around it.
async fn write_rows<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    former: Option<&ObjectRow>,
    row: &ObjectRow,
    change: &Change<K>,
) -> Result<(), Error> {
    let reference = |(pointer, to): (&String, &ObjectRow)| RefRow {
        pointer: pointer.clone(),
        to: to.id,
    };
    let refs: Vec<RefRow> = change.targets.0.iter().map(reference).collect();
    db::objects::set_refs(conn, row.id, &refs).await?;
    allow_written(app, conn, actor, former, row, change).await?;
    K::allow_beside(conn, former, row).await?;
    K::allow_dependents(conn, actor, former, row).await?;
    if let Some(secret) = change.spec.secret() {
        let place = secret_place(row.id);
        let sealed = app.keys.master.seal(&place, secret.reveal().as_bytes());
        db::keys::set_secret(conn, row.id, &sealed.map_err(Error::internal)?).await?;
    }
    K::written(app, conn, row).await?;
    if K::IN_REVISIONS {
        let pools = db::plans::list_pools(conn, row.id).await?;
        revisions::propose(conn, actor, &pools, app.clock.now()).await?;
    }
    let done = former.map_or(Done::Created, |_| Done::Changed);
    record(app, conn, actor, done, row, change.spec.noted()).await
}

/// Checks that the actor may write the object at the place after the write. New references bring a
/// new place.
async fn allow_written<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    former: Option<&ObjectRow>,
    row: &ObjectRow,
    change: &Change<K>,
) -> Result<(), Error> {
    let write = write_verb::<K>();
    let (kind, key) = (K::KIND, row.name.as_str());
    let object = Named { kind, key };
    let mut verbs = vec![write.as_str()];
    match former {
        None => verbs.extend(change.spec.opened()),
        Some(former) => {
            let before: Option<K> = document::stored(former).ok();
            verbs.extend(list_loosened(before.as_ref(), &change.spec));
        }
    }
    for verb in verbs {
        match former {
            _ if !access::has_place(kind) => actor.need_everywhere(verb)?,
            None => actor.need_created(conn, verb, object).await?,
            Some(_) => actor.need_changed(conn, verb, object).await?,
        }
        kept::note_use(conn, actor, verb, object, app.clock.now()).await?;
    }
    Ok(())
}

/// The stored content: the client's document without the secret.
fn stored_content<K: Declared>(draft: &Draft<K>, mut raw: Value) -> Content {
    let mut spec = raw.get_mut("spec").map(Value::take).unwrap_or_default();
    if let (Some(_), Some(members)) = (draft.spec.secret(), spec.as_object_mut()) {
        members.remove(SECRET);
    }
    Content {
        labels: draft.labels.clone(),
        annotations: draft.annotations.clone(),
        spec,
    }
}

fn is_unchanged(row: &ObjectRow, content: &Content) -> bool {
    row.labels.0 == content.labels
        && row.annotations.0 == content.annotations
        && row.spec == content.spec
}

/// Whether the secret of a write equals the stored one, or is absent.
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

/// Finds the object of every reference. Each missing object adds a fault, and so does an object
/// hidden from the actor: the answer must not reveal whether the target exists.
async fn resolve<K: Declared>(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    spec: &K,
) -> Result<Targets, Error> {
    let mut targets = Targets::default();
    let mut faults = Vec::new();
    for Reference {
        pointer,
        kind,
        name,
    } in spec.references()
    {
        match referrer.find(conn, &pointer, kind, name).await? {
            Some(row) => drop(targets.0.insert(pointer, row)),
            None => faults.push(missing_fault(pointer, kind, name)),
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
    refuse_faults(label_faults(&draft.labels, &draft.annotations))
}

/// The effect of a write on an object.
#[derive(Clone, Copy, Debug)]
enum Done {
    Created,
    Changed,
    Removed,
}

impl Done {
    /// The kind of the event, and the verb of its summary.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Created => ("object.created", "created"),
            Self::Changed => ("object.changed", "changed"),
            Self::Removed => ("object.removed", "removed"),
        }
    }
}

async fn record(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    done: Done,
    row: &ObjectRow,
    noted: Value,
) -> Result<(), Error> {
    let (kind, verb) = done.words();
    let summary = format!("{} {} {verb}", row.kind.replace('_', " "), row.name);
    let event = actor.event(app.clock.now(), kind, None, summary);
    let mut detail = json!({ "kind": row.kind, "name": row.name, "generation": row.generation });
    if let (Some(detail), Value::Object(noted)) = (detail.as_object_mut(), noted) {
        detail.extend(noted);
    }
    let event = event.with(detail);
    db::events::insert(conn, event.about(row.id)).await
}
