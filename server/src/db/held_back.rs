//! Jobs with an order format unknown to every agent of their site.

use muster_core::ids::{JobId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::steps::Step;
use sqlx::PgConnection;

use crate::error::Error;

/// A job not leased to any agent.
#[derive(Clone, Debug)]
pub struct HeldBackRow {
    pub id: JobId,
    pub node: NodeId,
    pub node_name: String,
    pub operation: Option<OperationId>,
    pub step: Step,
}

/// Records a wait condition on the queued jobs of a site with a step outside `steps`. Returns the
/// jobs changed by this call.
pub async fn note(
    conn: &mut PgConnection,
    site: ObjectId,
    steps: &[String],
    awaited: &str,
) -> Result<Vec<HeldBackRow>, Error> {
    Ok(sqlx::query_as!(
        HeldBackRow,
        r#"UPDATE jobs j SET waiting_for = $3 FROM nodes n
           WHERE j.site_id = $1 AND j.state = 'queued' AND j.step <> ALL ($2) AND j.waiting_for IS DISTINCT FROM $3 AND n.id = j.node_id
           RETURNING j.id AS "id: JobId", j.node_id AS "node: NodeId", n.name AS node_name, j.operation_id AS "operation: OperationId", j.step"#,
        site as ObjectId,
        steps,
        awaited,
    )
    .fetch_all(conn)
    .await?)
}
