//! The sources of a job's order: the node with everything declared around it.

use crate::db::nodes::PowerKind;
use muster_core::facts::Firmware;
use muster_core::lifecycle::steps::Step;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use muster_core::clusters::ClusterSpec;
use muster_core::gates::{Gate, Suite};
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId, RevisionId};
use muster_core::images::ImageManifest;
use muster_core::lifecycle::state::State;
use muster_core::profiles::HardwareProfile;
use muster_core::stacks::StackSpec;
use muster_core::values::Mac;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use sqlx::types::ipnet::IpNet;
use sqlx::types::mac_address::MacAddress;
use uuid::Uuid;

use crate::error::Error;

/// A node with the declared objects around it, as needed for an order.
#[derive(Clone, Debug)]
pub struct OrderNode {
    pub id: NodeId,
    pub name: String,
    pub labels: Value,
    pub state: State,
    pub protected: bool,
    pub epoch: i64,
    /// The assignment epoch under which the installed OS was written.
    pub os_epoch: i64,
    pub serial: Option<String>,
    pub smbios_uuid: Option<String>,
    pub power: PowerKind,
    pub power_person: Option<String>,
    pub bmc_address: Option<IpAddr>,
    pub bmc_port: i32,
    pub bmc_credential: Option<ObjectId>,
    pub bmc_certificate: Option<String>,
    pub bmc_system: Option<String>,
    pub bmc_firmware: Option<Firmware>,
    pub live_host_key: Option<String>,
    pub os_host_key: Option<String>,
    pub root_disk_serial: Option<String>,
    pub rack: Option<String>,
    pub site_spec: Value,
    pub profile: Option<HardwareProfile>,
    /// The claim id of the marker on the node's disks.
    pub claim: Option<ClaimId>,
    /// Image and stack of the revision. Absent without a claim, and where a stored copy cannot be
    /// parsed.
    pub image: Option<ImageManifest>,
    pub stack: Option<StackSpec>,
    /// The number of the revision, if one of its copies cannot be parsed.
    pub unreadable_revision: Option<i32>,
    /// Muster wrote the disk, and image or network written differ from the revision.
    pub needs_reinstall: bool,
    pub suite: Option<Suite>,
    pub cluster_name: Option<String>,
    pub cluster: Option<ClusterSpec>,
}

impl OrderNode {
    /// Returns the image of the revision.
    ///
    /// # Errors
    /// The reason, for a person.
    pub fn need_image(&self) -> Result<&ImageManifest, String> {
        self.image.as_ref().ok_or_else(|| self.lacks("image"))
    }

    /// Returns the stack of the revision.
    ///
    /// # Errors
    /// The reason, for a person.
    pub fn need_stack(&self) -> Result<&StackSpec, String> {
        self.stack.as_ref().ok_or_else(|| self.lacks("stack"))
    }

    fn lacks(&self, kind: &str) -> String {
        match self.unreadable_revision {
            Some(number) => format!(
                "revision {number} cannot be read by this version: publish the {kind} again and assign the new revision"
            ),
            None => format!("the pool names no {kind}"),
        }
    }
}

/// The revision of a node whose documents are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The revision to install, and to compare with.
    Assigned,
    /// The revision that the node was observed to run; the assigned one while that is unknown. Gates
    /// measure a node by what was installed.
    Running,
}

/// Loads a node with the documents of its assigned revision.
///
/// # Errors
/// When a stored document outside of the revision cannot be parsed.
pub async fn find_node(conn: &mut PgConnection, node: NodeId) -> Result<OrderNode, Error> {
    find_node_by(conn, node, Basis::Assigned).await
}

