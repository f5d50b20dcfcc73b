//! A job: one unit of work on one node, leased to the agent.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clusters::{ClusterSpec, DrainReason, read_ordered};
use crate::ids::{JobId, NodeId, OperationId, PermitId};
use crate::stacks::ConvergePlan;
use crate::values::{Digest, Mac};
use crate::wire::adopt::Adopt;
use crate::wire::bmc::{Power, RotateBmc};
use crate::wire::firmware::SetFirmware;
use crate::wire::login::{Login, RevokedKeys, UserKey};
use crate::wire::node::{GatePlan, WipePlan, WriteImage};
use crate::wire::pair::PairOrder;

/// One unit of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub id: JobId,
    /// Fences off stale workers: only the latest attempt may commit.
    pub attempt: i32,
    pub node: NodeId,
    pub node_name: String,
    /// The fields for the agent's log lines. Absent in the orders of an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Assignment epoch of the node.
    pub epoch: i64,
    /// Time limit in seconds, from now.
    pub timeout_s: u64,
    /// `once` acts started by an earlier attempt. The agent observes the effect of each act and
    /// does not repeat an act blindly.
    pub acts: Vec<ActRecord>,
    /// Absent: the node refuses no certificate before its end, or has the list already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_keys: Option<RevokedKeys>,
    pub spec: JobSpec,
}

/// The operation and the request behind a job. The agent only logs the ids, so unknown fields of a
/// newer server are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub operation: OperationId,
    /// The id of the request that created the operation. Absent for an operation created by the
    /// server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The work of a job, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobSpec {
    /// Arm, power on (or reset) with a one-time PXE override, wait for the live image, log in,
    /// check identity. `once` inside.
    BootLive(BootLive),
    /// `muster-node inventory` in the live image or the installed OS.
    Inventory {
        login: Login,
        /// Interfaces with a declared cable. In the live image, the agent waits long enough on each
        /// interface for a switch to send LLDP.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cabled: Vec<String>,
    },
    /// Shut down through the OS if the OS is reachable, then by BMC, until the power is observed
    /// off. Observe, then act.
    PowerOff {
        power: Power,
        login: Option<Login>,
        permit: PermitId,
    },
    /// `muster-node run write-image`. Idempotent under its permit.
    WriteImage { login: Login, plan: WriteImage },
    /// Clear the override, reset into the installed OS, wait for the OS to show the expected host
    /// key. `once` inside.
    BootDisk {
        power: Power,
        /// The installed OS, with the host key recorded during the image write.
        login: Login,
        /// The live session in which the image was written. Without a BMC, the agent reboots the
        /// node from there.
        #[serde(default)]
        live: Option<Login>,
        permit: PermitId,
    },
    /// `muster-node run converge`. Idempotent.
    Converge { login: Login, plan: ConvergePlan },
    /// Reboot through the OS; wait for another boot id. `once` inside.
    Reboot {
        power: Power,
        login: Login,
        permit: PermitId,
    },
    /// `muster-node run gate`.
    Gates { login: Login, plan: GatePlan },
    /// Add the node to its cluster, wait until the scheduler's own view of the node is clean.
    #[serde(alias = "slurm_admit")]
    Admit {
        #[serde(deserialize_with = "read_ordered")]
        cluster: ClusterSpec,
        /// The [`ClusterMembers`](super::members::ClusterMembers) of this revision and of every
        /// later revision contain the node.
        revision: i64,
        name: String,
        login: Login,
        /// For a member returning without gates: lift only the drain with this reason. None: lift
        /// any drain of Muster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lifts: Option<DrainReason>,
    },
    /// Drain with our reason, then wait until no job runs on the node.
    #[serde(alias = "slurm_drain")]
    Drain {
        #[serde(deserialize_with = "read_ordered")]
        cluster: ClusterSpec,
        name: String,
        reason: DrainReason,
        /// The jobs on the node are requeued. Jobs that the scheduler does not requeue run to their
        /// end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        requeue: bool,
    },
    /// Remove the node from its cluster, observe that the scheduler no longer lists the node.
    #[serde(alias = "slurm_remove")]
    Remove {
        #[serde(deserialize_with = "read_ordered")]
        cluster: ClusterSpec,
        /// The [`ClusterMembers`](super::members::ClusterMembers) of this revision and of every
        /// later revision do not contain the node.
        revision: i64,
        name: String,
    },
    /// `muster-node run wipe`.
    Wipe { login: Login, plan: WipePlan },
    /// Log in to a machine installed without Muster, check the host key, write the marker and the
    /// line trusting our CA. Idempotent.
    Adopt(Adopt),
    /// Power on by BMC, until the power is observed on. A running node stays unchanged. Observe,
    /// then act.
    PowerOn { power: Power, permit: PermitId },
    /// Power-cycle by BMC, regardless of the software on the node. `once` inside.
    PowerCycle { power: Power, permit: PermitId },
    /// Set a new password for the BMC. Idempotent: the agent first tests which password the BMC
    /// accepts.
    RotateBmc(RotateBmc),
    /// `muster-node pair serve` at one end and `pair ask` at the other, then in the other
    /// direction. Read-only: repeated after a crash.
    Pair(Box<PairOrder>),
    /// Read firmware and BIOS from the BMC; with a permit, also set the wanted values. `once`
    /// inside.
    Firmware(SetFirmware),
}

impl JobSpec {
    /// The kind's name, as stored and shown.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BootLive(_) => "boot_live",
            Self::Inventory { .. } => "inventory",
            Self::PowerOff { .. } => "power_off",
            Self::WriteImage { .. } => "write_image",
            Self::BootDisk { .. } => "boot_disk",
            Self::Converge { .. } => "converge",
            Self::Reboot { .. } => "reboot",
            Self::Gates { .. } => "gates",
            Self::Admit { .. } => "admit",
            Self::Drain { .. } => "drain",
            Self::Remove { .. } => "remove",
            Self::Wipe { .. } => "wipe",
            Self::Adopt(_) => "adopt",
            Self::PowerOn { .. } => "power_on",
            Self::PowerCycle { .. } => "power_cycle",
            Self::RotateBmc(_) => "rotate_bmc",
            Self::Pair(_) => "pair",
            Self::Firmware(_) => "firmware",
        }
    }
}

/// An armed boot of the live image, for one node, one operation, one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootLive {
    pub power: Power,
    pub permit: PermitId,
    /// Every MAC the node may boot from.
    pub macs: Vec<Mac>,
    pub address: Ipv4Addr,
    /// 16 random bytes, hex; made by the server for this job, single use.
    pub nonce: String,
    pub kernel: Digest,
    pub initrd: Digest,
    pub user_key: UserKey,
    /// Identity required of the machine, if the identity is known.
    pub expect_uuid: Option<String>,
    pub expect_serial: Option<String>,
    /// The signature of kernel and initrd, from the site. Checked by agents with keys of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_signature: Option<String>,
}

/// A `once` act whose start is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActRecord {
    pub attempt: i32,
    pub act: String,
    pub before: String,
    pub started_at: Timestamp,
    /// Seconds since the start by the server's clock, because the clocks of server and agent can
    /// differ.
    pub age_s: u64,
}
