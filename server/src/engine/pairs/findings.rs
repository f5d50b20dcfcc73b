//! The result of a run in a sentence, and the blamed nodes.

use muster_core::fabric::{EndVerdict, Verdicts};
use serde_json::json;
use sqlx::PgConnection;

use super::run::{Run, cut, pair_of};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::pairs::runs::Ending;
use crate::error::Error;

/// The result of a run, in a sentence.
pub(super) fn describe_result(run: &Run<'_>, how: Ending, found: &Verdicts) -> String {
    let (count, names) = (run.trials.len(), run.names());
    let sentences = found.sentences(&names);
    let result = if how == Ending::TooFew {
        "fewer than two idle nodes could be held: `muster pool pairs` shows the reasons".to_owned()
    } else if !sentences.is_empty() {
        sentences.join("; ")
    } else if count == 0 {
        "no pair was measured".to_owned()
    } else {
        format!("{count} pairs of {} nodes: no fault found", names.len())
    };
    cut(&if how == Ending::Overdue {
        format!("the time limit was reached; {result}")
    } else {
        result
    })
}

/// Stores the gate and the sentence of each blamed node for the node's next pass. A blamed path is
/// only shown.
pub(super) async fn blame_ends(
    conn: &mut PgConnection,
    run: &Run<'_>,
    found: &Verdicts,
    names: &[String],
) -> Result<(), Error> {
    for (at, end) in run.measured().into_iter().enumerate() {
        let (EndVerdict::Blamed { with }, Some(node)) = (&found.ends[at], end.node) else {
            continue;
        };
        let mut own = run.trials.iter().filter(|trial| pair_of(trial).has(at));
        let gate = own
            .find_map(|trial| trial.gate.as_deref())
            .unwrap_or("pairs");
        let partners: Vec<&str> = with
            .iter()
            .filter_map(|end| names.get(*end))
            .map(String::as_str)
            .collect();
        let what = format!(
            "gate {gate}: the node fails with {}, which pass with others",
            partners.join(", ")
        );
        if end.left_out.is_none() {
            db::pairs::ends::blame(conn, run.row.id, &end.name, gate, &what).await?;
        }
        let summary = format!("{}: {what}", end.name);
        let event = NewEvent::node(run.now, "muster", "pairs.blamed", node, summary)
            .under(Some(run.row.id));
        let detail =
            json!({ "run": run.row.id, "pool": run.row.pool_name, "gate": gate, "with": partners });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(())
}
