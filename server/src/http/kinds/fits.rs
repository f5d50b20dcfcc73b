//! Checks that the suites of a pool measure a result on nodes of the pool's hardware profile. A
//! suite may leave a threshold to the profile. The profile must then have the threshold, and the
//! parser must have been tested with the output of the real tool. Existing faults do not block
//! other changes; only new faults are rejected.

use muster_api::pools::PoolSpec;
use muster_core::gates::{Suite, lint_with};
use muster_core::profiles::HardwareProfile;
use serde::de::DeserializeOwned;
use sqlx::PgConnection;

use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::{Declared as _, Targets};

/// The members of a pool with a suite.
const SUITES: [&str; 3] = ["/spec/suite", "/spec/health/smoke", "/spec/health/sweep"];
const PROFILE: &str = "/spec/profile";
/// The largest number of faults reported for a suite. Further faults appear after the first are
/// fixed.
const MOST: usize = 10;

/// Rejects a newly written pool whose suites do not fit its profile.
///
/// # Errors
/// 422 naming each suite; when the database fails.
pub(super) async fn check_pool(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    pool: &ObjectRow,
) -> Result<(), Error> {
    let former = match before {
        Some(before) => load_targets(conn, before).await?,
        None => Targets::default(),
    };
    refuse(list_new_faults(&load_targets(conn, pool).await?, &former))
}

/// Rejects a newly written suite or profile that does not fit a pool with a reference to it.
///
/// # Errors
/// 422 naming each pool; when the database fails.
pub(super) async fn check_pools(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    written: &ObjectRow,
) -> Result<(), Error> {
    // A new object has no references to it yet.
    let Some(before) = before else { return Ok(()) };
    let mut wrong = Vec::new();
    for pool in db::objects::list_referring_pools(conn, written.id).await? {
        let targets = load_targets(conn, &pool).await?;
        let mut former = targets.clone();
        former
            .0
            .values_mut()
            .filter(|target| target.id == before.id)
            .for_each(|target| target.clone_from(before));
        let told = |found: Fault| {
            fault(
                "/spec",
                found.code,
                format!("The pool {} uses it. {}", pool.name, found.detail),
            )
        };
        wrong.extend(list_new_faults(&targets, &former).into_iter().map(told));
    }
    refuse(wrong)
}

/// Loads the suites and the profile of a pool. Empty where the pool's stored spec is unreadable.
async fn load_targets(conn: &mut PgConnection, pool: &ObjectRow) -> Result<Targets, Error> {
    let mut targets = Targets::default();
    let Ok(spec) = document::stored::<PoolSpec>(pool) else {
        return Ok(targets);
    };
    for reference in spec.references() {
        if reference.pointer == PROFILE || SUITES.contains(&reference.pointer.as_str()) {
            let target = db::objects::find(conn, reference.kind, reference.name).await?;
            targets
                .0
                .extend(target.map(|target| (reference.pointer, target)));
        }
    }
    Ok(targets)
}

/// The spec of a target; `None` for an unreadable one, because an invalid stored row must not block
/// the repair of another.
fn read_target<T: DeserializeOwned>(targets: &Targets, pointer: &str) -> Option<T> {
    targets.spec(pointer).ok().flatten()
}

/// Lists new faults of a pool's suites on its profile, each with the pointer to the suite in the
/// pool. Faults of the former state are left out.
fn list_new_faults(targets: &Targets, former: &Targets) -> Vec<Fault> {
    let Some(profile) = read_target::<HardwareProfile>(targets, PROFILE) else {
        return Vec::new();
    };
    let its_former = read_target::<HardwareProfile>(former, PROFILE);
    let mut faults = Vec::new();
    for pointer in SUITES {
        let Some(suite) = read_target::<Suite>(targets, pointer) else {
            continue;
        };
        let before = read_target::<Suite>(former, pointer).zip(its_former.as_ref());
        let known = before
            .map(|(suite, profile)| lint_with(&suite, profile))
            .unwrap_or_default();
        let told = |problem: String| {
            let detail = format!(
                "The suite {} on nodes of {}: {problem}.",
                suite.name, profile.model
            );
            fault(pointer, "unsound_gate", detail)
        };
        let new = lint_with(&suite, &profile)
            .into_iter()
            .filter(|problem| !known.contains(problem));
        faults.extend(new.take(MOST).map(told));
    }
    faults
}

fn refuse(wrong: Vec<Fault>) -> Result<(), Error> {
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(wrong)),
    }
}
