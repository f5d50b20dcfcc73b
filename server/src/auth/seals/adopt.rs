//! Adopts the rows of the version before: seals them as they are. The first server with the seals
//! adopts by itself, once. The database, the history and a file beside the blobs remember the
//! adoption, so that a deleted mark does not lead to another one.

use anyhow::Context as _;
use jiff::Timestamp;
use muster_core::ids::{ObjectId, TokenId, UserId};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::text::{self, SessionText};
use super::window;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::role_bindings::BindingRow;
use crate::db::row_seals::{OpenSession, TokenSeals};
use crate::db::tokens::TokenRow;
use crate::db::users::UserRow;
use crate::error::Error;
use crate::keys::MasterKey;

/// The file beside the blobs.
const FILE: &str = "rows-adopted";
/// Most names in the detail of an event.
const NAMED: usize = 100;
/// The event of a first start without a row of the version before, as in a new installation.
const NO_FORMER_ROW: &str = "no row is from before the seals: only tokens, people, role bindings and sessions with a seal count";

/// Rows without a valid seal.
#[derive(Clone, Debug, Default)]
pub struct Unsealed {
    pub tokens: Vec<TokenRow>,
    pub people: Vec<UserRow>,
    pub bindings: Vec<BindingRow>,
    pub sessions: Vec<OpenSession>,
}

impl Unsealed {
    /// Whether every row has a valid seal.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
            && self.people.is_empty()
            && self.bindings.is_empty()
            && self.sessions.is_empty()
    }

    /// Describes the rows by their numbers: `2 tokens and 1 session`, or `no row`.
    pub fn describe(&self) -> String {
        let counts = [
            describe_count(self.tokens.len(), "token", "tokens"),
            describe_count(self.people.len(), "person", "people"),
            describe_count(self.bindings.len(), "role binding", "role bindings"),
            describe_count(self.sessions.len(), "session", "sessions"),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        match counts.split_last() {
            None => "no row".to_owned(),
            Some((last, [])) => last.clone(),
            Some((last, before)) => format!("{} and {last}", before.join(", ")),
        }
    }

    /// Returns the event of the adoption of these rows.
    pub fn event(&self, at: Timestamp, actor: &str, kind: &'static str) -> NewEvent {
        let tokens: Vec<&str> = self.tokens.iter().map(|row| &*row.name).collect();
        let people: Vec<&str> = self.people.iter().map(|row| &*row.name).collect();
        let bindings: Vec<&str> = self.bindings.iter().map(|row| &*row.name).collect();
        let wrong = self.list_wrong();
        let detail = json!({
            "tokens": tokens[..tokens.len().min(NAMED)],
            "people": people[..people.len().min(NAMED)],
            "role_bindings": bindings[..bindings.len().min(NAMED)],
            "sessions": self.sessions.len(),
            "wrong_seal": wrong[..wrong.len().min(NAMED)],
        });
        let found = match wrong.len() {
            0 => String::new(),
            count => format!(" ({count} with a wrong seal)"),
        };
        let summary = match self.is_empty() {
            true => "every token, person, role binding and session has a seal already".to_owned(),
            false => format!("sealed without a change: {}{found}", self.describe()),
        };
        NewEvent::new(at, actor, kind, summary).with(detail)
    }

    /// Lists the rows with a wrong seal, which were changed after the seal: `token ci`. A server of
    /// the version before changes rows so, and so does a writer of the database.
    fn list_wrong(&self) -> Vec<String> {
        let tokens = self.tokens.iter().filter(|row| row.seal.is_some());
        let people = self.people.iter().filter(|row| row.seal.is_some());
        let bindings = self.bindings.iter().filter(|row| row.seal.is_some());
        let sessions = self.sessions.iter().filter(|row| row.seal.is_some());
        tokens
            .map(|row| format!("token {}", row.name))
            .chain(people.map(|row| format!("person {}", row.name)))
            .chain(bindings.map(|row| format!("role binding {}", row.name)))
            .chain(sessions.map(|row| format!("session of the person {}", row.user_id)))
            .collect()
    }
}

/// Describes a number of rows. Returns `None` for no rows.
fn describe_count(number: usize, one: &str, many: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {many}")),
    }
}

/// Returns the rows without a valid seal: valid tokens, people, role bindings, open sessions.
///
/// # Errors
///
/// When the database fails.
pub async fn find_unsealed(
    conn: &mut PgConnection,
    master: &MasterKey,
    now: Timestamp,
) -> Result<Unsealed, Error> {
    let mut found = Unsealed::default();
    let mut after = TokenId(Uuid::nil());
    loop {
        let rows = db::row_seals::list_tokens(conn, after, now).await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        let unsealed = rows
            .into_iter()
            .filter(|row| !text::token_fits(master, row));
        found.tokens.extend(unsealed);
    }
    let mut after = UserId(Uuid::nil());
    loop {
        let rows = db::row_seals::list_users(conn, after).await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        let unsealed = rows.into_iter().filter(|row| !text::user_fits(master, row));
        found.people.extend(unsealed);
    }
    let mut after = ObjectId(Uuid::nil());
    loop {
        let rows = db::role_bindings::list(conn, after).await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        let unsealed = rows
            .into_iter()
            .filter(|row| !text::binding_fits(master, row));
        found.bindings.extend(unsealed);
    }
    let mut after = Vec::new();
    loop {
        let rows = db::row_seals::list_sessions(conn, &after, now).await?;
        let Some(last) = rows.last() else { break };
        after.clone_from(&last.token_hash);
        let unsealed = rows.into_iter().filter(|row| !session_fits(master, row));
        found.sessions.extend(unsealed);
    }
    Ok(found)
}

