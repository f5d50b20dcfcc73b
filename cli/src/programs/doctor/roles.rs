//! Roles from before the role `release_owner`: tokens, people and role bindings with rights that end
//! with the next version.

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_server::db::kept;
use muster_server::error::Error;
use sqlx::PgPool;

use super::{Found, Host, database};

/// The ending rights.
const KEEPS: &str = "writes images, stacks, suites, hardware profiles and the software of pools until the next version";

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let Ok(pool) = database::connect(host).await else {
        // The database check reports the cause.
        return vec![Found::unknown(
            "the database cannot be looked into",
            "see the check `database`",
        )];
    };
    match look(&pool, &host.clock).await {
        Ok(found) if found.is_empty() => vec![Found::ok(
            "no token, person or role binding keeps a right of the version before",
        )],
        Ok(found) => found,
        Err(error) => vec![Found::unknown(
            format!("the roles cannot be read: {error}"),
            "see the checks `database` and `schema`",
        )],
    }
}

async fn look(pool: &PgPool, clock: &Clock) -> Result<Vec<Found>, Error> {
    let mut conn = pool.acquire().await?;
    let mut found = Vec::new();
    for token in kept::list_tokens(&mut conn, clock.now()).await? {
        found.push(Found::warn(
            format!(
                "the token {} ({}) {}",
                token.name,
                token.role,
                describe_use(token.release_verbs_used_at.map(|at| at.to_jiff()))
            ),
            "only for a pipeline that publishes software: `muster token create NAME --role release_owner`, and use the new token there",
        ));
    }
    for person in kept::list_people(&mut conn).await? {
        found.push(Found::warn(
            format!(
                "{} ({}) {}",
                person.name,
                person.role,
                describe_use(person.release_verbs_used_at.map(|at| at.to_jiff()))
            ),
            "only for a person who releases software: a role binding with the role release_owner",
        ));
    }
    for binding in kept::list_bindings(&mut conn).await? {
        found.push(Found::warn(
            format!(
                "the role binding {} of {} ({}) {KEEPS}",
                binding.name, binding.subject, binding.role
            ),
            "only for people who release software: another role binding with the role release_owner",
        ));
    }
    Ok(found)
}

/// Describes the kept rights, with the latest recorded use.
fn describe_use(used_at: Option<Timestamp>) -> String {
    match used_at {
        Some(at) => format!("{KEEPS}, and did so at {at:.0}"),
        None => format!("{KEEPS}, and has not done so since the upgrade"),
    }
}
