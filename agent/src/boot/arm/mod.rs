//! Armed boots: a node, an operation and a time window. While the handle exists, the node receives
//! the live image once. After the drop of the handle the node boots from the local disk. After a
//! successful boot the machine stays known until its next start.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use muster_core::ids::NodeId;
use muster_core::values::{Digest, Mac};
use muster_core::wire::calls::Sighting;
use muster_core::wire::job::BootLive;
use muster_core::wire::node::LiveReport;
use tokio::sync::watch;
use tracing::Span;

use super::held::{Held, Machine};
use super::pending::Pending;

/// Maximum number of MAC addresses per boot, more than the NICs of any machine.
const MAX_MACS: usize = 64;

/// All armed boots. Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct ArmedBoots {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    boots: HashMap<u64, Boot>,
    by_mac: HashMap<Mac, u64>,
    pending: Pending,
    held: Held,
}

#[derive(Debug)]
struct Boot {
    node: NodeId,
    /// The span of the job. The log lines of the boot services for the machine carry the job.
    job: Span,
    macs: Vec<Mac>,
    nonce: String,
    image: LiveImage,
    script_given: bool,
    /// Latest address requested at the DHCP server of the site, by MAC of the boot, if heard.
    requested: HashMap<Mac, Ipv4Addr>,
    report: watch::Sender<Option<Result<LiveReport, BootFault>>>,
    last_seen: watch::Sender<Option<Sighting>>,
}

/// The image for an armed machine and the future address of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveImage {
    /// Address of the machine in the live image.
    pub address: Ipv4Addr,
    /// Digest of the kernel blob.
    pub kernel: Digest,
    /// Digest of the initrd blob.
    pub initrd: Digest,
}

/// The reason why a boot could not be armed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    #[error("a boot needs 1 to {MAX_MACS} MAC addresses, not {0}")]
    Macs(usize),
    #[error("the nonce must be 32 hex digits")]
    Nonce,
    #[error("{mac} is armed for node {node} already; that boot must end first")]
    Busy { mac: Mac, node: NodeId },
}

/// The reason why an armed boot failed: a second use of a value allowed once and only for a single
/// machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootFault {
    #[error(
        "the boot script was fetched a second time, by {from}: the machine started over, or another one takes its place"
    )]
    SecondScript { from: Ipv4Addr },
    #[error(
        "a second host key was reported, by {from}: another machine may have taken this one's place"
    )]
    SecondReport { from: Ipv4Addr },
    #[error(
        "a host key was reported with this boot's nonce, by {from} as {mac}, which is not this node's"
    )]
    WrongMachine { from: Ipv4Addr, mac: Mac },
}

/// The answer to a request for the boot script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScriptTurn {
    /// The first request in the window.
    Armed {
        image: LiveImage,
        nonce: String,
    },
    /// The script was given out before. The boot has now failed.
    Spent,
    /// The boot may be armed within seconds.
    Pending,
    NotArmed,
}

/// The reason why a report was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportRefused {
    UnknownNonce,
    Second,
    WrongMachine,
}

impl ArmedBoots {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the empty table of a starting agent. Boots of an earlier process are armed again after
    /// the first leases.
    pub fn starting() -> Self {
        let boots = Self::new();
        boots.await_leases();
        boots
    }

    /// Starts the wait for the first leases.
    pub(crate) fn await_leases(&self) {
        self.lock().pending.await_leases(Instant::now());
    }

    /// Ends the wait for the first leases.
    pub fn end_leases(&self) {
        self.lock().pending.end_leases();
    }

    /// Adds a leased boot, before its job arms the boot.
    pub fn expect(&self, spec: &BootLive) {
        self.lock().pending.add(&spec.macs, Instant::now());
    }

    /// Returns whether a machine without an armed boot may still get a boot within seconds.
    pub(crate) fn is_pending(&self, mac: Mac) -> bool {
        let table = self.lock();
        !table.by_mac.contains_key(&mac) && table.pending.contains(mac, Instant::now())
    }

