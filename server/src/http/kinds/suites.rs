//! Suites. A suite is rejected when a gate could pass without a measurement, or starts a program
//! outside of the allowed programs.

use muster_core::gates::{Suite, lint_accepted, lint_program};
use sqlx::PgConnection;

use super::fits;
use crate::db::objects::ObjectRow;
use crate::document::{self, fault};
use crate::error::{Error, Fault};
use crate::http::declared::Declared;

const UNSOUND: &str = "unsound_gate";

impl Declared for Suite {
    fn faults(&self) -> Vec<Fault> {
        lint_accepted(self, |_| true)
            .into_iter()
            .map(|problem| fault("/spec/gates", UNSOUND, problem))
            .collect()
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        if before.is_none_or(|before| before.spec != row.spec) {
            check_programs(row)?;
        }
        fits::check_pools(conn, before, row).await
    }
}

/// Refuses programs outside of the allowed programs. A suite stored before the rule goes on while
/// the spec stays the same.
fn check_programs(row: &ObjectRow) -> Result<(), Error> {
    let suite: Suite = document::stored(row)?;
    let faults: Vec<Fault> = suite
        .gates
        .iter()
        .flat_map(|gate| {
            let problems = lint_program(gate).into_iter();
            problems.map(move |why| fault("/spec/gates", UNSOUND, format!("{}: {why}", gate.id)))
        })
        .collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}