/// Loads a node with all data an order may need.
///
/// # Errors
/// As [`find_node`].
pub async fn find_node_by(
    conn: &mut PgConnection,
    node: NodeId,
    basis: Basis,
) -> Result<OrderNode, Error> {
    let row = sqlx::query!(
        r#"SELECT n.id AS "id: NodeId", n.name, n.labels AS "labels: Json<Value>", n.state, n.protected, n.epoch, COALESCE(n.os_epoch, n.epoch) AS "os_epoch!", n.serial, n.smbios_uuid::text AS smbios_uuid, n.power, n.power_person,
                  n.bmc_address AS "bmc_address: IpNet", n.bmc_port, n.bmc_credential_id AS "bmc_credential: ObjectId", n.bmc_certificate,
                  n.bmc_system, n.bmc_firmware, n.live_host_key, n.os_host_key, n.root_disk_serial, rack.name AS "rack?", site.spec AS "site: Json<Value>",
                  profile.spec AS "profile?: Json<HardwareProfile>", COALESCE(c.marker, c.id, adoption.claim_id) AS "claim?: ClaimId",
                  revision.number AS "revision?", revision.image AS "image?", revision.stack AS "stack?",
                  (imaged.id IS NOT NULL AND n.root_disk_serial IS NOT NULL AND (imaged.image ->> 'raw_digest', imaged.network_profile)
                      IS DISTINCT FROM (revision.image ->> 'raw_digest', revision.network_profile)) AS "needs_reinstall!", suite.spec AS "suite?: Json<Suite>",
                  cluster.name AS "cluster_name?", cluster.spec AS "cluster?: Json<ClusterSpec>",
                  (SELECT finder.gate FROM recovery_finders finder WHERE finder.recovery_id = r.id) AS "finder: Json<Gate>"
           FROM nodes n
           JOIN objects site ON site.id = n.site_id
           LEFT JOIN objects rack ON rack.id = n.rack_id
           LEFT JOIN objects profile ON profile.id = n.profile_id
           LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           LEFT JOIN adoptions adoption ON adoption.node_id = n.id AND n.state = 'discovered'
           LEFT JOIN objects pool ON pool.id = COALESCE(c.pool_id, adoption.pool_id)
           LEFT JOIN present_revisions present ON present.pool_id = pool.id
           LEFT JOIN pool_revisions revision ON revision.id = COALESCE(CASE WHEN $2 THEN c.running_id END, c.assigned_id, present.revision_id)
           LEFT JOIN pool_revisions imaged ON imaged.id = COALESCE(c.imaged_id, c.running_id)
           LEFT JOIN objects suite ON suite.kind = 'suite' AND suite.name = pool.spec ->> 'suite'
           LEFT JOIN objects cluster ON cluster.kind = 'cluster' AND cluster.name = pool.spec ->> 'cluster'
           LEFT JOIN recoveries r ON r.node_id = n.id AND r.ended_at IS NULL
           WHERE n.id = $1"#,
        node as NodeId,
        basis == Basis::Running,
    )
    .fetch_one(conn)
    .await?;
    let image = row.image.map(serde_json::from_value).transpose();
    let stack = row.stack.map(serde_json::from_value).transpose();
    let finder = row.finder.map(|json| json.0);
    Ok(OrderNode {
        unreadable_revision: row.revision.filter(|_| image.is_err() || stack.is_err()),
        id: row.id,
        name: row.name,
        labels: row.labels.0,
        state: row.state,
        protected: row.protected,
        epoch: row.epoch,
        os_epoch: row.os_epoch,
        serial: row.serial,
        smbios_uuid: row.smbios_uuid,
        power: row.power,
        power_person: row.power_person,
        bmc_address: row.bmc_address.map(|net| net.addr()),
        bmc_port: row.bmc_port,
        bmc_credential: row.bmc_credential,
        bmc_certificate: row.bmc_certificate,
        bmc_system: row.bmc_system,
        bmc_firmware: row.bmc_firmware,
        live_host_key: row.live_host_key,
        os_host_key: row.os_host_key,
        root_disk_serial: row.root_disk_serial,
        rack: row.rack,
        site_spec: row.site.0,
        profile: row.profile.map(|json| json.0),
        claim: row.claim,
        image: image.unwrap_or_default(),
        stack: stack.unwrap_or_default(),
        needs_reinstall: row.needs_reinstall,
        suite: row.suite.map(|json| json.0.with_finder(finder)),
        cluster_name: row.cluster_name,
        cluster: row.cluster.map(|json| json.0),
    })
}

/// Network access of a node: all boot MACs, and the first MAC having an address, with the address
/// and subnet.
#[derive(Clone, Debug)]
pub struct Wiring {
    pub macs: Vec<Mac>,
    pub boot_mac: Mac,
    pub address: Ipv4Addr,
    pub subnet_name: String,
    pub subnet: Value,
}

