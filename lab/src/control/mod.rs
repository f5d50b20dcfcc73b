//! The rack from outside the process that owns it: HTTP and JSON on a unix socket in the rack's directory, readable by root
//! alone. For hands (`muster-lab`) and for tests that run beside the rack.

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

/// The socket, in the rack's directory.
pub const CONTROL_SOCKET: &str = "control.sock";

type Slots = Arc<BTreeMap<String, Slot>>;

/// What a machine looks like from the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Its name.
    pub name: String,
    /// Whether it has power.
    pub power: PowerState,
    /// How often it has booted.
    pub boots: u64,
    /// The boot override in force.
    pub boot_override: BootOverride,
    /// SMBIOS system serial.
    pub serial: String,
    /// SMBIOS system UUID.
    pub uuid: Uuid,
    /// The MAC it boots from.
    pub mac: String,
    /// Its guest's process.
    pub pid: Option<u32>,
    /// The console's socket.
    pub console: PathBuf,
    /// The console's log.
    pub console_log: PathBuf,
    /// Its BMC.
    pub bmc: Option<BmcView>,
}

/// What a BMC looks like from the lab. Its password is in the plan, not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcView {
    /// Where it listens.
    pub address: std::net::SocketAddr,
    /// SHA-256 of its certificate.
    pub fingerprint: Digest,
    /// The faults in force.
    pub faults: Vec<Fault>,
    /// How often an account got locked.
    pub lockouts: u32,
}

/// Something done to a machine by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// A short press of the power button: on when off, a polite request to switch off when on.
    PressButton,
    /// Pull the power cord and plug it in again: the machine is off, its memory lost.
    CutPower,
    /// Stop its CPUs; it keeps its power.
    Wedge,
    /// Let its CPUs go on.
    Unwedge,
    /// Plug or unplug its network cable.
    SetLink {
        /// Whether the cable is in.
        up: bool,
    },
    /// Set the SMART critical warning of an NVMe disk.
    SetNvmeWarning {
        /// The disk's serial.
        serial: String,
        /// The bits.
        warning: u8,
    },
    /// Make the BMC misbehave.
    InjectFault {
        /// How.
        fault: Fault,
    },
    /// End all misbehaviour of the BMC.
    ClearFaults,
}

/// What to read from a disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum DiskQuery {
    /// How much of it holds anything.
    Use,
    /// Blocks chosen by a seed.
    Sample {
        /// The seed.
        seed: u64,
        /// How many.
        count: usize,
    },
    /// The blocks at these offsets.
    Blocks {
        /// In bytes.
        offsets: Vec<u64>,
    },
}

/// What was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum DiskAnswer {
    /// How much of it holds anything.
    Use {
        /// The sizes.
        disk_use: DiskUse,
    },
    /// The blocks.
    Blocks {
        /// In the order asked for.
        blocks: Vec<BlockRead>,
    },
}

impl Slot {
    /// Does something to the machine by hand.
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

    /// What it looks like now.
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

/// The listening socket; dropping it closes it.
#[derive(Debug)]
pub(crate) struct ControlServer {
    _task: AbortOnDropHandle<()>,
}

impl ControlServer {
    /// Serves the slots.
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
