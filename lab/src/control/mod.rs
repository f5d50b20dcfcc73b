//! Access to the rack from outside the owning process: HTTP and JSON on a unix socket in the rack's
//! directory. Only root can enter the directory. The clients are `muster-lab`, for people, and
//! tests running beside the rack.

#![expect(
    clippy::disallowed_types,
    reason = "the lab refuses in its own words, to its own client"
)]

mod client; // The typed client

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub use client::LabClient;

use crate::bmc::Event;
use crate::bmc::faults::Fault;
use crate::error::LabError;
use crate::machine::PowerState;
use crate::machine::console::{CONSOLE_LOG, CONSOLE_SOCKET, listen};
use crate::machine::disks::{BlockRead, DiskUse};
use crate::machine::firmware::BootOverride;
use crate::machine::launch::GuestAct;
use crate::machine::oracle::{Cause, Entry};
use crate::slot::Slot;

/// Name of the socket file in the rack's directory.
pub const CONTROL_SOCKET: &str = "control.sock";

type Slots = Arc<BTreeMap<String, Slot>>;

/// The state of a machine, as seen by the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Name of the machine in the rack.
    pub name: String,
    /// Whether the machine has power.
    pub power: PowerState,
    /// Number of boots over the machine's life.
    pub boots: u64,
    /// The active boot override.
    pub boot_override: BootOverride,
    /// SMBIOS system serial.
    pub serial: String,
    /// SMBIOS system UUID.
    pub uuid: Uuid,
    /// MAC address of the network card used for boot.
    pub mac: String,
    /// Process id of the guest; `None` while the machine is off.
    pub pid: Option<u32>,
    /// Path of the console socket.
    pub console: PathBuf,
    /// Path of the console log.
    pub console_log: PathBuf,
    /// State of the BMC; `None` for a machine without a BMC.
    pub bmc: Option<BmcView>,
}

/// The state of a BMC, as seen by the lab. The password is in the plan only, not in this view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcView {
    /// The address and port of the listener.
    pub address: std::net::SocketAddr,
    /// SHA-256 of the certificate in DER.
    pub fingerprint: Digest,
    /// The active faults.
    pub faults: Vec<Fault>,
    /// Number of account lock-outs since the BMC started.
    pub lockouts: u32,
}

/// An act on a machine, as by a person standing at the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Press the power button briefly: a machine that is off starts, a running machine receives a
    /// request to shut down.
    PressButton,
    /// Pull the power cord and plug the cord in again: the machine is off and its memory lost.
    CutPower,
    /// Stop the CPUs of the machine; the power stays on.
    Wedge,
    /// Let stopped CPUs continue.
    Unwedge,
    /// Plug or unplug the network cable of the first card.
    SetLink {
        /// Whether the cable is plugged in.
        up: bool,
    },
    /// Set the SMART critical warning of an NVMe disk.
    SetNvmeWarning {
        /// Serial of the disk.
        serial: String,
        /// Warning bits, as in byte 0 of the SMART log.
        warning: u8,
    },
    /// Add a fault to the BMC.
    InjectFault {
        /// The fault and the requests to spoil.
        fault: Fault,
    },
    /// Remove all faults of the BMC.
    ClearFaults,
}

/// A read of a disk's content or usage.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum DiskQuery {
    /// The size of the disk and the bytes stored.
    Use,
    /// Blocks chosen at random from a seed.
    Sample {
        /// Seed of the random choice.
        seed: u64,
        /// Number of blocks.
        count: usize,
    },
    /// The blocks at the listed offsets.
    Blocks {
        /// Offsets in bytes.
        offsets: Vec<u64>,
    },
}

/// The answer to a [`DiskQuery`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum DiskAnswer {
    /// The size of the disk and the bytes stored.
    Use {
        /// The sizes in bytes.
        disk_use: DiskUse,
    },
    /// The blocks read.
    Blocks {
        /// Offset and digest of each block, in the requested order.
        blocks: Vec<BlockRead>,
    },
}

impl Slot {
    /// Performs an act on the machine or the BMC.
    pub async fn act(&self, act: Act) -> Result<(), LabError> {
        let machine = &self.machine;
        let bmc = || {
            self.bmc
                .as_ref()
                .ok_or_else(|| LabError::Unknown(format!("BMC of {}", machine.plan.name)))
        };
        match act {
            Act::PressButton => machine.press_button(Cause::Button).await,
            Act::CutPower => machine.power_off(Cause::Lab).await,
            Act::Wedge => machine.inflict(GuestAct::Wedge).await,
            Act::Unwedge => machine.inflict(GuestAct::Unwedge).await,
            Act::SetLink { up } => machine.inflict(GuestAct::SetLink { up }).await,
            Act::SetNvmeWarning { serial, warning } => {
                machine.set_nvme_warning(&serial, warning).await
            }
            Act::InjectFault { fault } => bmc().map(|bmc| bmc.inject(fault)),
            Act::ClearFaults => bmc().map(|bmc| bmc.clear_faults()),
        }
    }

