//! The disks to erase: all disks of the newest inspection.

use muster_core::facts::Facts;
use muster_core::wire::job::JobSpec;
use muster_core::wire::node::WipePlan;
use sqlx::PgConnection;

use super::logins;
use super::sources::{Sources, find_facts, operation, permit};
use crate::db;

pub(super) async fn order(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::Wipe {
        login: logins::need_live(conn, s).await?,
        plan: WipePlan {
            permit: permit(s)?,
            operation: operation(s)?,
            claim: db::specs::find_last_claim(conn, s.row.node).await?,
            disk_serials: list_serials(find_facts(conn, s).await?),
        },
    })
}

fn list_serials(facts: Facts) -> Vec<String> {
    let mut serials: Vec<String> = facts
        .disks
        .into_iter()
        .filter_map(|disk| disk.serial)
        .collect();
    serials.sort();
    serials
}
