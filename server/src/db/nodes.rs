//! Nodes as clients declare and read them. The state of a node is written by the lifecycle module
//! only.

use crate::db::observed::SeenPower;
use muster_core::gates::SuiteVerdict;
use muster_core::lifecycle::state::{Action, Purpose, State};
use muster_core::lifecycle::wait::WaitReason;
use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::facts::Firmware;
use muster_core::ids::{NodeId, ObjectId, OperationId};
use muster_core::words;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::objects::Labels;
use crate::error::Error;

/// A node with related data for its readers.
#[derive(Clone, Debug)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub labels: Labels,
    pub annotations: Labels,
    pub spec: Value,
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub protected: bool,
    pub unsanitised: bool,
    pub site_id: ObjectId,
    pub rack_id: Option<ObjectId>,
    pub profile_id: Option<ObjectId>,
    pub state: State,
    pub entered_at: Timestamp,
    pub deadline_at: Option<jiff_sqlx::Timestamp>,
    pub purpose: Option<Purpose>,
    pub failed_phase: Option<State>,
    pub reason: Option<String>,
    pub epoch: i64,
    pub action: Option<Action>,
    pub operation_id: Option<OperationId>,
    pub waiting_for: Option<String>,
    /// A word of `WaitReason`.
    pub waiting_reason: Option<String>,
    pub waiting_since: Option<jiff_sqlx::Timestamp>,
    pub waiting_owner: Option<String>,
    pub next_action: Option<String>,
    pub in_cluster: bool,
    pub live: bool,
    pub claim: Option<String>,
    pub pool: Option<String>,
    /// Attempts of the latest step of this stay.
    pub attempts: Option<i64>,
    pub facts_observed_at: Option<jiff_sqlx::Timestamp>,
    /// `on` or `off` as last observed by a job, with the time in `power_seen_at`.
    pub power_seen: Option<SeenPower>,
    pub power_seen_at: Option<jiff_sqlx::Timestamp>,
    /// Number of items differing from the stack, by the latest comparison.
    pub drift_items: Option<i32>,
    /// Start of the period without jobs from the scheduler.
    pub out_since: Option<jiff_sqlx::Timestamp>,
    pub gate_run_id: Option<Uuid>,
    pub gate_run_suite: Option<String>,
    pub gate_run_verdict: Option<SuiteVerdict>,
    pub gate_run_finished_at: Option<jiff_sqlx::Timestamp>,
    /// Time of the latest call by any agent of the site.
    pub agent_seen: Option<jiff_sqlx::Timestamp>,
}

/// The client-owned part of a node, with its references resolved.
#[derive(Clone, Debug)]
pub struct Content {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: Value,
    pub site: ObjectId,
    pub rack: Option<ObjectId>,
    pub rack_unit: Option<i32>,
    pub profile: Option<ObjectId>,
    pub serial: Option<String>,
    pub smbios_uuid: Option<Uuid>,
    pub power: Power,
    /// Address and port of the serial console.
    pub console: Option<(IpAddr, u16)>,
    pub protected: bool,
    /// A newly accepted certificate of the BMC. `None` keeps the pinned one.
    pub certificate: Option<String>,
}

words! {
    /// The kind of power control.
    PowerKind, "kind of power control" {
        Redfish = "redfish",
        Ipmi = "ipmi",
        /// A person switches the machine.
        Manual = "manual",
    }
}

/// The power control of a node.
#[derive(Clone, Debug)]
pub enum Power {
    Redfish {
        address: IpAddr,
        port: u16,
        credential: ObjectId,
        system: Option<String>,
    },
    Ipmi {
        address: IpAddr,
        port: u16,
        credential: ObjectId,
        firmware: Firmware,
    },
    Manual {
        person: String,
    },
}

/// A node under lock, for a writer.
#[derive(Clone, Debug)]
pub struct LockedNode {
    pub id: NodeId,
    pub name: String,
    pub state: State,
    pub generation: i64,
    pub protected: bool,
    pub epoch: i64,
    pub action: Option<Action>,
    pub operation_id: Option<OperationId>,
    pub profile_id: Option<ObjectId>,
    pub site_id: ObjectId,
    pub spec: Value,
    pub labels: Labels,
    pub annotations: Labels,
    pub claimed: bool,
    /// The claim of the node is being released.
    pub releasing: bool,
    /// A word of `WaitReason`.
    pub waiting_reason: Option<String>,
    pub power_reserved_w: i32,
    /// The state that failed, of a failed node.
    pub failed_phase: Option<State>,
}

impl LockedNode {
    /// Returns whether the requested action waits for a slot of the disruption budget.
    pub fn waits_for_slot(&self) -> bool {
        self.waiting_reason.as_deref() == Some(WaitReason::Slot.as_str())
    }
}

