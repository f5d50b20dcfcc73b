//! Suites stored before the rule of programs. Nodes run the gates of such suites as before.

use muster_core::gates::{Gate, Suite};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// Lists the gates of all suites stored before the rule. An unreadable suite has no gates.
pub async fn list_gates(conn: &mut PgConnection) -> Result<Vec<Gate>, Error> {
    let specs = sqlx::query_scalar!(
        r#"SELECT spec AS "spec: Json<Value>" FROM former_suites ORDER BY suite_id"#
    )
    .fetch_all(conn)
    .await?;
    let suites = specs
        .into_iter()
        .filter_map(|spec| serde_json::from_value::<Suite>(spec.0).ok());
    Ok(suites.flat_map(|suite| suite.gates).collect())
}