/// Loads a node's network access. `None`: no MAC of the node has an IPv4 address.
pub async fn find_wiring(conn: &mut PgConnection, node: NodeId) -> Result<Option<Wiring>, Error> {
    let rows = sqlx::query!(
        r#"SELECT m.mac AS "mac: MacAddress", m.address AS "address: IpNet", s.name AS "subnet_name?", s.spec AS "subnet?: Json<Value>"
           FROM node_macs m LEFT JOIN objects s ON s.id = m.subnet_id WHERE m.node_id = $1 ORDER BY m.mac"#,
        node as NodeId,
    )
    .fetch_all(conn)
    .await?;
    let macs = rows.iter().map(|row| Mac(row.mac.bytes())).collect();
    let wired = rows
        .into_iter()
        .find_map(|row| match (row.address, row.subnet, row.subnet_name) {
            (Some(IpNet::V4(address)), Some(subnet), Some(name)) => {
                Some((Mac(row.mac.bytes()), address.addr(), name, subnet.0))
            }
            _ => None,
        });
    Ok(
        wired.map(|(boot_mac, address, subnet_name, subnet)| Wiring {
            macs,
            boot_mac,
            address,
            subnet_name,
            subnet,
        }),
    )
}

/// Returns the nonce of the boot of the running live image. The nonce is the principal for logins
/// to the live image.
pub async fn find_live_nonce(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT nonce FROM jobs WHERE node_id = $1 AND step = 'boot_live' AND state = 'succeeded' ORDER BY finished_at DESC LIMIT 1",
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?
    .flatten())
}

/// Returns the claim whose marker the node's disks may carry: the current claim, or else the
/// latest. An incomplete wipe leaves the marker of the latest claim. Remains of a deleted node name
/// a former claim, and count from the moment of the merge.
pub async fn find_last_claim(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<ClaimId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT marked.id AS "id!: ClaimId" FROM (
               SELECT COALESCE(marker, id) AS id, state <> 'released' AS is_open, released_at AS over_at, created_at FROM claims WHERE node_id = $1
               UNION ALL
               SELECT r.claim_id, false, h.merged_at, r.left_at FROM remains_heirs h JOIN remains r ON r.id = h.remains_id
               WHERE h.node_id = $1 AND r.unsanitised AND r.claim_id IS NOT NULL
                 AND NOT EXISTS (SELECT FROM claims held WHERE COALESCE(held.marker, held.id) = r.claim_id AND held.state <> 'released')) AS marked
           ORDER BY marked.is_open DESC, marked.over_at DESC, marked.created_at DESC, marked.id DESC LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the user name of a BMC credential.
pub async fn find_credential_user(
    conn: &mut PgConnection,
    credential: ObjectId,
) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT spec ->> 'user' FROM objects WHERE id = $1",
        credential as ObjectId
    )
    .fetch_one(conn)
    .await?)
}

/// Returns a stack credential by name.
pub async fn find_credential(
    conn: &mut PgConnection,
    name: &str,
) -> Result<Option<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: ObjectId" FROM objects WHERE kind = 'credential' AND name = $1 AND spec ->> 'purpose' = 'stack'"#,
        name,
    )
    .fetch_optional(conn)
    .await?)
}

/// A node listed in a cluster's configuration. Profile and revision are shared by many nodes and
/// referred to by id.
#[derive(Clone, Debug)]
pub struct MemberRow {
    pub name: String,
    pub address: Ipv4Addr,
    pub rack: Option<String>,
    pub profile: ObjectId,
    /// The running revision, or the assigned one while that is unknown.
    pub revision: Option<RevisionId>,
}

/// Returns the next revision of member lists. A list with a later revision includes everything
/// committed before this call.
pub async fn next_revision(conn: &mut PgConnection) -> Result<i64, Error> {
    Ok(
        sqlx::query_scalar!(r#"SELECT nextval('cluster_revisions') AS "revision!""#)
            .fetch_one(conn)
            .await?,
    )
}

/// Returns the name of the cluster of the pool claiming a node.
pub async fn find_cluster(conn: &mut PgConnection, node: NodeId) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT pool.spec ->> 'cluster' FROM claims c JOIN objects pool ON pool.id = c.pool_id WHERE c.node_id = $1 AND c.state <> 'released'",
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?
    .flatten())
}

