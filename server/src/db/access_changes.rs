//! Changes of rights: triggers note each change of tokens, people, sessions, role bindings and of
//! the local administrator, also by servers of the version before.

use sqlx::PgConnection;

use crate::error::Error;

/// A value that differs after each change of rights. Old rows are deleted, so the value may also
/// differ without a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub count: i64,
    pub sum: i64,
}

/// Returns the present turn.
pub async fn find_turn(conn: &mut PgConnection) -> Result<Turn, Error> {
    Ok(sqlx::query_as!(
        Turn,
        r#"SELECT count(*) AS "count!", COALESCE(sum(id), 0)::bigint AS "sum!" FROM access_changes"#
    )
    .fetch_one(conn)
    .await?)
}
