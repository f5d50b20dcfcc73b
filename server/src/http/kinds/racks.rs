//! Racks.

use muster_api::racks::RackSpec;
use muster_core::cabling;
use sqlx::PgConnection;

use super::{dependents, residents};
use crate::auth::Actor;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, Reference};
use crate::intents::references::Table;

/// The largest number of faults reported for a plan. Further faults appear after the first are
/// fixed.
const FAULTS_MAX: usize = 20;

impl Declared for RackSpec {
    const REFERENCES: Table = &[("/spec/site", "site")];

    fn references(&self) -> Vec<Reference<'_>> {
        vec![Reference::new("/spec/site", "site", &self.site)]
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !(1..=60).contains(&self.units) {
            faults.push(fault("/spec/units", "out_of_range", "1 to 60 U"));
        }
        if self.power_budget_w > 1_000_000 {
            faults.push(fault(
                "/spec/power_budget_w",
                "out_of_range",
                "at most 1,000,000 W",
            ));
        }
        if self.cables.len() > cabling::CABLES_MAX {
            let most = format!("at most {} cables", cabling::CABLES_MAX);
            faults.push(fault("/spec/cables", "too_many", &most));
        } else {
            let wrong = cabling::lint(&self.cables).into_iter().take(FAULTS_MAX);
            faults.extend(
                wrong.map(|(at, why)| fault(format!("/spec/cables/{at}"), "invalid", &why)),
            );
        }
        faults
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let advice = "move each node with `muster node move` first";
        residents::keep_place(conn, before, row, "site", advice).await
    }

    async fn allow_dependents(
        conn: &mut PgConnection,
        actor: &Actor,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        match before {
            Some(before) => dependents::racks::keep_units(conn, actor, before, row).await,
            None => Ok(()),
        }
    }
}
