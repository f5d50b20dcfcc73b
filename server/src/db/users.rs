//! People, and the sessions of their browsers. Only hashes are stored.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::access::Role;
use muster_core::ids::UserId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A person as stored.
#[derive(Clone, Debug)]
pub struct UserRow {
    pub id: UserId,
    pub name: String,
    /// `None`: an identity provider authenticates the person.
    pub password_hash: Option<String>,
    pub role: Role,
    /// Groups reported by the identity provider at the last login.
    pub groups: Vec<String>,
    /// An administrator disabled the person.
    pub disabled: bool,
    pub last_seen: Option<jiff_sqlx::Timestamp>,
    /// The stored role is older than a change of its verbs, and keeps the lost verbs. The column is
    /// named after the first of these changes.
    pub keeps_lost_verbs: bool,
    /// The latest sign-in by a provider. Without meaning for a person without a provider.
    pub vouched_at: Timestamp,
    pub issuer: Option<String>,
    pub subject: Option<String>,
    /// The seal over the members that decide rights.
    pub seal: Option<Vec<u8>>,
}

/// A session and its person.
#[derive(Clone, Debug)]
pub struct SessionRow {
    pub user: UserRow,
    pub expires_at: Timestamp,
    /// The latest recorded use, at most one a minute.
    pub seen_at: Timestamp,
    /// The seal over person and end.
    pub seal: Option<Vec<u8>>,
}

/// A person as administrators see them.
#[derive(Clone, Debug)]
pub struct PersonRow {
    pub id: UserId,
    pub name: String,
    pub issuer: Option<String>,
    pub subject: Option<String>,
    pub role: Role,
    pub groups: Vec<String>,
    pub created_at: Timestamp,
    pub last_seen: Option<jiff_sqlx::Timestamp>,
    pub disabled_at: Option<jiff_sqlx::Timestamp>,
    pub disabled_by: Option<String>,
}