/// Returns the id of a node by name or id.
pub async fn find_id(conn: &mut PgConnection, key: &str) -> Result<Option<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: NodeId" FROM nodes WHERE name = $1 OR id = $2"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns one node by name or id, locked until the transaction ends.
pub async fn find_for_update(
    conn: &mut PgConnection,
    key: &str,
) -> Result<Option<LockedNode>, Error> {
    Ok(sqlx::query_as!(
        LockedNode,
        r#"SELECT id AS "id: NodeId", name, state, generation, protected, epoch, wish AS action, operation_id AS "operation_id: OperationId",
                  profile_id AS "profile_id: ObjectId", site_id AS "site_id: ObjectId", spec, labels AS "labels: Labels",
                  annotations AS "annotations: Labels",
                  EXISTS (SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released') AS "claimed!",
                  EXISTS (SELECT FROM claims c WHERE c.node_id = n.id AND c.state = 'releasing') AS "releasing!", waiting_reason, power_reserved_w,
                  failed_phase
           FROM nodes n WHERE name = $1 OR id = $2 FOR UPDATE"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists nodes by id, ordered by name. Deleted ids are left out.
pub async fn list(conn: &mut PgConnection, ids: &[NodeId]) -> Result<Vec<NodeRow>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        NodeRow,
        r#"SELECT n.id AS "id: NodeId", n.name, n.labels AS "labels: Labels", n.annotations AS "annotations: Labels", n.spec,
                  n.generation, n.created_at, n.updated_at, n.protected, n.unsanitised, n.site_id AS "site_id: ObjectId",
                  n.rack_id AS "rack_id: ObjectId", n.profile_id AS "profile_id: ObjectId", n.state, n.entered_at,
                  n.deadline_at, n.purpose, n.failed_phase, n.reason, n.epoch, n.wish AS action,
                  n.operation_id AS "operation_id: OperationId", n.waiting_for, n.waiting_reason, n.waiting_since, n.waiting_owner,
                  n.power_seen, n.power_seen_at, n.drift_items,
                  (SELECT o.since FROM scheduler_outs o WHERE o.node_id = n.id) AS "out_since: jiff_sqlx::Timestamp",
                  n.next_action, n.in_cluster, n.live_host_key IS NOT NULL AS "live!",
                  c.name AS "claim?", p.name AS "pool?",
                  (SELECT j.attempt::bigint FROM jobs j WHERE j.node_id = n.id AND j.visit = n.visit ORDER BY j.id DESC LIMIT 1) AS attempts,
                  (SELECT max(f.observed_at) FROM facts f WHERE f.node_id = n.id) AS facts_observed_at,
                  g.id AS "gate_run_id?", g.suite AS "gate_run_suite?", g.verdict AS "gate_run_verdict?",
                  g.finished_at AS "gate_run_finished_at?",
                  (SELECT max(a.last_seen) FROM agents a WHERE a.site_id = n.site_id) AS agent_seen
           FROM nodes n
           LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           LEFT JOIN objects p ON p.id = c.pool_id
           LEFT JOIN LATERAL (SELECT r.id, r.suite, r.verdict, r.finished_at FROM gate_runs r
                              WHERE r.node_id = n.id AND r.voided_at IS NULL
                              ORDER BY r.id DESC LIMIT 1) g ON true
           WHERE n.id = ANY($1) ORDER BY n.name"#,
        &ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Registers a node as discovered.
///
/// # Errors
/// When a constraint is violated: the name, serial, UUID or BMC address is taken.
pub async fn insert(
    conn: &mut PgConnection,
    id: NodeId,
    name: &str,
    content: &Content,
    now: Timestamp,
) -> Result<(), Error> {
    let (power, console) = (PowerColumns::of(&content.power), content.console);
    sqlx::query!(
        "INSERT INTO nodes (id, name, labels, annotations, spec, site_id, rack_id, rack_unit, profile_id, serial, smbios_uuid,
                            power, power_person, bmc_address, bmc_port, bmc_credential_id, console_address, console_port, protected,
                            created_at, updated_at, state, entered_at, due_at, bmc_system, bmc_firmware, bmc_certificate)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $20, 'discovered', $20, $20,
                 $21, $22, $23)",
        id as NodeId,
        name,
        Json(&content.labels) as _,
        Json(&content.annotations) as _,
        content.spec,
        content.site as ObjectId,
        content.rack as Option<ObjectId>,
        content.rack_unit,
        content.profile as Option<ObjectId>,
        content.serial,
        content.smbios_uuid,
        power.kind as PowerKind,
        power.person,
        power.address,
        power.port,
        power.credential as Option<ObjectId>,
        console.map(|(address, _)| IpNet::from(address)) as Option<IpNet>,
        console.map(|(_, port)| i32::from(port)),
        content.protected,
        now.to_sqlx() as _,
        power.system,
        power.firmware as Option<Firmware>,
        content.certificate,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Replaces the client-owned part and raises the generation. The caller holds the row's lock.
///
/// # Errors
/// When a constraint is violated.
pub async fn set_content(
    conn: &mut PgConnection,
    id: NodeId,
    content: &Content,
    now: Timestamp,
) -> Result<(), Error> {
    let (power, console) = (PowerColumns::of(&content.power), content.console);
    sqlx::query!(
        "UPDATE nodes SET labels = $2, annotations = $3, spec = $4, site_id = $5, rack_id = $6, rack_unit = $7, profile_id = $8,
                serial = $9, smbios_uuid = $10, power = $11, power_person = $12, bmc_address = $13, bmc_port = $14,
                bmc_credential_id = $15, console_address = $16, console_port = $17, protected = $18,
                generation = generation + 1, updated_at = $19, due_at = $19, bmc_system = $20, bmc_firmware = $21,
                bmc_certificate = coalesce($22, bmc_certificate)
         WHERE id = $1",
        id as NodeId,
        Json(&content.labels) as _,
        Json(&content.annotations) as _,
        content.spec,
        content.site as ObjectId,
        content.rack as Option<ObjectId>,
        content.rack_unit,
        content.profile as Option<ObjectId>,
        content.serial,
        content.smbios_uuid,
        power.kind as PowerKind,
        power.person,
        power.address,
        power.port,
        power.credential as Option<ObjectId>,
        console.map(|(address, _)| IpNet::from(address)) as Option<IpNet>,
        console.map(|(_, port)| i32::from(port)),
        content.protected,
        now.to_sqlx() as _,
        power.system,
        power.firmware as Option<Firmware>,
        content.certificate,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// `Power` as database columns.
struct PowerColumns<'power> {
    kind: PowerKind,
    person: Option<&'power str>,
    address: Option<IpNet>,
    port: i32,
    credential: Option<ObjectId>,
    system: Option<&'power str>,
    firmware: Option<Firmware>,
}

impl<'power> PowerColumns<'power> {
    fn of(power: &'power Power) -> Self {
        let nothing = Self {
            kind: PowerKind::Manual,
            person: None,
            address: None,
            port: 443,
            credential: None,
            system: None,
            firmware: None,
        };
        let bmc = |kind, address: IpAddr, port: u16, credential| Self {
            kind,
            address: Some(IpNet::from(address)),
            port: i32::from(port),
            credential: Some(credential),
            ..nothing
        };
        match power {
            Power::Redfish {
                address,
                port,
                credential,
                system,
            } => Self {
                system: system.as_deref(),
                ..bmc(PowerKind::Redfish, *address, *port, *credential)
            },
            Power::Ipmi {
                address,
                port,
                credential,
                firmware,
            } => Self {
                firmware: Some(*firmware),
                ..bmc(PowerKind::Ipmi, *address, *port, *credential)
            },
            Power::Manual { person } => Self {
                person: Some(person),
                ..nothing
            },
        }
    }
}

/// Renames a node. The caller holds the row's lock.
///
/// # Errors
/// When the name is taken.
pub async fn set_name(
    conn: &mut PgConnection,
    node: NodeId,
    name: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET name = $2, generation = generation + 1, updated_at = $3 WHERE id = $1",
        node as NodeId,
        name,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Sets the automatic end of a maintenance requested now. `None`: a person ends the maintenance.
pub async fn set_maintenance_end(
    conn: &mut PgConnection,
    node: NodeId,
    until: Option<Timestamp>,
) -> Result<(), Error> {
    let until = until.map(|at| at.to_sqlx());
    sqlx::query!(
        "UPDATE nodes SET maintenance_until = $2 WHERE id = $1",
        node as NodeId,
        until as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores the requested action of a node and makes the node due for the engine. The wait condition of
/// the former action ends. The caller holds the row's lock.
pub async fn set_action(
    conn: &mut PgConnection,
    node: NodeId,
    action: Action,
    reason: Option<&str>,
    operation: OperationId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET wish = $2, wish_reason = $3, operation_id = $4, due_at = $5,
                waiting_for = NULL, waiting_reason = NULL, waiting_since = NULL, waiting_owner = NULL, next_action = NULL
         WHERE id = $1",
        node as NodeId,
        action.as_str(),
        reason,
        operation as OperationId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Sets the assignment of a node to or from a claim: a new assignment epoch and a new operation.
/// The former wait condition ends. The caller holds the row's lock.
pub async fn set_assignment(
    conn: &mut PgConnection,
    node: NodeId,
    epoch: i64,
    operation: OperationId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET epoch = $2, operation_id = $3, due_at = $4,
                waiting_for = NULL, waiting_reason = NULL, waiting_since = NULL, waiting_owner = NULL, next_action = NULL
         WHERE id = $1",
        node as NodeId,
        epoch,
        operation as OperationId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Unregisters a node with its facts, gate runs and ended claims. Events of the node are kept.
pub async fn delete(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM claims WHERE node_id = $1 AND state = 'released'",
        node as NodeId
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!("DELETE FROM nodes WHERE id = $1", node as NodeId)
        .execute(conn)
        .await?;
    Ok(())
}
