//! A Redfish service (DSP0266) for a machine: TLS with its own certificate, accounts and sessions,
//! and real effects on the machine behind the service. Accounts and event log survive restarts of
//! the lab. Faults can be injected on request.

mod access; // Basic, sessions, lock-out
mod actions; // Writes: power, boot, accounts
mod certificate; // The TLS identity
mod enclosure; // Chassis, sensors and manager
pub mod faults; // Misbehaviour on request
mod interface; // The firmware interface, by its Redfish name
mod memory; // Accounts and event log
mod reply; // Answers and errors
mod serve; // Connections, limits, faults
mod services; // Session, account and task services
mod systems; // The computer system and its parts
mod tree; // Maps paths to resources
mod update; // Firmware and BIOS updates that take effect

#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use muster_core::clock::Clock;
use muster_core::values::{Digest, Secret};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

pub use memory::Event;

use crate::error::LabError;
use crate::machine::Machine;
use crate::machine::oracle::{Cause, Happening};
use crate::netns::Netns;
use crate::plan::BmcPlan;
use access::Access;
use faults::{Fault, Faults};
use memory::Memory;

/// A running BMC; dropping the value closes the listener and the connections.
#[derive(Debug)]
pub struct Bmc {
    /// The address and port of the listener.
    pub address: SocketAddr,
    /// SHA-256 of the certificate in DER; stays the same over restarts.
    pub fingerprint: Digest,
    service: Arc<Service>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// The state shared by all connections of a BMC.
#[derive(Debug)]
pub(crate) struct Service {
    machine: Arc<Machine>,
    plan: BmcPlan,
    memory: Mutex<Memory>,
    access: Mutex<Access>,
    faults: Faults,
    started: Instant,
    /// The network namespace used to fetch images; `None` means the namespace of the lab.
    netns: Option<Netns>,
    /// Until this instant the BMC answers every request with 503, because the BMC itself restarts.
    restarting_until: Mutex<Option<Instant>>,
}

impl Bmc {
    /// Serves the machine on `listener`. `netns` is the network namespace used to fetch images,
    /// usually the namespace of the listener.
    pub fn start(
        machine: Arc<Machine>,
        plan: &BmcPlan,
        listener: TcpListener,
        netns: Option<Netns>,
    ) -> Result<Self, LabError> {
        let (tls, fingerprint) = certificate::load_or_make(&machine.dir, plan.address)?;
        let (listener, address) = serve::adopt(listener)?;
        let service = Arc::new(Service {
            memory: Mutex::new(Memory::open(&machine.dir, plan)?),
            access: Mutex::new(Access::new(
                plan.lockout_threshold,
                Duration::from_secs(plan.lockout_s),
            )),
            faults: Faults::default(),
            started: Instant::now(),
            restarting_until: Mutex::new(None),
            plan: plan.clone(),
            machine,
            netns,
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "the BMC owns its listener, which ends when the BMC is dropped"
        )]
        let serving = tokio::spawn(serve::run(listener, tls, Arc::clone(&service)));
        #[expect(
            clippy::disallowed_methods,
            reason = "the BMC owns its log, which ends when the BMC is dropped"
        )]
        let watching = tokio::spawn(log_power(Arc::clone(&service)));
        Ok(Self {
            address,
            fingerprint,
            service,
            _tasks: [serving, watching].map(AbortOnDropHandle::new),
        })
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.service.faults.inject(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.service.faults.clear();
    }

    /// Returns the active faults.
    pub fn faults(&self) -> Vec<Fault> {
        self.service.faults.list()
    }

    /// Returns the name of the first account and its current password, including a password set by
    /// a client.
    pub fn credentials(&self) -> (String, Secret) {
        let memory = self.service.memory();
        let account = memory
            .accounts()
            .first()
            .expect("the factory account cannot be deleted");
        (account.user.clone(), account.password.clone())
    }

    /// Returns the current version of a component, `BMC` or `BIOS`.
    pub fn version(&self, component: &str) -> String {
        update::version(&self.service, component)
    }

    /// Returns the current value of a BIOS attribute; `None` means the factory value.
    pub fn setting(&self, attribute: &str) -> Option<Value> {
        self.service.memory().hardware().setting(attribute)
    }

    /// Returns the event log, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.service.memory().events().to_vec()
    }

    /// Returns the number of account lock-outs since the BMC started.
    pub fn lockouts(&self) -> u32 {
        self.service.access().lockouts
    }
}

impl Service {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory
            .lock()
            .expect("no holder of a BMC's memory panics")
    }

    fn access(&self) -> MutexGuard<'_, Access> {
        self.access
            .lock()
            .expect("no holder of a BMC's logins panics")
    }

    fn log(&self, severity: &str, message_id: &str, message: impl Into<String>) {
        self.memory()
            .log(Clock::System.now(), severity, message_id, message.into());
    }
}

/// Copies the machine's power events into the event log, as the sensors of a BMC do.
async fn log_power(service: Arc<Service>) {
    let mut entries = service.machine.subscribe();
    loop {
        let entry = match entries.recv().await {
            Ok(entry) => entry,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let by = match &entry.cause {
            Cause::Bmc { user, reset } => format!("{reset} by {user}"),
            Cause::Guest => "the operating system".to_owned(),
            Cause::Button => "the power button".to_owned(),
            Cause::Lab => "loss of power".to_owned(),
        };
        if matches!(
            entry.what,
            Happening::PowerOn { .. } | Happening::Reboot { .. }
        ) {
            service.memory().change(update::Hardware::boot);
        }
        match entry.what {
            Happening::PowerOn { .. } => service.log(
                "OK",
                "PowerOn",
                format!("The system was powered on ({by})."),
            ),
            Happening::Reboot { .. } => {
                service.log("OK", "Reset", format!("The system was reset ({by})."))
            }
            Happening::PowerOff => service.log(
                "OK",
                "PowerOff",
                format!("The system was powered off ({by})."),
            ),
            Happening::ButtonPressed => service.log(
                "OK",
                "PowerButton",
                format!("The power button was pressed ({by})."),
            ),
            Happening::Failed { why } => service.log(
                "Critical",
                "SystemFailed",
                why.chars().take(500).collect::<String>(),
            ),
            // A real BMC cannot see faults inflicted by the lab on the machine.
            Happening::Fault { .. } => {}
        }
    }
}
