//! The new SSH user CA in orders, during a rotation. The success of such an order shows that the
//! node trusts the new CA.

use muster_core::wire::job::{Job, JobSpec};
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::keys::rings::{bare_line, ca_id};

/// Records whether an order, in the form that the agent reads, gives the node the new CA.
///
/// # Errors
///
/// When the database fails, or a key cannot be opened.
pub(super) async fn record_offer(
    app: &App,
    conn: &mut PgConnection,
    job: &Job,
) -> anyhow::Result<()> {
    if !writes_ca(&job.spec) {
        return Ok(());
    }
    let Some(next) = app.keys.open_user_cas(conn).await?.next else {
        return Ok(());
    };
    // An earlier agent writes the former CA alone, in the place of both.
    match carries(&job.spec, &bare_line(&next)?) {
        true => db::taken_keys::offer_ca(conn, job.node, job.id, &ca_id(&next)?).await?,
        false => _ = db::taken_keys::withdraw_ca(conn, job.node).await?,
    }
    Ok(())
}

fn writes_ca(spec: &JobSpec) -> bool {
    matches!(spec, JobSpec::Converge { plan, .. } if !plan.dry_run)
        || matches!(spec, JobSpec::Adopt(_))
}

fn carries(spec: &JobSpec, ca: &str) -> bool {
    matches!(spec, JobSpec::Converge { plan, .. } if plan.user_ca.contains(ca))
        || matches!(spec, JobSpec::Adopt(adopt) if adopt.trust.contains(ca))
}