fn session_fits(master: &MasterKey, row: &OpenSession) -> bool {
    let members = SessionText {
        hash: &row.token_hash,
        user: row.user_id,
        expires_at: row.expires_at,
    };
    text::session_fits(master, &members, row.seal.as_deref())
}

/// Seals every row without a valid seal. Returns the rows.
///
/// # Errors
///
/// When the database fails.
pub async fn seal_rows(
    conn: &mut PgConnection,
    master: &MasterKey,
    now: Timestamp,
) -> Result<Unsealed, Error> {
    let unsealed = find_unsealed(conn, master, now).await?;
    seal_found(conn, master, &unsealed).await?;
    Ok(unsealed)
}

/// Seals rows that were found without a valid seal.
///
/// # Errors
///
/// When the database fails.
pub async fn seal_found(
    conn: &mut PgConnection,
    master: &MasterKey,
    unsealed: &Unsealed,
) -> Result<(), Error> {
    for row in &unsealed.tokens {
        let (seal, plain) = (text::seal_token(master, row), text::seal_plain(master, row));
        let seals = TokenSeals {
            before: row.seal.as_deref(),
            seal: &seal,
            plain: plain.as_deref(),
        };
        db::row_seals::set_token(conn, row.id, seals).await?;
    }
    for row in &unsealed.people {
        let seal = text::seal_user(master, row);
        db::row_seals::set_user(conn, row.id, row.seal.as_deref(), &seal).await?;
    }
    for row in &unsealed.bindings {
        let seal = text::seal_binding(master, row);
        db::role_bindings::set_seal(conn, row.id, row.seal.as_deref(), &seal).await?;
    }
    for row in &unsealed.sessions {
        let seal = text::seal_session(master, &row.token_hash, row.user_id, row.expires_at);
        db::row_seals::set_session(conn, &row.token_hash, &seal).await?;
    }
    Ok(())
}

/// Adopts the rows of the version before, unless an adoption is remembered. Runs before the first
/// request of a replica.
///
/// # Errors
///
/// When the database fails, or the folder of the file cannot be read.
pub async fn adopt_once(app: &App) -> anyhow::Result<()> {
    let path = app.blobs.join(FILE);
    let has_file = tokio::fs::try_exists(&path)
        .await
        .with_context(|| path.display().to_string())?;
    let (master, now) = (&app.keys.master, app.clock.now());
    let mut tx = app.pool.begin().await?;
    if db::row_seals::find_window(&mut tx).await?.is_none() {
        if !has_file && !db::row_seals::is_adoption_known(&mut tx).await? {
            adopt(&mut tx, master, now).await?;
        } else if db::row_seals::find_window(&mut tx).await?.is_none() {
            // Read again, because another replica may have adopted between the two reads.
            tracing::warn!(
                "the mark of the adoption is missing: rows without a seal are refused; after a restore of an old backup, run `muster admin seal-rows`"
            );
            return Ok(());
        }
    }
    tx.commit().await?;
    if !has_file && let Err(error) = tokio::fs::write(&path, now.to_string()).await {
        // The start goes on: the database and the history remember the adoption too.
        tracing::warn!(
            path = %path.display(),
            %error,
            "the file of the adoption cannot be written"
        );
    }
    Ok(())
}

async fn adopt(conn: &mut PgConnection, master: &MasterKey, now: Timestamp) -> Result<(), Error> {
    let first = window::make(master, now, now + window::LASTS);
    if !db::row_seals::insert_window(conn, &first).await? {
        // Another replica was first.
        return Ok(());
    }
    let adopted = seal_rows(conn, master, now).await?;
    let mut event = adopted.event(now, "muster", "rows.adopted");
    if adopted.is_empty() {
        // A new installation, without a server of the version before.
        window::set(conn, master, now, now).await?;
        NO_FORMER_ROW.clone_into(&mut event.summary);
    } else {
        tracing::info!(
            rows = %adopted.describe(),
            "rows of the version before are sealed"
        );
    }
    // Written for a new installation too: the history remembers the adoption.
    db::events::insert(conn, event).await
}

/// Seals the rows that servers of the version before have written meanwhile, while the window is
/// open.
///
/// # Errors
///
/// When the database fails.
pub async fn seal_late(app: &App) -> Result<(), Error> {
    let (master, now) = (&app.keys.master, app.clock.now());
    let mut tx = app.pool.begin().await?;
    let end = window::find_end(&mut tx, master).await?;
    if end.is_none_or(|end| end <= now) {
        return Ok(());
    }
    let sealed = seal_rows(&mut tx, master, now).await?;
    if !sealed.is_empty() {
        db::events::insert(&mut tx, sealed.event(now, "muster", "rows.sealed_late")).await?;
    }
    Ok(tx.commit().await?)
}
