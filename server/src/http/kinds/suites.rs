//! Suites. A suite is rejected when a gate could pass without a measurement.

use muster_core::gates::{Suite, lint};
use sqlx::PgConnection;

use super::fits;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::Declared;

impl Declared for Suite {
    fn faults(&self) -> Vec<Fault> {
        lint(self)
            .into_iter()
            .map(|problem| fault("/spec/gates", "unsound_gate", problem))
            .collect()
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        fits::check_pools(conn, before, row).await
    }
}
