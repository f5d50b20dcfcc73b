//! Seals over tokens, people and sessions: rows without a valid seal, and tokens from before the
//! rules of this version.

use jiff::Timestamp;
use muster_server::auth::seals::adopt::{self, Unsealed};
use muster_server::auth::seals::window;
use muster_server::db;
use muster_server::error::Error;
use muster_server::keys::{Create, MasterKey};
use sqlx::{PgConnection, PgPool};

use super::{Found, Host, database};

/// Most rows in a finding.
const NAMED: usize = 20;

/// The remedy for rows without a seal.
const SEAL: &str = "revoke or disable what is unknown to you; `muster admin seal-rows` prints the names, and with --yes seals the rest as it is";

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let Ok(pool) = database::connect(host).await else {
        // The database check reports the cause.
        return vec![Found::unknown(
            "the database cannot be looked into",
            "see the check `database`",
        )];
    };
    let (file, former) = (&host.args.key_file, host.args.former_key_file.as_deref());
    let master = match MasterKey::load_both(file, former, Create::Never) {
        Ok(master) => master,
        Err(error) => {
            return vec![Found::unknown(
                format!("the seals cannot be checked: {error:#}"),
                "run the doctor as the server's user, or name the file with --key-file",
            )];
        }
    };
    match look(&pool, &master, host.clock.now()).await {
        Ok(found) if found.is_empty() => vec![Found::ok(
            "every token, person, role binding and session has a valid seal, and none is from before the rules of this version",
        )],
        Ok(found) => found,
        Err(error) => vec![Found::unknown(
            format!("the seals cannot be read: {error}"),
            "see the checks `database` and `schema`",
        )],
    }
}

async fn look(pool: &PgPool, master: &MasterKey, now: Timestamp) -> Result<Vec<Found>, Error> {
    let mut conn = pool.acquire().await?;
    if !is_own_key(&mut conn, master).await? {
        return Ok(vec![Found::unknown(
            "the seals cannot be checked: the master key is of another installation",
            "name the server's file with --key-file, and during a rotation the former file with --former-key-file",
        )]);
    }
    let end = window::find_end(&mut conn, master).await?;
    let open = end.filter(|end| *end > now);
    let mut found = Vec::new();
    if let Some(end) = open {
        found.push(Found::warn(
            format!("rows without a seal count until {end:.0}"),
            "when every server has this version, `muster admin seal-rows --yes` ends the time at once",
        ));
    }
    let unsealed = adopt::find_unsealed(&mut conn, master, now).await?;
    if !unsealed.is_empty() {
        let described = describe(&unsealed);
        let adopted = is_adopted(&mut conn).await?;
        found.push(match (open, adopted) {
            (_, false) => Found::warn(
                format!("from the version before: {described}"),
                "the first start of a server with this version seals the rows as they are",
            ),
            (Some(_), true) => Found::warn(format!("without a valid seal: {described}"), SEAL),
            (None, true) => Found::fail(
                format!("without a valid seal, and refused: {described}"),
                SEAL,
            ),
        });
    }
    found.extend(list_former(&mut conn, now).await?);
    Ok(found)
}

/// Returns whether a server of this version has adopted the rows of the version before.
async fn is_adopted(conn: &mut PgConnection) -> Result<bool, Error> {
    Ok(db::row_seals::find_window(conn).await?.is_some()
        || db::row_seals::is_adoption_known(conn).await?)
}

/// Returns whether the master key opens a stored key. `true` for a database without keys.
async fn is_own_key(conn: &mut PgConnection, master: &MasterKey) -> Result<bool, Error> {
    let stored = db::keys::find(conn, "permit").await?;
    Ok(stored.is_none_or(|sealed| master.open("server_keys/permit", &sealed).is_ok()))
}

/// Lists tokens from before the rules of this version.
async fn list_former(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for token in db::unarmed::list_plain(conn, now).await? {
        found.push(Found::warn(
            format!("the token {} is stored as a plain hash", token.name),
            "use the token once, or revoke all such tokens with `muster admin forget-plain-tokens`",
        ));
    }
    for token in db::unarmed::list_kept(conn, now).await? {
        let used = token.unarmed_seen_at.map_or_else(
            || "has not been used beside an identity provider since the upgrade".to_owned(),
            |at| format!("was used at {:.0}", at.to_jiff()),
        );
        found.push(Found::warn(
            format!(
                "the administrator's token {} has no person, and counts beside an identity provider until the next version; the token {used}",
                token.name
            ),
            "use a token of a person, or name the token with the server's option --oidc-keeps-token",
        ));
    }
    Ok(found)
}

/// Describes rows by their names, with a bound.
fn describe(unsealed: &Unsealed) -> String {
    let tokens = unsealed
        .tokens
        .iter()
        .map(|row| format!("the token {} ({})", row.name, row.role));
    let people = unsealed
        .people
        .iter()
        .map(|row| format!("the person {} ({})", row.name, row.role));
    let bindings = unsealed.bindings.iter().map(|row| {
        format!(
            "the role binding {} of {} ({})",
            row.name, row.subject, row.role
        )
    });
    let mut named: Vec<String> = tokens.chain(people).chain(bindings).collect();
    if !unsealed.sessions.is_empty() {
        named.insert(0, format!("{} sessions", unsealed.sessions.len()));
    }
    let more = match named.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.truncate(NAMED);
    format!("{}{more}", named.join(", "))
}
