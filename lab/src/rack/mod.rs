//! A running rack: a namespace, the bridge `br0` with a tap per network card, `bmc0` with an
//! address per BMC, and the machines.
//!
//! A single process owns a rack. [`Rack::close`] and dropping the rack remove all its resources
//! from the system. After a killed owner, [`clean`] on the same directory or the next start removes
//! the rest.

mod enclosure; // A daemon with a private /run
mod forward; // A forwarder into the namespace
mod lease; // The owner of the directory
pub(crate) mod vlan; // The rack's end of a VLAN

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_core::clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::bmc::Bmc;
use crate::control::ControlServer;
use crate::error::{LabError, io};
use crate::files::write_atomically;
use crate::machine::Machine;
use crate::machine::accel::Accel;
use crate::machine::processors::Processors;
use crate::machine::qemu::Qemu;
use crate::machine::qemu_args::second_tap;
use crate::plan::{BMC_GATEWAY, GATEWAY, MTU, MachinePlan, RackPlan, console_address};

pub use crate::netns::Netns;
pub use crate::slot::Slot;
pub(crate) use enclosure::Enclosure;
pub use forward::Forwarder;
pub use lease::{Cleaned, clean};

/// The HTTPS port of every BMC.
const BMC_PORT: u16 = 443;

/// A running rack. Dropping the value cleans the system.
#[derive(Debug)]
pub struct Rack {
    /// Directory with the rack's disks, firmware variables, logs and sockets.
    pub dir: PathBuf,
    /// The network namespace of the rack.
    pub netns: Netns,
    /// The accelerator of the guests.
    pub accel: Accel,
    slots: Arc<BTreeMap<String, Slot>>,
    control: Option<ControlServer>,
    closing: CancellationToken,
}

impl Rack {
    /// Builds the planned rack in `dir`, with every machine off. Machines of an earlier rack in the
    /// same directory keep their disks, firmware variables, BMC accounts and logs. Requires root.
    pub async fn start(dir: &Path, plan: RackPlan) -> Result<Self, LabError> {
        if !nix::unistd::Uid::effective().is_root() {
            return Err(LabError::NotRoot);
        }
        plan.validate()?;
        let dir = std::path::absolute(dir).map_err(io("find the rack's directory"))?;
        let netns = lease::take(&dir)?;
        // After an error below, `rack` is dropped, and the drop cleans the system.
        let accel = Accel::choose(plan.accel).await?;
        let mut rack = Self {
            dir,
            netns,
            accel,
            slots: Arc::default(),
            control: None,
            closing: CancellationToken::new(),
        };
        rack.build(&plan).await?;
        Ok(rack)
    }

    async fn build(&mut self, plan: &RackPlan) -> Result<(), LabError> {
        write_atomically(&self.dir.join("rack.json"), plan)?;
        build_network(&self.netns, &plan.machines)?;
        let processors = Processors::of_this_process()?;
        let mut slots = BTreeMap::new();
        for (index, machine) in plan.machines.iter().enumerate() {
            let slot = self.build_slot(index, machine, &processors).await?;
            slots.insert(machine.name.to_string(), slot);
        }
        self.slots = Arc::new(slots);
        self.control = Some(ControlServer::start(&self.dir, Arc::clone(&self.slots))?);
        Ok(())
    }

    async fn build_slot(
        &self,
        index: usize,
        plan: &MachinePlan,
        processors: &Arc<Processors>,
    ) -> Result<Slot, LabError> {
        let dir = self.dir.join(plan.name.as_str());
        let console = self.listen(console_address(index).into())?;
        let qemu = Qemu::prepare(
            plan,
            &dir,
            &self.netns,
            Arc::clone(processors),
            tap_name(index),
            self.accel,
            console,
        )?;
        let machine = Machine::new(plan.clone(), dir, Arc::new(qemu), Clock::System)?;
        let bmc = match &plan.bmc {
            Some(bmc) => {
                let listener = self.listen(SocketAddr::from((bmc.address, BMC_PORT)))?;
                Some(Bmc::start(
                    Arc::clone(&machine),
                    bmc,
                    listener,
                    Some(self.netns.clone()),
                )?)
            }
            None => None,
        };
        Ok(Slot { machine, bmc })
    }

