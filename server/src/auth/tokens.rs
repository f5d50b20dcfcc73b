//! Tokens of machines: `mst_<id>_<secret><crc>`. The id finds the row. The secret is 256 random
//! bits, stored only as a keyed MAC. The checksum lets a scanner recognize a leaked token, and a
//! caller tell a cut token from a wrong token.

use jiff::Timestamp;
use muster_core::ids::TokenId;
use muster_core::values::{Digest, Secret};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::access::Holding;
use super::seals::counts;
use super::{Actor, break_glass, second_door, sessions, vouching};
use crate::access::Grant;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::tokens::TokenRow;
use crate::error::Error;
use crate::keys::{Fit, TokenKeys};
use crate::sealed::TokenMac;

/// Prefix of API tokens. Agents' tokens have another prefix, so the two kinds cannot be confused.
const PREFIX: &str = "mst";
const AGENT_PREFIX: &str = "msa";
const SECRET_BYTES: usize = 32;
const CRC_HEX: usize = 8;

/// A new token. The text of the token exists only here.
#[derive(Clone, Debug)]
pub struct Minted {
    pub id: TokenId,
    pub secret: Secret,
    /// The stored form of the token.
    pub mac: TokenMac,
}

/// Makes an API token. Without the key, the token is stored as a plain hash, as by earlier versions
/// and for tests.
pub fn mint(keys: Option<&TokenKeys>) -> Minted {
    let id = TokenId::new();
    let secret = minted(PREFIX, id, "");
    let mac = keys.map_or_else(
        || TokenMac::plain(secret.reveal()),
        |keys| keys.mac(secret.reveal()),
    );
    Minted { id, secret, mac }
}

/// A new enrolment token, valid once and for one day. A plain hash of the 256 random bits is a
/// sufficient stored form.
#[derive(Clone, Debug)]
pub struct MintedAgent {
    pub secret: Secret,
    pub hash: [u8; 32],
}

/// Makes the enrolment token of an agent. The token contains the authority's digest, so the agent
/// can authenticate the server. The id in the token serves only scanners and logs.
pub fn mint_agent(authority: Digest) -> MintedAgent {
    let secret = minted(
        AGENT_PREFIX,
        TokenId::new(),
        &format!("_{}", authority.hex()),
    );
    MintedAgent {
        hash: hash(secret.reveal()),
        secret,
    }
}

fn minted(prefix: &str, id: TokenId, rest: &str) -> Secret {
    let secret = hex::encode(rand::random::<[u8; SECRET_BYTES]>());
    let body = format!("{prefix}_{}_{secret}{rest}", id.0.simple());
    let text = format!("{body}{:08x}", crc32fast::hash(body.as_bytes()));
    Secret::new(text)
}

/// Returns the stored form of an enrolment token.
pub fn hash(token: &str) -> [u8; 32] {
    Digest::of(token.as_bytes()).0
}

/// Returns the id in a well-formed API token.
fn id(token: &str) -> Option<TokenId> {
    let body = token
        .len()
        .checked_sub(CRC_HEX)
        .and_then(|at| token.is_char_boundary(at).then(|| token.split_at(at)));
    let (body, crc) = body?;
    if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let (id, secret) = body
        .strip_prefix(PREFIX)?
        .strip_prefix('_')?
        .split_once('_')?;
    (secret.len() == SECRET_BYTES * 2).then_some(())?;
    Uuid::try_parse(id).ok().map(TokenId)
}

/// Returns the actor of a token. The row is read from the database for every request, so a
/// revocation takes effect immediately.
///
/// # Errors
///
/// [`Error::Unauthenticated`], [`Error::NotAdmitted`] for a person with an outdated login, or the
/// database's.
pub async fn authenticate(app: &App, token: &str) -> Result<Actor, Error> {
    let id = id(token).ok_or(Error::Unauthenticated)?;
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    let row = db::tokens::find(&mut conn, id)
        .await?
        .ok_or(Error::Unauthenticated)?;
    let fit = fit(app, &mut conn, &row, token).await?;
    if fit == Fit::Differs || row.revoked_at.is_some() || row.expires_at <= now {
        return Err(Error::Unauthenticated);
    }
    if !counts::token_counts(app, &mut conn, &row).await? {
        return Err(Error::Unauthenticated);
    }
    if let Fit::Renew(mac) = &fit {
        renew(&mut conn, &row, mac, now).await?;
    }
    if row.last_used.is_none_or(|used| stale(used.to_jiff(), now)) {
        db::tokens::set_last_used(&mut conn, id, now).await?;
    }
    if !second_door::admits(&mut conn, app, &row).await? {
        return Err(second_door::refuse(&row));
    }
    find_actor(app, &mut conn, row).await
}

