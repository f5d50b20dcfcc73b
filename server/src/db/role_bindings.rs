//! Role bindings, with the members that decide rights and their seals.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use crate::error::Error;

/// A role binding. Members missing in the stored document are empty.
#[derive(Clone, Debug)]
pub struct BindingRow {
    pub id: ObjectId,
    pub name: String,
    pub subject: String,
    pub role: String,
    /// The scope as JSON, in the form of the database.
    pub scope: String,
    /// The stored role is older than a change of its verbs, and keeps the lost verbs.
    pub keeps_lost_verbs: bool,
    /// The seal over the members that decide rights.
    pub seal: Option<Vec<u8>>,
}

/// Lists the bindings of subjects.
pub async fn list_of_subjects(
    conn: &mut PgConnection,
    subjects: &[String],
) -> Result<Vec<BindingRow>, Error> {
    Ok(sqlx::query_as!(
        BindingRow,
        r#"SELECT id AS "id: ObjectId", name, coalesce(spec ->> 'subject', '') AS "subject!", coalesce(spec ->> 'role', '') AS "role!",
                  coalesce(spec -> 'scope', '{}')::text AS "scope!", keeps_release_verbs AS keeps_lost_verbs, seal
           FROM objects WHERE kind = 'role_binding' AND spec ->> 'subject' = ANY ($1)"#,
        subjects,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists bindings after an id, 500 at most.
pub async fn list(conn: &mut PgConnection, after: ObjectId) -> Result<Vec<BindingRow>, Error> {
    Ok(sqlx::query_as!(
        BindingRow,
        r#"SELECT id AS "id: ObjectId", name, coalesce(spec ->> 'subject', '') AS "subject!", coalesce(spec ->> 'role', '') AS "role!",
                  coalesce(spec -> 'scope', '{}')::text AS "scope!", keeps_release_verbs AS keeps_lost_verbs, seal
           FROM objects WHERE kind = 'role_binding' AND id > $1 ORDER BY id LIMIT 500"#,
        after as ObjectId,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns a binding by id.
pub async fn find(conn: &mut PgConnection, id: ObjectId) -> Result<Option<BindingRow>, Error> {
    Ok(sqlx::query_as!(
        BindingRow,
        r#"SELECT id AS "id: ObjectId", name, coalesce(spec ->> 'subject', '') AS "subject!", coalesce(spec ->> 'role', '') AS "role!",
                  coalesce(spec -> 'scope', '{}')::text AS "scope!", keeps_release_verbs AS keeps_lost_verbs, seal
           FROM objects WHERE kind = 'role_binding' AND id = $1"#,
        id as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Seals a binding, unless another transaction has sealed the binding meanwhile. `before` is the
/// stored seal, as read. `false`: not sealed.
pub async fn set_seal(
    conn: &mut PgConnection,
    id: ObjectId,
    before: Option<&[u8]>,
    seal: &[u8],
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE objects SET seal = $3, seal_refused_at = NULL WHERE id = $1 AND kind = 'role_binding' AND seal IS NOT DISTINCT FROM $2",
        id as ObjectId,
        before,
        seal,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes the lost verbs from a binding.
pub async fn drop_lost_verbs(conn: &mut PgConnection, id: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE objects SET keeps_release_verbs = false WHERE id = $1 AND kind = 'role_binding'",
        id as ObjectId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the refusal of a binding. `false`: a refusal is recorded already, or another request
/// holds the row.
pub async fn note_refused(
    conn: &mut PgConnection,
    id: ObjectId,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE objects SET seal_refused_at = $2
         WHERE id IN (SELECT id FROM objects WHERE id = $1 AND seal_refused_at IS NULL FOR NO KEY UPDATE SKIP LOCKED)",
        id as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
