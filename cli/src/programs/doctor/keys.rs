//! Rotations of the server's keys: a former key is valid until the second act of the rotation.

use jiff::Timestamp;
use muster_server::intents::rotations::report::{self, RotationReport};
use sqlx::PgPool;

use super::{Found, Host, database};

/// Most holders of a former key in a finding.
const NAMED: usize = 20;
/// The remedy for secrets under a former master key.
const STRAYS: &str = "do not destroy the former key: `muster admin rotate-master --key-file NEW --former-key-file FORMER` moves the secrets";

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let Ok(pool) = database::connect(host).await else {
        // The database check reports the cause.
        return vec![Found::unknown(
            "the database cannot be looked into",
            "see the check `database`",
        )];
    };
    match look(&pool, host.clock.now()).await {
        Ok(found) => found,
        Err(error) => vec![Found::unknown(
            format!("the rotations of keys cannot be read: {error:#}"),
            "see the checks `database` and `schema`",
        )],
    }
}

async fn look(pool: &PgPool, now: Timestamp) -> anyhow::Result<Vec<Found>> {
    let mut conn = pool.acquire().await?;
    let rotations = report::list_rotations(&mut conn, now).await?;
    let mut found: Vec<Found> = rotations.iter().map(describe).collect();
    let strays = report::list_strays(&mut conn).await?;
    if !strays.is_empty() {
        found.push(Found::fail(
            format!(
                "secrets are under another master key than the servers': {}",
                strays.join(", ")
            ),
            STRAYS,
        ));
    }
    if found.is_empty() {
        found.push(Found::ok("no rotation of a key is under way"));
    }
    Ok(found)
}

fn describe(rotation: &RotationReport) -> Found {
    let state = format!(
        "the former key {} of {} is valid beside the new key since {:.0}",
        rotation.former, rotation.key, rotation.begun_at
    );
    let command = rotation.command;
    if rotation.needs.is_empty() {
        return Found::warn(
            state,
            format!("end the former key with `muster admin {command} --finish`"),
        );
    }
    let needs = &rotation.needs;
    let named = needs[..needs.len().min(NAMED)].join("; ");
    Found::warn(
        format!("{state}, and {} still need it: {named}", needs.len()),
        format!(
            "follow the remedies; after a crash, `muster admin {command}` goes on; `muster admin keys` lists all"
        ),
    )
}