    /// Opens a listener inside the namespace.
    fn listen(&self, address: SocketAddr) -> Result<TcpListener, LabError> {
        let listener = self.netns.within(move || TcpListener::bind(address))?;
        listener.map_err(io(format!("listen on {address}")))
    }

    /// Returns the machine and BMC with the given name.
    pub fn slot(&self, name: &str) -> Result<&Slot, LabError> {
        self.slots
            .get(name)
            .ok_or_else(|| LabError::Unknown(format!("machine {name}")))
    }

    /// Iterates over every machine, by name.
    pub fn slots(&self) -> impl Iterator<Item = (&str, &Slot)> {
        self.slots.iter().map(|(name, slot)| (name.as_str(), slot))
    }

    /// Returns a command to run inside the rack's namespace. All its processes end with the rack at
    /// the latest.
    pub fn command(&self, program: &str) -> tokio::process::Command {
        self.netns.command(program)
    }

    /// Forwards connections from `outside` on the host (port 0 picks a free port) to `inside` in
    /// the namespace.
    pub fn forward(&self, outside: SocketAddr, inside: SocketAddr) -> Result<Forwarder, LabError> {
        Forwarder::start(&self.netns, outside, inside)
    }

    /// Returns a token cancelled when the rack begins to close. Supervisors inside the rack must
    /// then stop restarting their daemons.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.closing.child_token()
    }

    /// Cuts every machine's power and removes all the rack's resources from the system. The
    /// directory stays.
    pub async fn close(mut self) -> Result<Cleaned, LabError> {
        self.closing.cancel();
        self.control = None;
        for slot in self.slots.values() {
            slot.machine.close().await;
        }
        let dir = self.dir.clone();
        let cleaned = tokio::task::spawn_blocking(move || clean(&dir)).await;
        cleaned.map_err(|error| LabError::Unknown(format!("end of the cleaning: {error}")))?
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.closing.cancel();
        if let Err(error) = clean(&self.dir) {
            tracing::error!(dir = %self.dir.display(), %error, "the rack left something behind; `muster-lab clean` removes it");
        }
    }
}

fn tap_name(index: usize) -> String {
    format!("tap{index}")
}

/// Returns the taps of the machine at the given index of the plan. The tap of the first card comes
/// first, then the tap of an optional second card.
pub(crate) fn taps(index: usize, machine: &MachinePlan) -> Vec<String> {
    let first = tap_name(index);
    let second = machine.second_mac.map(|_| second_tap(&first));
    [first].into_iter().chain(second).collect()
}

/// Creates the bridges `br0` and `bmc0`. `br0` is the provisioning network: the bridge connects the
/// machines' taps and carries large packets and every VLAN. `bmc0` is the out-of-band network and
/// only holds addresses. In a rack, no machine can reach the out-of-band network from its own
/// network card.
fn build_network(netns: &Netns, machines: &[MachinePlan]) -> Result<(), LabError> {
    netns.create()?;
    for (bridge, gateway) in [("br0", GATEWAY), ("bmc0", BMC_GATEWAY)] {
        netns.ip(&["link", "add", bridge, "type", "bridge"])?;
        netns.ip(&["addr", "add", &format!("{gateway}/24"), "dev", bridge])?;
        netns.ip(&["link", "set", bridge, "up"])?;
    }
    let mtu = MTU.to_string();
    // An explicit MTU. Without a value, the bridge would use the smallest MTU of its ports.
    netns.ip(&["link", "set", "br0", "mtu", &mtu])?;
    for (index, machine) in machines.iter().enumerate() {
        for tap in &taps(index, machine) {
            netns.ip(&["tuntap", "add", "dev", tap, "mode", "tap"])?;
            netns.ip(&["link", "set", tap, "mtu", &mtu, "master", "br0", "up"])?;
        }
        if let Some(bmc) = &machine.bmc {
            netns.ip(&["addr", "add", &format!("{}/24", bmc.address), "dev", "bmc0"])?;
        }
    }
    Ok(())
}
