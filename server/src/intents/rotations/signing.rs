//! The rotations of the SSH user CA, of the permit key and of the authority of agents. The begin
//! stores the new key beside the former key. Agents, live images and nodes take the new key in the
//! course of their work. Each rotation and its end is a single transaction.

use anyhow::{bail, ensure};
use jiff::Timestamp;
use sqlx::PgConnection;

use super::events::{Act, tell};
use super::master::SILENT;
use crate::db;
use crate::db::agent_authorities::FormerRow;
use crate::db::key_rotations::{HolderRow, NewRotation};
use crate::db::taken_keys::LackingRow;
use crate::keys::rings::{RingKey, make_next, promote_next};
use crate::keys::{MasterKey, follow_master};

/// Most holders of a former key in a message.
const NAMED: usize = 20;

/// A holder of the former key alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of the agent or node.
    pub name: String,
    /// The holder and the remedy, for people.
    pub need: String,
}

/// Makes a new key valid beside the former key. `false`: the rotation had begun before.
///
/// # Errors
/// When the database fails, the master key did not seal the keys, or a running server is of the
/// version before and knows of one authority.
pub async fn begin(
    conn: &mut PgConnection,
    master: &MasterKey,
    key: RingKey,
    act: Act<'_>,
) -> anyhow::Result<bool> {
    db::key_rotations::lock_acts(conn).await?;
    follow_master(master, conn).await?;
    if db::key_rotations::find(conn, key.name()).await?.is_some() {
        return Ok(false);
    }
    prepare(conn, key, act.now).await?;
    let ids = make_next(master, conn, key, act.now).await?;
    let rotation = NewRotation {
        key: key.name(),
        former: &ids.former,
        next: &ids.next,
    };
    db::key_rotations::insert(conn, rotation, act.now).await?;
    let summary = format!(
        "{}: the new key {} is valid beside {}",
        key.name(),
        ids.next,
        ids.former
    );
    tell(conn, act, "key.rotation_started", summary, rotation).await?;
    Ok(true)
}

/// Ends the former key. `forgotten`: names of agents and nodes that lose the server's access.
///
/// # Errors
/// When no rotation is under way, another holder needs the former key, a running server lacks the
/// new key, or a forgotten name is of no holder.
pub async fn finish(
    conn: &mut PgConnection,
    master: &MasterKey,
    key: RingKey,
    forgotten: &[String],
    act: Act<'_>,
) -> anyhow::Result<String> {
    db::key_rotations::lock_acts(conn).await?;
    follow_master(master, conn).await?;
    let Some(row) = db::key_rotations::find(conn, key.name()).await? else {
        bail!(
            "no rotation of {} is under way: begin one without --finish",
            key.name()
        );
    };
    let lacking = list_servers_without(conn, key, &row.next, act.now).await?;
    ensure!(
        lacking.is_empty(),
        "these servers run without the new key: {}; upgrade them, or repeat the command in {} s",
        lacking.join(", "),
        SILENT.as_secs()
    );
    let holders = list_holders(conn, key, &row.next).await?;
    for name in forgotten {
        ensure!(
            holders.iter().any(|holder| holder.name == *name),
            "--forget {name}: no agent or node of this name needs the former key"
        );
    }
    let left = holders
        .iter()
        .filter(|holder| !forgotten.contains(&holder.name));
    let left: Vec<&str> = left.map(|holder| &*holder.need).collect();
    ensure!(
        left.is_empty(),
        "{} still need the former key: {}; `muster admin keys` lists them, and --forget NAME gives up one of them",
        left.len(),
        left[..left.len().min(NAMED)].join("; ")
    );
    promote_next(master, conn, key, act.now).await?;
    db::key_rotations::delete(conn, key.name()).await?;
    let mut summary = format!(
        "{}: the key {} is ended, after {}",
        key.name(),
        row.former,
        row.next
    );
    if !forgotten.is_empty() {
        summary += &format!("; without the new key: {}", forgotten.join(", "));
    }
    let rotation = NewRotation {
        key: key.name(),
        former: &row.former,
        next: &row.next,
    };
    tell(conn, act, "key.rotated", summary, rotation).await?;
    Ok(row.former)
}