/// Inserts a person. A taken name is a conflict.
///
/// # Errors
/// When the name is taken.
pub async fn insert(
    conn: &mut PgConnection,
    name: &str,
    password_hash: &str,
    role: &str,
    now: Timestamp,
) -> Result<UserId, Error> {
    let id = UserId::new();
    sqlx::query!(
        "INSERT INTO users (id, name, password_hash, role, created_at) VALUES ($1, $2, $3, $4, $5)",
        id as UserId,
        name,
        password_hash,
        role,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(id)
}

/// Returns a person by name.
pub async fn find(conn: &mut PgConnection, name: &str) -> Result<Option<UserRow>, Error> {
    Ok(sqlx::query_as!(
        UserRow,
        r#"SELECT id AS "id: UserId", name, password_hash, role, groups, disabled_at IS NOT NULL AS "disabled!", last_seen, keeps_release_verbs AS keeps_lost_verbs, vouched_at, issuer, subject, seal FROM users WHERE name = $1"#,
        name
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns a person by id, locked until the transaction ends.
pub async fn find_for_update(
    conn: &mut PgConnection,
    id: UserId,
) -> Result<Option<UserRow>, Error> {
    Ok(sqlx::query_as!(
        UserRow,
        r#"SELECT id AS "id: UserId", name, password_hash, role, groups, disabled_at IS NOT NULL AS "disabled!", last_seen, keeps_release_verbs AS keeps_lost_verbs, vouched_at, issuer, subject, seal
           FROM users WHERE id = $1 FOR NO KEY UPDATE"#,
        id as UserId
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the person of an identity provider, locked until the transaction ends.
pub async fn find_vouched(
    conn: &mut PgConnection,
    issuer: &str,
    subject: &str,
) -> Result<Option<UserRow>, Error> {
    Ok(sqlx::query_as!(
        UserRow,
        r#"SELECT id AS "id: UserId", name, password_hash, role, groups, disabled_at IS NOT NULL AS "disabled!", last_seen, keeps_release_verbs AS keeps_lost_verbs, vouched_at, issuer, subject, seal
           FROM users WHERE issuer = $1 AND subject = $2 FOR NO KEY UPDATE"#,
        issuer,
        subject
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists people by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<PersonRow>, Error> {
    Ok(sqlx::query_as!(
        PersonRow,
        r#"SELECT id AS "id: UserId", name, issuer, subject, role, groups, created_at, last_seen, disabled_at, disabled_by
           FROM users WHERE id = ANY ($1)"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns a person's id, by name or id.
pub async fn find_id(conn: &mut PgConnection, key: &str) -> Result<Option<UserId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: UserId" FROM users WHERE name = $1 OR id = $2"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns a person's id by name or id, locked until the transaction ends.
pub async fn find_id_for_update(
    conn: &mut PgConnection,
    key: &str,
) -> Result<Option<UserId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: UserId" FROM users WHERE name = $1 OR id = $2 FOR UPDATE"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Disables a person and ends the person's sessions. `false`: the person was already disabled.
pub async fn disable(
    conn: &mut PgConnection,
    id: UserId,
    by: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE users SET disabled_at = $2, disabled_by = $3 WHERE id = $1 AND disabled_at IS NULL",
        id as UserId,
        now.to_sqlx() as _,
        by,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!("DELETE FROM sessions WHERE user_id = $1", id as UserId)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Enables a disabled person. `false`: the person was not disabled.
pub async fn enable(conn: &mut PgConnection, id: UserId) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE users SET disabled_at = NULL, disabled_by = NULL WHERE id = $1 AND disabled_at IS NOT NULL",
        id as UserId
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records the latest activity of a person, at most once a minute, so that reads do not become
/// writes.
pub async fn set_last_seen(
    conn: &mut PgConnection,
    id: UserId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE users SET last_seen = $2 WHERE id = $1 AND (last_seen IS NULL OR last_seen < $2::timestamptz - interval '1 minute')",
        id as UserId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A person with the claims of an identity provider.
#[derive(Clone, Copy, Debug)]
pub struct Vouched<'claims> {
    pub issuer: &'claims str,
    pub subject: &'claims str,
    pub name: &'claims str,
    pub role: &'claims str,
    pub groups: &'claims [String],
}

/// Stores a person with the current role and groups. Returns the id, and whether an administrator
/// disabled the person. A name of another person is a conflict.
///
/// The name of the first sign-in is kept. Bindings, tokens, limits and requests for a second person
/// refer to the name, and some providers let users change theirs.
///
/// # Errors
/// When the name is taken.
pub async fn set_vouched(
    conn: &mut PgConnection,
    vouched: Vouched<'_>,
    now: Timestamp,
) -> Result<(UserId, bool), Error> {
    let row = sqlx::query!(
        r#"INSERT INTO users (id, name, role, groups, issuer, subject, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
           ON CONFLICT (issuer, subject) DO UPDATE SET role = excluded.role, groups = excluded.groups,
               keeps_release_verbs = users.keeps_release_verbs AND users.role = excluded.role
           RETURNING id AS "id: UserId", disabled_at IS NOT NULL AS "disabled!""#,
        UserId::new() as UserId,
        vouched.name,
        vouched.role,
        vouched.groups,
        vouched.issuer,
        vouched.subject,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.id, row.disabled))
}

/// Sets a new password of a person and ends all of the person's sessions.
pub async fn set_password(
    conn: &mut PgConnection,
    id: UserId,
    password_hash: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE users SET password_hash = $2 WHERE id = $1",
        id as UserId,
        password_hash
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!("DELETE FROM sessions WHERE user_id = $1", id as UserId)
        .execute(conn)
        .await?;
    Ok(())
}

/// A session to write.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    pub hash: &'a [u8; 32],
    pub user: UserId,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// The seal over person and end.
    pub seal: &'a [u8],
}

/// Opens a session, and deletes the person's expired sessions.
pub async fn insert_session(conn: &mut PgConnection, session: NewSession<'_>) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM sessions WHERE user_id = $1 AND expires_at < $2",
        session.user as UserId,
        session.created_at.to_sqlx() as _
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO sessions (token_hash, user_id, created_at, expires_at, seal) VALUES ($1, $2, $3, $4, $5)",
        session.hash,
        session.user as UserId,
        session.created_at.to_sqlx() as _,
        session.expires_at.to_sqlx() as _,
        session.seal,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns an unexpired session with its person.
pub async fn find_by_session(
    conn: &mut PgConnection,
    hash: &[u8; 32],
    now: Timestamp,
) -> Result<Option<SessionRow>, Error> {
    let row = sqlx::query!(
        r#"SELECT u.id AS "id: UserId", u.name, u.password_hash, u.role, u.groups, u.disabled_at IS NOT NULL AS "disabled!", u.last_seen, u.keeps_release_verbs AS keeps_lost_verbs,
                  u.vouched_at, u.issuer, u.subject, u.seal, s.expires_at, s.seen_at, s.seal AS session_seal
           FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.token_hash = $1 AND s.expires_at > $2"#,
        hash,
        now.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| SessionRow {
        user: UserRow {
            id: row.id,
            name: row.name,
            password_hash: row.password_hash,
            role: row.role,
            groups: row.groups,
            disabled: row.disabled,
            last_seen: row.last_seen,
            keeps_lost_verbs: row.keeps_lost_verbs,
            vouched_at: row.vouched_at.to_jiff(),
            issuer: row.issuer,
            subject: row.subject,
            seal: row.seal,
        },
        expires_at: row.expires_at.to_jiff(),
        seen_at: row.seen_at.to_jiff(),
        seal: row.session_seal,
    }))
}

/// Ends a session.
pub async fn delete_session(conn: &mut PgConnection, hash: &[u8; 32]) -> Result<(), Error> {
    sqlx::query!("DELETE FROM sessions WHERE token_hash = $1", hash)
        .execute(conn)
        .await?;
    Ok(())
}
