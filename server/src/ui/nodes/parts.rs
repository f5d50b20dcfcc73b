//! Components by serial, with their replacements.

use axum::extract::State;
use axum::response::Redirect;
use jiff::Timestamp;
use muster_api::nodes::{ReplaceParts, ReplacedPart};
use serde::Deserialize;

use super::facts::Table;
use crate::app::App;
use crate::auth::Actor;
use crate::db::components::ComponentRow;
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::parts;
use crate::ui::format;

/// Most rows of the table. Further components are available by the API.
const MOST: usize = 256;

/// A part installed in the node.
pub(super) struct PartIn {
    pub kind: String,
    pub serial: String,
}

pub(super) fn parts_in(rows: &[ComponentRow]) -> Vec<PartIn> {
    let inside = rows
        .iter()
        .filter(|row| row.replaced_at.is_none())
        .take(MOST);
    inside
        .map(|row| PartIn {
            kind: row.kind.to_string(),
            serial: row.serial.clone(),
        })
        .collect()
}

pub(super) fn table(rows: &[ComponentRow]) -> Table {
    let day = |at: Timestamp| at.strftime("%F").to_string();
    let row = |row: &ComponentRow| {
        let text = |value: &Option<String>| format::cut(value.as_deref().unwrap_or("–"), 60);
        let out = row.replaced_at.map(|at| {
            let because = row
                .replaced_reason
                .as_ref()
                .map(|why| format!(": {why}"))
                .unwrap_or_default();
            format!(
                "{} by {}{because}",
                day(at.to_jiff()),
                text(&row.replaced_by)
            )
        });
        vec![
            row.kind.to_string(),
            text(&row.slot),
            format::cut(&row.serial, 60),
            text(&row.model),
            day(row.first_seen),
            day(row.last_seen),
            format::cut(&out.unwrap_or_else(|| "–".to_owned()), 200),
        ]
    };
    let out = rows.iter().filter(|row| row.replaced_at.is_some()).count();
    let counted = format::count_rows(rows.len(), MOST);
    let title = match out {
        0 => format!("{counted} parts"),
        out => format!("{counted} parts, {out} of them replaced"),
    };
    Table {
        title,
        heads: vec![
            "Kind",
            "Slot",
            "Serial",
            "Model",
            "First seen",
            "Last seen",
            "Replaced",
        ],
        rows: rows.iter().take(MOST).map(row).collect(),
    }
}

/// The fields of the form.
#[derive(Debug, Deserialize)]
pub(in crate::ui) struct Replaced {
    /// Kind and serial of the old part.
    part: String,
    new: String,
    reason: String,
}

/// Records a replaced part, as `POST /v1/nodes/{node}/actions/replace-parts` does.
pub(in crate::ui) async fn replace_part(
    State(app): State<App>,
    actor: Actor,
    Path(node): Path<String>,
    Form(form): Form<Replaced>,
) -> Result<Redirect, Error> {
    let wrong = || {
        Error::unprocessable(
            "part",
            "not_found",
            "A kind and a serial, as the page shows them.",
        )
    };
    let (kind, old) = form.part.split_once(':').ok_or_else(wrong)?;
    let part = ReplacedPart {
        kind: kind.parse().map_err(|_| wrong())?,
        old: old.into(),
        new: form.new,
    };
    let body = ReplaceParts {
        reason: form.reason,
        parts: vec![part],
    };
    parts::replace(&app, &actor, &node, IdempotencyKey::none(), &body).await?;
    Ok(Redirect::to(&format!("/nodes/{node}#parts")))
}