/// Lists the holders of the former key alone.
///
/// # Errors
/// When the database fails.
pub async fn list_holders(
    conn: &mut PgConnection,
    key: RingKey,
    next: &str,
) -> anyhow::Result<Vec<Holder>> {
    let (agents, installed) = match key {
        RingKey::UserCa => (
            db::taken_keys::list_agents_without_ca(conn, next).await?,
            db::taken_keys::list_installed_without_ca(conn, next).await?,
        ),
        RingKey::Permit => (
            db::taken_keys::list_agents_without_permit(conn, next).await?,
            Vec::new(),
        ),
        RingKey::AgentCa => {
            let rows = db::agent_authorities::list_former(conn, next).await?;
            return Ok(rows.into_iter().map(describe_former).collect());
        }
    };
    let live = db::taken_keys::list_live_before(conn).await?;
    let agents = agents
        .into_iter()
        .map(|row| describe(row, "the agent", "restart the agent"));
    let live = live.into_iter().map(|row| {
        describe(
            row,
            "the live image of the node",
            "boot the live image again, after a restart of the site's agents",
        )
    });
    let installed = installed
        .into_iter()
        .map(|row| describe(row, "the node", "converge the node"));
    Ok(agents.chain(live).chain(installed).collect())
}

/// Lists the running servers that lack a new key. A server reads the keys of SSH and of permits at
/// each use, and holds the authorities of agents in memory.
///
/// # Errors
/// When the database fails.
pub async fn list_servers_without(
    conn: &mut PgConnection,
    key: RingKey,
    next: &str,
    now: Timestamp,
) -> anyhow::Result<Vec<String>> {
    match key {
        RingKey::UserCa | RingKey::Permit => Ok(Vec::new()),
        RingKey::AgentCa => {
            let running = list_running(conn, now).await?.into_iter();
            let lacking = running.filter(|row| !row.authorities.iter().any(|id| id == next));
            Ok(lacking.map(|row| row.host).collect())
        }
    }
}

async fn list_running(conn: &mut PgConnection, now: Timestamp) -> anyhow::Result<Vec<HolderRow>> {
    Ok(db::key_rotations::list_holders(conn, now - SILENT).await?)
}

/// Forgets the last rotation of the authority of agents, once every running server can accept two
/// authorities.
async fn prepare(conn: &mut PgConnection, key: RingKey, now: Timestamp) -> anyhow::Result<()> {
    match key {
        RingKey::UserCa | RingKey::Permit => return Ok(()),
        RingKey::AgentCa => {}
    }
    let running = list_running(conn, now).await?.into_iter();
    let old = running.filter(|row| row.authorities.is_empty());
    let old: Vec<String> = old.map(|row| row.host).collect();
    ensure!(
        old.is_empty(),
        "these servers are of the version before, and accept one authority: {}; upgrade each, and wait {} s after the last stop",
        old.join(", "),
        SILENT.as_secs()
    );
    Ok(db::agent_authorities::forget_all(conn).await?)
}

fn describe_former(row: FormerRow) -> Holder {
    let FormerRow {
        name,
        site,
        called,
        trusted,
    } = row;
    let remedy = match (called, trusted) {
        (false, _) => "no call since the begin: start the agent",
        (true, false) => "upgrade the agent, or read its log: the new authority is not stored",
        (true, true) => "new authority stored: the next renewal brings the certificate",
    };
    Holder {
        need: format!("the agent {name} of {site} ({remedy})"),
        name,
    }
}

fn describe(row: LackingRow, kind: &str, remedy: &str) -> Holder {
    let need = format!("{kind} {} of {} ({remedy})", row.name, row.site);
    Holder {
        name: row.name,
        need,
    }
}
