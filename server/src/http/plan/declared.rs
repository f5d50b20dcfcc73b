//! Plans of declared kinds.

use muster_api::kind::Kind as _;
use muster_api::object::Draft;
use muster_api::plans::{Desired, PlannedObject};
use muster_api::pools::PoolSpec;
use serde_json::json;
use sqlx::PgConnection;

use super::reach::{self, Reach};
use super::{Change, diff, plan_parts, planned};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::document::Document;
use crate::error::Error;
use crate::http::declared::{self, Declared};

/// Plans an object of a declared kind.
pub(super) async fn plan_declared<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    let verb = format!("{}.write", K::KIND);
    actor.need_somewhere(&verb)?;
    let before = db::objects::find_for_update(conn, K::KIND, &object.name).await?;
    if let Some(row) = &before {
        declared::write::allow_write::<K>(conn, actor, row).await?;
    }
    let (generation, spec) = (
        before.as_ref().map(|row| row.generation),
        before
            .as_ref()
            .map(|row| declared::read::shown::<K>(row.spec.clone())),
    );
    let was = before.as_ref().zip(spec.as_ref());
    let was = was.map(|(row, spec)| plan_parts(&json!(row.labels), &json!(row.annotations), spec));
    let raw = plan_parts(
        &json!(object.labels),
        &json!(object.annotations),
        &object.spec,
    );
    let document = Document::<Draft<K>>::read(raw)?;
    // Read the reach before the write, because the write replaces the references of the former
    // spec.
    let reach = Reach::of(conn, K::KIND, spec.as_ref(), &object.spec).await?;
    let answer = declared::write::write(app, conn, actor, &object.name, before, document).await?;
    let written = &answer.body;
    let is = plan_parts(
        &written["labels"],
        &written["annotations"],
        &written["spec"],
    );
    let mut differences = diff::list_differences(was.as_ref(), &is);
    let change = match generation {
        None => Change::Created,
        Some(before) if written["generation"].as_i64() != Some(before) => Change::Changed,
        Some(_) => Change::Unchanged,
    };
    if change == Change::Changed && differences.is_empty() {
        // Only a secret can differ without a visible difference.
        differences = diff::list_differences(
            Some(&json!({ "spec": {} })),
            &json!({ "spec": { "secret": "changed" } }),
        );
    }
    let mut planned = planned(object, change, differences);
    if change == Change::Changed {
        let id = written["id"].as_str().unwrap_or_default();
        planned = reach.complete(conn, actor, id, planned).await?;
    }
    match change != Change::Unchanged && K::KIND == PoolSpec::KIND {
        true => reach::add_new_claims(conn, actor, planned).await,
        false => Ok(planned),
    }
}
