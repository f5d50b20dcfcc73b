//! Whether the suites of a pool say anything on nodes of its profile. A profile may require what a suite leaves open: then it must have the threshold, and
//! the parser must have read the real tool.

use muster_core::gates::{Suite, lint_with};
use muster_core::profiles::HardwareProfile;
use sqlx::PgConnection;

use crate::db;
use crate::db::objects::ObjectRow;
use crate::error::{Error, Fault};
use crate::http::declared::{Targets, fault};

/// Where a pool names its suites.
const SUITES: [&str; 3] = ["/spec/suite", "/spec/health/smoke", "/spec/health/sweep"];
const PROFILE: &str = "/spec/profile";
/// Faults that are told of one suite: who mends these sees the others next.
const MOST: usize = 10;

/// What is wrong with a pool's suites on its profile, each where the pool names the suite.
///
/// # Errors
/// When a target cannot be read any more.
pub(super) fn faults(targets: &Targets) -> Result<Vec<Fault>, Error> {
    let Some(profile) = targets.spec::<HardwareProfile>(PROFILE)? else { return Ok(Vec::new()) };
    let mut faults = Vec::new();
    for pointer in SUITES {
        let Some(suite) = targets.spec::<Suite>(pointer)? else { continue };
        let told = |problem: String| {
            let detail = format!("The suite {} on nodes of {}: {problem}.", suite.name, profile.model);
            fault(pointer, "unsound_gate", detail)
        };
        faults.extend(lint_with(&suite, &profile).into_iter().take(MOST).map(told));
    }
    Ok(faults)
}

/// Refuses a suite or a profile, as it was just written, that does not fit a pool which names it.
///
/// # Errors
/// 422 with the pool; when the database fails.
pub(super) async fn check_pools(conn: &mut PgConnection, written: &ObjectRow) -> Result<(), Error> {
    let mut wrong = Vec::new();
    for pool in db::objects::list_referring_pools(conn, written.id).await? {
        let mut targets = Targets::default();
        for pointer in SUITES.into_iter().chain([PROFILE]) {
            let target = db::objects::find_target(conn, pool.id, pointer).await?;
            targets.0.extend(target.map(|target| (pointer.to_owned(), target)));
        }
        let told =
            |found: Fault| fault("/spec", found.code, format!("The pool {} uses it. {}", pool.name, found.detail));
        wrong.extend(faults(&targets)?.into_iter().map(told));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(wrong)),
    }
}