    /// Returns the current state of the machine and the BMC.
    pub async fn view(&self) -> MachineView {
        let machine = &self.machine;
        let bmc = self.bmc.as_ref().map(|bmc| BmcView {
            address: bmc.address,
            fingerprint: bmc.fingerprint,
            faults: bmc.faults(),
            lockouts: bmc.lockouts(),
        });
        MachineView {
            name: machine.plan.name.to_string(),
            power: machine.power(),
            boots: machine.boots(),
            boot_override: machine.boot_override(),
            serial: machine.plan.serial.clone(),
            uuid: machine.plan.uuid,
            mac: machine.plan.mac.to_string(),
            pid: machine.pid().await,
            console: machine.dir.join(CONSOLE_SOCKET),
            console_log: machine.dir.join(CONSOLE_LOG),
            bmc,
        }
    }
}

/// The listening control socket; dropping the value closes the socket.
#[derive(Debug)]
pub(crate) struct ControlServer {
    _task: AbortOnDropHandle<()>,
}

impl ControlServer {
    /// Starts serving the machines in `slots` on the socket in `dir`.
    pub(crate) fn start(dir: &Path, slots: Slots) -> Result<Self, LabError> {
        let listener = listen(&dir.join(CONTROL_SOCKET))?;
        let router = Router::new()
            .route("/machines", get(list_machines))
            .route("/machines/{name}", get(get_machine))
            .route("/machines/{name}/act", post(act_on_machine))
            .route("/machines/{name}/oracle", get(get_oracle))
            .route("/machines/{name}/events", get(get_events))
            .route("/machines/{name}/disks/{serial}", post(read_disk))
            .with_state(slots);
        let serve = async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the lab's control socket ended");
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the control socket owns its server, which ends when the socket is dropped"
        )]
        let serving = tokio::spawn(serve);
        Ok(Self {
            _task: AbortOnDropHandle::new(serving),
        })
    }
}

impl IntoResponse for LabError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Machine { .. } => StatusCode::CONFLICT,
            Self::NotRoot
            | Self::Plan(_)
            | Self::Command { .. }
            | Self::Io { .. }
            | Self::Timeout { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.to_string()).into_response()
    }
}

fn find<'a>(slots: &'a Slots, name: &str) -> Result<&'a Slot, LabError> {
    slots
        .get(name)
        .ok_or_else(|| LabError::Unknown(format!("machine {name}")))
}

async fn list_machines(State(slots): State<Slots>) -> Json<Vec<MachineView>> {
    Json(futures::future::join_all(slots.values().map(Slot::view)).await)
}

async fn get_machine(
    State(slots): State<Slots>,
    UrlPath(name): UrlPath<String>,
) -> Result<Json<MachineView>, LabError> {
    Ok(Json(find(&slots, &name)?.view().await))
}

async fn act_on_machine(
    State(slots): State<Slots>,
    UrlPath(name): UrlPath<String>,
    Json(act): Json<Act>,
) -> Result<StatusCode, LabError> {
    find(&slots, &name)?
        .act(act)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

async fn get_oracle(
    State(slots): State<Slots>,
    UrlPath(name): UrlPath<String>,
) -> Result<Json<Vec<Entry>>, LabError> {
    find(&slots, &name)?.machine.oracle().map(Json)
}

async fn get_events(
    State(slots): State<Slots>,
    UrlPath(name): UrlPath<String>,
) -> Result<Json<Vec<Event>>, LabError> {
    let bmc = find(&slots, &name)?
        .bmc
        .as_ref()
        .ok_or_else(|| LabError::Unknown(format!("BMC of {name}")))?;
    Ok(Json(bmc.events()))
}

async fn read_disk(
    State(slots): State<Slots>,
    UrlPath((name, serial)): UrlPath<(String, String)>,
    Json(query): Json<DiskQuery>,
) -> Result<Json<DiskAnswer>, LabError> {
    let machine = &find(&slots, &name)?.machine;
    let answer = match query {
        DiskQuery::Use => DiskAnswer::Use {
            disk_use: machine.disk_use(&serial)?,
        },
        DiskQuery::Sample { seed, count } => DiskAnswer::Blocks {
            blocks: machine.disk_sample(&serial, seed, count)?,
        },
        DiskQuery::Blocks { offsets } => DiskAnswer::Blocks {
            blocks: machine.disk_read(&serial, &offsets)?,
        },
    };
    Ok(Json(answer))
}