    /// Arms a boot until the handle is dropped.
    pub fn arm(&self, node: NodeId, spec: &BootLive) -> Result<ArmedHandle, ArmError> {
        if spec.macs.is_empty() || spec.macs.len() > MAX_MACS {
            return Err(ArmError::Macs(spec.macs.len()));
        }
        if spec.nonce.len() != 32 || !spec.nonce.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ArmError::Nonce);
        }
        let mut table = self.lock();
        if let Some((mac, id)) = spec
            .macs
            .iter()
            .find_map(|mac| table.by_mac.get(mac).map(|id| (*mac, *id)))
        {
            return Err(ArmError::Busy {
                mac,
                node: table.boots[&id].node,
            });
        }
        let (report, reports) = watch::channel(None);
        let (last_seen, sightings) = watch::channel(None);
        let id = table.next;
        table.next += 1;
        table.by_mac.extend(spec.macs.iter().map(|mac| (*mac, id)));
        table.pending.remove(&spec.macs);
        table.held.end_by_macs(&spec.macs);
        let image = LiveImage {
            address: spec.address,
            kernel: spec.kernel,
            initrd: spec.initrd,
        };
        let (macs, nonce) = (spec.macs.clone(), spec.nonce.clone());
        table.boots.insert(
            id,
            Boot {
                node,
                job: Span::current(),
                macs,
                nonce,
                image,
                script_given: false,
                requested: HashMap::new(),
                report,
                last_seen,
            },
        );
        drop(table);
        Ok(ArmedHandle {
            boots: self.clone(),
            id,
            reports,
            sightings,
        })
    }

    /// Returns the image armed for a MAC.
    pub fn find(&self, mac: Mac) -> Option<LiveImage> {
        let table = self.lock();
        table.by_mac.get(&mac).map(|id| table.boots[id].image)
    }

    /// Returns the armed boot for an address, with the MAC last seen.
    pub(super) fn find_by_address(&self, address: Ipv4Addr) -> Option<(Mac, LiveImage)> {
        let table = self.lock();
        let boot = table
            .boots
            .values()
            .find(|boot| boot.image.address == address)?;
        let seen = boot
            .last_seen
            .borrow()
            .as_ref()
            .map(|sighting| sighting.mac);
        Some((seen.unwrap_or(boot.macs[0]), boot.image))
    }

    /// Returns the boot script once. A second call fails the boot.
    pub(super) fn take_script(&self, mac: Mac, from: Ipv4Addr) -> ScriptTurn {
        let mut table = self.lock();
        let Some(boot) = table.of_mac(mac) else {
            let is_pending = table.pending.contains(mac, Instant::now());
            return if is_pending {
                ScriptTurn::Pending
            } else {
                ScriptTurn::NotArmed
            };
        };
        if boot.script_given {
            boot.fail(BootFault::SecondScript { from });
            return ScriptTurn::Spent;
        }
        boot.script_given = true;
        ScriptTurn::Armed {
            image: boot.image,
            nonce: boot.nonce.clone(),
        }
    }

    /// Accepts the report of a boot once. A second report, or a report with the MAC of another
    /// node, fails the boot.
    pub(super) fn take_report(
        &self,
        report: LiveReport,
        from: Ipv4Addr,
    ) -> Result<(), ReportRefused> {
        let mut table = self.lock();
        let boot = table
            .boots
            .values_mut()
            .find(|boot| boot.nonce.eq_ignore_ascii_case(&report.nonce));
        let boot = boot.ok_or(ReportRefused::UnknownNonce)?;
        if !boot.macs.contains(&report.mac) {
            boot.fail(BootFault::WrongMachine {
                from,
                mac: report.mac,
            });
            return Err(ReportRefused::WrongMachine);
        }
        if boot.report.borrow().is_some() {
            boot.fail(BootFault::SecondReport { from });
            return Err(ReportRefused::Second);
        }
        boot.report.send_replace(Some(Ok(report)));
        Ok(())
    }

    /// Returns whether the machine with a MAC runs the live image of an earlier boot.
    pub(crate) fn runs_live(&self, mac: Mac) -> bool {
        let table = self.lock();
        !table.by_mac.contains_key(&mac) && table.held.has(mac, Instant::now())
    }

    /// Ends the run of the live image on a node, before its next start.
    pub(crate) fn end_live(&self, node: NodeId) {
        self.lock().held.end(node);
    }

    /// Returns whether the script of an armed boot was given out.
    pub(super) fn is_script_given(&self, mac: Mac) -> bool {
        self.lock()
            .of_mac(mac)
            .is_some_and(|boot| boot.script_given)
    }

    /// Returns whether an address belongs to an armed boot or to a running live image.
    pub(super) fn is_at(&self, address: Ipv4Addr) -> bool {
        let table = self.lock();
        let is_armed = table.boots.values().any(|boot| {
            boot.image.address == address || boot.requested.values().any(|had| *had == address)
        });
        is_armed || table.held.is_at(address, Instant::now())
    }

    /// Records the address that an armed machine requested at the DHCP server of the site.
    pub(super) fn heard_request(&self, mac: Mac, address: Ipv4Addr) {
        if let Some(boot) = self.lock().of_mac(mac) {
            boot.requested.insert(mac, address);
        }
    }

    /// Returns whether an armed machine requested another address at the DHCP server of the site.
    /// Each network interface of a machine requests its own address.
    pub(super) fn is_elsewhere(&self, mac: Mac, from: Ipv4Addr) -> bool {
        self.lock()
            .of_mac(mac)
            .and_then(|boot| boot.requested.get(&mac))
            .is_some_and(|requested| *requested != from)
    }

    /// Returns the required source address for the report with a nonce.
    pub(super) fn address_of_nonce(&self, nonce: &str) -> Option<Ipv4Addr> {
        let table = self.lock();
        table
            .boots
            .values()
            .find(|boot| boot.nonce.eq_ignore_ascii_case(nonce))
            .map(|boot| boot.image.address)
    }

    /// Returns the span of the boot session of a machine, inside the span of the job waiting for the
    /// machine. Returns `None` for a machine without an armed boot.
    pub(super) fn session(&self, mac: Mac) -> Option<Span> {
        let job = self.lock().of_mac(mac)?.job.clone();
        Some(tracing::error_span!(parent: &job, "boot", %mac))
    }

    /// Sends a sighting to the waiting job.
    pub(super) fn saw(&self, sighting: &Sighting) {
        if let Some(boot) = self.lock().of_mac(sighting.mac) {
            boot.last_seen.send_replace(Some(sighting.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change under the lock is complete before a possible panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of_mac(&mut self, mac: Mac) -> Option<&mut Boot> {
        let id = self.by_mac.get(&mac)?;
        self.boots.get_mut(id)
    }
}

impl Boot {
    /// Records a fault. The first fault is kept, because it is the cause.
    fn fail(&self, fault: BootFault) {
        self.report.send_if_modified(|state| {
            let first = !matches!(state, Some(Err(_)));
            if first {
                *state = Some(Err(fault));
            }
            first
        });
    }
}

/// The handle of a job on an armed boot. Dropping the handle disarms the boot.
#[derive(Debug)]
pub struct ArmedHandle {
    boots: ArmedBoots,
    id: u64,
    reports: watch::Receiver<Option<Result<LiveReport, BootFault>>>,
    sightings: watch::Receiver<Option<Sighting>>,
}

impl ArmedHandle {
    /// Waits for the report of the live image. The job sets the deadline.
    pub async fn report(&self) -> Result<LiveReport, BootFault> {
        self.until(|state| state.clone()).await
    }

    /// Waits until the boot fails. Used between the report and the end of the job, because a second
    /// report in this time still fails the boot.
    pub async fn fault(&self) -> BootFault {
        self.until(|state| state.as_ref()?.as_ref().err().cloned())
            .await
    }

    /// Restores a boot after a restart of the agent. The script and the report were used before, so
    /// a second use still fails the boot.
    pub fn resume(&self, report: LiveReport) {
        self.spend_script();
        if let Some(boot) = self.boots.lock().boots.get_mut(&self.id) {
            boot.report
                .send_if_modified(|state| state.is_none() && state.replace(Ok(report)).is_none());
        }
    }

    /// Marks the script as given out, after a restart of the agent. The report may come again,
    /// because the live image repeats a report without an answer.
    pub fn spend_script(&self) {
        if let Some(boot) = self.boots.lock().boots.get_mut(&self.id) {
            boot.script_given = true;
        }
    }

    /// Ends the boot with success. The machine runs the live image until its next start, and a
    /// further fetch of the script is an alarm.
    pub fn hold(self) {
        let mut guard = self.boots.lock();
        let table = &mut *guard;
        if let Some(boot) = table.boots.get(&self.id) {
            let now = Instant::now();
            let machine = Machine::new(boot.macs.clone(), boot.image.address, now);
            table.held.add(boot.node, machine, now);
        }
    }

    /// Returns the latest sighting of the machine, to explain a boot without progress.
    pub fn last_seen(&self) -> watch::Receiver<Option<Sighting>> {
        self.sightings.clone()
    }

    async fn until<T>(
        &self,
        pick: impl Fn(&Option<Result<LiveReport, BootFault>>) -> Option<T>,
    ) -> T {
        let mut reports = self.reports.clone();
        let state = reports
            .wait_for(|state| pick(state).is_some())
            .await
            .expect("the table keeps the sender until this handle is dropped");
        pick(&state).expect("wait_for returns what its condition holds for")
    }
}

impl Drop for ArmedHandle {
    fn drop(&mut self) {
        let mut table = self.boots.lock();
        if let Some(boot) = table.boots.remove(&self.id) {
            for mac in boot.macs {
                table.by_mac.remove(&mac);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
