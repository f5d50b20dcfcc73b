//! The steps of a node's stay in a state, read from the jobs of the stay.

use muster_core::ids::{JobId, NodeId, OperationId};
use muster_core::lifecycle::snapshot::{StepStatus, StepView};
use muster_core::lifecycle::steps::JobState;
use muster_core::wire::node::Failure;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// A step of a stay, with the result.
#[derive(Clone, Debug)]
pub struct StayStep {
    pub id: JobId,
    pub view: StepView,
    pub result: Option<JobResult>,
}

/// Lists the steps of a node's stay, oldest first. Steps of the current operation are marked.
///
/// # Errors
/// When a column of a row has an invalid value.
pub async fn list(
    conn: &mut PgConnection,
    node: NodeId,
    visit: i64,
    operation: Option<OperationId>,
) -> Result<Vec<StayStep>, Error> {
    let rows = sqlx::query!(
        r#"SELECT id AS "id: JobId", operation_id AS "operation: OperationId", step, round, state, waiting_for, started_at, finished_at,
                  result AS "result: Json<JobResult>", failure AS "failure: Json<Failure>"
           FROM jobs WHERE node_id = $1 AND visit = $2 AND NOT superseded ORDER BY id"#,
        node as NodeId,
        visit,
    )
    .fetch_all(conn)
    .await?;
    let mut steps = Vec::with_capacity(rows.len());
    for row in rows {
        let impossible =
            |what: &str| Error::internal(anyhow::anyhow!("jobs row {}: {what}", row.id));
        let status = match row.state {
            // A started round is queued again, because the worker went silent.
            JobState::Queued if row.started_at.is_some() => StepStatus::Lost,
            JobState::Queued => StepStatus::Queued,
            JobState::Leased => StepStatus::Running {
                waiting_for: row.waiting_for,
            },
            JobState::Succeeded => StepStatus::Succeeded,
            JobState::Cancelled => StepStatus::Cancelled,
            JobState::Failed => StepStatus::Failed {
                at: row
                    .finished_at
                    .ok_or_else(|| impossible("failed without an end"))?
                    .to_jiff(),
                failure: row
                    .failure
                    .ok_or_else(|| impossible("failed without a failure"))?
                    .0,
            },
        };
        let view = StepView {
            step: row.step,
            round: row.round,
            current: row.operation == operation,
            status,
        };
        steps.push(StayStep {
            id: row.id,
            view,
            result: row.result.map(|json| json.0),
        });
    }
    Ok(steps)
}
