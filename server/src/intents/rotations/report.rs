//! The server's keys: age, rotations under way, and the holders that still need a former key.

use jiff::Timestamp;
use sqlx::PgConnection;

use super::master::{list_lacking, list_left};
use super::signing;
use crate::db;
use crate::keys::rings::RingKey;
use crate::keys::{MASTER, MasterKey};

/// A key of the server.
#[derive(Clone, Debug)]
pub struct KeyReport {
    pub name: String,
    /// The id of the master key that seals.
    pub sealed_by: String,
    /// `None`: the key is outside of the database.
    pub created_at: Option<Timestamp>,
}

/// A rotation under way.
#[derive(Clone, Debug)]
pub struct RotationReport {
    pub key: &'static str,
    /// The command of both acts.
    pub command: &'static str,
    pub former: String,
    pub next: String,
    pub begun_at: Timestamp,
    /// The holders of the former key, for people. Empty: the former key is no longer needed.
    pub needs: Vec<String>,
}

/// Lists the keys, the master key first.
///
/// # Errors
/// When the database fails.
pub async fn list_keys(
    conn: &mut PgConnection,
    master: &MasterKey,
) -> anyhow::Result<Vec<KeyReport>> {
    let mut keys = vec![KeyReport {
        name: MASTER.to_owned(),
        sealed_by: master.id().to_owned(),
        created_at: None,
    }];
    for row in db::wrapped_keys::list_ages(conn).await? {
        keys.push(KeyReport {
            name: row.name,
            sealed_by: row.key_id,
            created_at: Some(row.created_at.to_jiff()),
        });
    }
    Ok(keys)
}

/// Lists the secrets under another master key than the servers', outside of a rotation.
///
/// # Errors
/// When the database fails.
pub async fn list_strays(conn: &mut PgConnection) -> anyhow::Result<Vec<String>> {
    if db::key_rotations::find(conn, MASTER).await?.is_some() {
        return Ok(Vec::new());
    }
    match db::keys::find(conn, "permit").await? {
        Some(sealed) => list_left(conn, &sealed.key_id).await,
        None => Ok(Vec::new()),
    }
}

/// Lists the rotations under way.
///
/// # Errors
/// When the database fails.
pub async fn list_rotations(
    conn: &mut PgConnection,
    now: Timestamp,
) -> anyhow::Result<Vec<RotationReport>> {
    let mut found = Vec::new();
    if let Some(row) = db::key_rotations::find(conn, MASTER).await? {
        let mut needs = list_left(conn, &row.next).await?;
        let lacking = list_lacking(conn, &row.next, now).await?;
        needs.extend(
            lacking
                .into_iter()
                .map(|host| format!("the server on {host}")),
        );
        found.push(RotationReport {
            key: MASTER,
            command: "rotate-master",
            former: row.former,
            next: row.next,
            begun_at: row.begun_at.to_jiff(),
            needs,
        });
    }
    for (key, command) in [
        (RingKey::UserCa, "rotate-ssh-ca"),
        (RingKey::Permit, "rotate-permit"),
        (RingKey::AgentCa, "rotate-agent-ca"),
    ] {
        let Some(row) = db::key_rotations::find(conn, key.name()).await? else {
            continue;
        };
        let servers = signing::list_servers_without(conn, key, &row.next, now).await?;
        let servers = servers.iter().map(|host| format!("the server on {host}"));
        let holders = signing::list_holders(conn, key, &row.next).await?;
        let holders = holders.into_iter().map(|holder| holder.need);
        found.push(RotationReport {
            key: key.name(),
            command,
            former: row.former,
            next: row.next,
            begun_at: row.begun_at.to_jiff(),
            needs: servers.chain(holders).collect(),
        });
    }
    Ok(found)
}
