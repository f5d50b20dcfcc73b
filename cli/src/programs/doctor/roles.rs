//! Roles from before a change of their rights: tokens, people and role bindings with rights until
//! the next version. Operators and automation lose the rights of the role `release_owner`, viewers
//! lose the raw text of machines.

use jiff::Timestamp;
use muster_api::access::Role;
use muster_core::clock::Clock;
use muster_server::db::kept;
use muster_server::error::Error;
use sqlx::PgPool;

use super::{Found, Host, database};

/// The lost rights of a role, with the replacements for holders in need of the rights.
struct Lost {
    rights: &'static str,
    token: &'static str,
    people: &'static str,
}

/// The rights of `release_owner`.
const RELEASES: Lost = Lost {
    rights: "writes images, stacks, suites, hardware profiles and the software of pools until the next version",
    token: "only for a pipeline that publishes software: `muster token create NAME --role release_owner`, and use the new token there",
    people: "only for people who release software: a role binding with the role release_owner",
};

/// The raw text of machines.
const RAW: Lost = Lost {
    rights: "reads consoles, logs and evidence of gates until the next version",
    token: "only for a reader of the raw text of machines: `muster token create NAME --role operator`, and use the new token there",
    people: "only for people who read the raw text of machines: a role binding with the role operator",
};

fn find_lost(role: Role) -> &'static Lost {
    match role {
        Role::Viewer => &RAW,
        Role::Operator | Role::Automation | Role::Admin | Role::ReleaseOwner | Role::Guest => {
            &RELEASES
        }
    }
}

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
                describe_use(token.role, token.lost_verbs_used_at.map(|at| at.to_jiff()))
            ),
            find_lost(token.role).token,
        ));
    }
    for person in kept::list_people(&mut conn).await? {
        found.push(Found::warn(
            format!(
                "{} ({}) {}",
                person.name,
                person.role,
                describe_use(
                    person.role,
                    person.lost_verbs_used_at.map(|at| at.to_jiff())
                )
            ),
            find_lost(person.role).people,
        ));
    }
    for binding in kept::list_bindings(&mut conn).await? {
        // A role that this program does not know keeps no right.
        let role = binding.role.parse().unwrap_or(Role::Guest);
        found.push(Found::warn(
            format!(
                "the role binding {} of {} ({}) {}",
                binding.name,
                binding.subject,
                binding.role,
                find_lost(role).rights
            ),
            find_lost(role).people,
        ));
    }
    Ok(found)
}

/// Describes the kept rights, with the latest recorded use.
fn describe_use(role: Role, used_at: Option<Timestamp>) -> String {
    let rights = find_lost(role).rights;
    match used_at {
        Some(at) => format!("{rights}, and did so at {at:.0}"),
        None => format!("{rights}, and has not done so since the upgrade"),
    }
}
