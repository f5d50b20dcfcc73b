//! Whether the suites of a pool say anything on nodes of its profile. A profile may require what a suite leaves open: then it must have the threshold, and
//! the parser must have read the real tool. What did not fit before keeps nobody from changing something else: only what is made worse is refused.

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

/// Where a pool names its suites.
const SUITES: [&str; 3] = ["/spec/suite", "/spec/health/smoke", "/spec/health/sweep"];
const PROFILE: &str = "/spec/profile";
/// Faults that are told of one suite: who mends these sees the others next.
const MOST: usize = 10;

/// Refuses a pool, as it was just written, whose suites do not fit its profile.
///
/// # Errors
/// 422 with the suites; when the database fails.
pub(super) async fn check_pool(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    pool: &ObjectRow,
) -> Result<(), Error> {
    let former = match before {
        Some(before) => named(conn, before).await?,
        None => Targets::default(),
    };
    refuse(faults(&named(conn, pool).await?, &former))
}

/// Refuses a suite or a profile, as it was just written, that does not fit a pool which names it.
///
/// # Errors
/// 422 with the pool; when the database fails.
pub(super) async fn check_pools(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    written: &ObjectRow,
) -> Result<(), Error> {
    // Nobody names what is new.
    let Some(before) = before else { return Ok(()) };
    let mut wrong = Vec::new();
    for pool in db::objects::list_referring_pools(conn, written.id).await? {
        let targets = named(conn, &pool).await?;
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
        wrong.extend(faults(&targets, &former).into_iter().map(told));
    }
    refuse(wrong)
}

/// What a pool names of suites and profiles; nothing where the pool's stored spec cannot be read.
async fn named(conn: &mut PgConnection, pool: &ObjectRow) -> Result<Targets, Error> {
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

/// A target's spec; nothing where it cannot be read: a wrong stored row keeps nobody from repairing another one.
fn readable<T: DeserializeOwned>(targets: &Targets, pointer: &str) -> Option<T> {
    targets.spec(pointer).ok().flatten()
}

/// What is wrong with a pool's suites on its profile that was not before, each where the pool names the suite.
fn faults(targets: &Targets, former: &Targets) -> Vec<Fault> {
    let Some(profile) = readable::<HardwareProfile>(targets, PROFILE) else {
        return Vec::new();
    };
    let its_former = readable::<HardwareProfile>(former, PROFILE);
    let mut faults = Vec::new();
    for pointer in SUITES {
        let Some(suite) = readable::<Suite>(targets, pointer) else {
            continue;
        };
        let before = readable::<Suite>(former, pointer).zip(its_former.as_ref());
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