/// Returns the members of a cluster with the revision of the list. Nodes being removed are left
/// out, so that another node's list does not add them again. Adopted nodes are left out until they
/// have left the cluster once, because the configuration of another system lists them. A lock until
/// the end of the transaction keeps lists and revisions in the same order.
pub async fn list_members(
    conn: &mut PgConnection,
    cluster: &str,
) -> Result<(i64, Vec<MemberRow>), Error> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('cluster ' || $1, 0))",
        cluster
    )
    .execute(&mut *conn)
    .await?;
    let revision = next_revision(conn).await?;
    let rows = sqlx::query!(
        r#"SELECT n.name, n.profile_id AS "profile!: ObjectId", rack.name AS "rack?",
                  COALESCE(c.running_id, c.assigned_id, present.revision_id) AS "revision?: RevisionId",
                  (SELECT m.address FROM node_macs m WHERE m.node_id = n.id AND m.address IS NOT NULL ORDER BY m.mac LIMIT 1) AS "address: IpNet"
           FROM nodes n
           JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           JOIN objects pool ON pool.id = c.pool_id AND pool.spec ->> 'cluster' = $1
           LEFT JOIN objects rack ON rack.id = n.rack_id
           LEFT JOIN present_revisions present ON present.pool_id = pool.id
           WHERE n.in_cluster AND NOT n.adopted AND n.profile_id IS NOT NULL
             AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.visit = n.visit AND j.step = 'remove')
           ORDER BY n.name"#,
        cluster,
    )
    .fetch_all(conn)
    .await?;
    let members = rows.into_iter().filter_map(|row| match row.address {
        Some(IpNet::V4(address)) => Some(MemberRow {
            name: row.name,
            address: address.addr(),
            rack: row.rack,
            profile: row.profile,
            revision: row.revision,
        }),
        _ => None,
    });
    Ok((revision, members.collect()))
}

/// Returns the documents of objects of one kind, by id.
///
/// # Errors
/// When a stored document cannot be parsed.
pub async fn list_specs<T: DeserializeOwned>(
    conn: &mut PgConnection,
    ids: impl IntoIterator<Item = ObjectId>,
) -> Result<HashMap<ObjectId, T>, Error> {
    let ids: BTreeSet<Uuid> = ids.into_iter().map(|id| id.0).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let rows = sqlx::query!(
        r#"SELECT id AS "id: ObjectId", spec AS "spec: Json<Value>" FROM objects WHERE id = ANY($1)"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let read = |spec| serde_json::from_value(spec).map_err(Error::internal);
    rows.into_iter()
        .map(|row| Ok((row.id, read(row.spec.0)?)))
        .collect()
}

/// Returns the suite used by a run of gates, and the node's hardware profile. The suite is the
/// pool's sweep for a sweep, else the suite named by the operation, else the suite of the pool.
/// `None`: the suite was deleted.
pub async fn suite_of(
    conn: &mut PgConnection,
    node: NodeId,
    step: Step,
    operation: Option<OperationId>,
) -> Result<(Option<Suite>, Option<HardwareProfile>), Error> {
    let found = find_node(conn, node).await?;
    let suite = match step {
        Step::Sweep => super::sweeps::find_suite(conn, node, "sweep").await?,
        _ => match find_asked_suite(conn, operation).await? {
            Some(asked) => asked.ok(),
            None => found.suite,
        },
    };
    Ok((suite, found.profile))
}

/// Returns the name of the suite of the pool claiming a node, if any.
pub async fn find_pool_suite(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT suite.name FROM claims c JOIN objects pool ON pool.id = c.pool_id
           JOIN objects suite ON suite.kind = 'suite' AND suite.name = pool.spec ->> 'suite'
           WHERE c.node_id = $1 AND c.state <> 'released'"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the suite that decides about the nodes of a pool. `None`: the pool names none, or the suite
/// was deleted.
///
/// # Errors
/// When the stored suite cannot be parsed.
pub async fn find_suite_of(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<Suite>, Error> {
    let suite = sqlx::query_scalar!(
        r#"SELECT suite.spec AS "spec: Json<Suite>" FROM objects pool
           JOIN objects suite ON suite.kind = 'suite' AND suite.name = pool.spec ->> 'suite' WHERE pool.id = $1"#,
        pool as ObjectId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(suite.map(|suite| suite.0))
}

/// Returns the suite named by an operation. The inner `Err` contains the name of a deleted suite.
///
/// # Errors
/// When the stored suite cannot be parsed.
pub async fn find_asked_suite(
    conn: &mut PgConnection,
    operation: Option<OperationId>,
) -> Result<Option<Result<Suite, String>>, Error> {
    let row = sqlx::query!(
        r#"SELECT o.suite AS "name!", s.spec AS "spec?: Json<Suite>"
           FROM operations o LEFT JOIN objects s ON s.kind = 'suite' AND s.name = o.suite
           WHERE o.id = $1 AND o.suite IS NOT NULL"#,
        operation as Option<OperationId>,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| row.spec.map(|spec| spec.0).ok_or(row.name)))
}