/// Stores a token under the current key. The use of a plain hash is an event, the only one of the
/// token.
async fn renew(
    conn: &mut PgConnection,
    row: &TokenRow,
    mac: &TokenMac,
    now: Timestamp,
) -> Result<(), Error> {
    let mut tx = conn.begin().await?;
    db::tokens::set_mac(&mut tx, row.id, &row.token_hash, mac).await?;
    if row.key_id.is_none() {
        let summary = format!(
            "token {} was stored as a plain hash, and is stored under the key from now on",
            row.name
        );
        let event = NewEvent::new(
            now,
            format!("token:{}", row.name),
            "token.plain_used",
            summary,
        );
        db::events::insert(&mut tx, event.with(json!({ "token": row.id }))).await?;
    }
    Ok(tx.commit().await?)
}

/// Returns the actor of a stored token, with the present rights of the token's owner. The caller
/// checks the secret, and whether the token has ended.
///
/// # Errors
///
/// [`Error::NotAdmitted`] for a person with an outdated login, or the database's.
pub(super) async fn find_actor(
    app: &App,
    conn: &mut PgConnection,
    row: TokenRow,
) -> Result<Actor, Error> {
    let role = row.role;
    let name = format!("token:{}", row.name);
    let owner = match row
        .person
        .as_deref()
        .and_then(|person| person.strip_prefix("user:"))
    {
        // Without a person of the stored name, the token has no rights, because the person's rights
        // are the limit.
        Some(person) => {
            let person = db::users::find(conn, person).await?;
            let admitted = match &person {
                Some(person) => break_glass::admits(conn, app, person).await?,
                None => false,
            };
            if let Some(person) = person.as_ref().filter(|_| admitted) {
                vouching::need(conn, app, person).await?;
            }
            let person = person.filter(|_| admitted);
            Some(sessions::grants(app, conn, person.as_ref()).await?)
        }
        None => None,
    };
    let holding = Holding {
        grants: vec![Grant {
            role,
            scope: row.scope.0,
            keeps_lost_verbs: row.keeps_lost_verbs,
        }],
        owner,
    };
    let releases_per_hour = row
        .releases_per_hour
        .and_then(|limit| u32::try_from(limit).ok());
    let person = row.person.unwrap_or_else(|| name.clone());
    Ok(Actor {
        person,
        name,
        role,
        holding,
        token: Some(row.id),
        releases_per_hour,
        request_id: None,
        on_behalf_of: None,
    })
}

/// Compares the stored form with a token. An unknown key was created after the start of this
/// process, so the keys are read again. Without the key, the token is rejected.
async fn fit(
    app: &App,
    conn: &mut PgConnection,
    row: &TokenRow,
    token: &str,
) -> Result<Fit, Error> {
    let keys = &app.keys.tokens;
    let found = keys.fit(&row.token_hash, row.key_id.as_deref(), token);
    if found != Fit::Unknown {
        return Ok(found);
    }
    keys.reload(&app.keys.master, conn)
        .await
        .map_err(Error::internal)?;
    match keys.fit(&row.token_hash, row.key_id.as_deref(), token) {
        Fit::Unknown => Ok(Fit::Differs),
        found => Ok(found),
    }
}

/// Returns whether the recorded last use is old enough for another write: 60 s.
fn stale(used: Timestamp, now: Timestamp) -> bool {
    now.duration_since(used).as_secs() >= 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_row_and_a_damaged_one_names_none() {
        let minted = mint(None);
        let text = minted.secret.reveal().to_owned();
        assert_eq!(id(&text), Some(minted.id));
        assert_eq!(minted.mac, TokenMac::plain(&text));
        for bad in [
            "",
            "mst_",
            "ü",
            &text[..text.len() - 1],
            &text.replace('_', "-"),
            &text.to_uppercase(),
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
        let authority = Digest::of(b"ca");
        let agents = mint_agent(authority);
        assert_eq!(id(agents.secret.reveal()), None);
        assert_eq!(hash(agents.secret.reveal()), agents.hash);
        assert_eq!(
            muster_core::wire::enrol::authority_of(agents.secret.reveal()),
            Some(authority)
        );
    }
}
