//! Handles on BMCs. What is remembered of each is shared by all that lead to it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::ids::JobId;
use muster_core::wire::bmc::{BmcTarget, IpmiTarget};

use super::error::BmcError;
use super::ipmi::Ipmi;
use super::pace::{Limits, Slot};
use super::redfish::Redfish;
use super::system::{Bmc, Driver};

/// A BMC by what it speaks.
#[derive(Clone, Copy, Debug)]
pub enum Target<'order> {
    Redfish(&'order BmcTarget),
    Ipmi(&'order IpmiTarget),
}

impl<'order> From<&'order BmcTarget> for Target<'order> {
    fn from(target: &'order BmcTarget) -> Self {
        Self::Redfish(target)
    }
}

impl<'order> From<&'order IpmiTarget> for Target<'order> {
    fn from(target: &'order IpmiTarget) -> Self {
        Self::Ipmi(target)
    }
}

/// What is remembered, by address and port.
type Slots = HashMap<(IpAddr, u16), Arc<Slot>>;

/// Every BMC this process talks to. One per agent: what it remembers is per address.
#[derive(Clone, Debug, Default)]
pub struct Bmcs {
    limits: Limits,
    slots: Arc<Mutex<Slots>>,
}

impl Bmcs {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            slots: Arc::default(),
        }
    }

    /// How BMCs are treated.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// A handle on one BMC for one job; nothing is sent yet.
    ///
    /// # Errors
    /// [`BmcError::Unreachable`] when no HTTP client can be made.
    pub fn open<'order>(
        &self,
        target: impl Into<Target<'order>>,
        job: JobId,
    ) -> Result<Bmc, BmcError> {
        let target = target.into();
        let address = match target {
            Target::Redfish(target) => (target.address, target.port),
            Target::Ipmi(target) => (target.address, target.port),
        };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Arc::clone(slots.entry(address).or_default());
        let limits = self.limits;
        let driver = match target {
            Target::Redfish(target) => Driver::Redfish(Redfish::new(target, job, slot, limits)?),
            Target::Ipmi(target) => Driver::Ipmi(Ipmi::new(target, job, slot, limits)),
        };
        Ok(Bmc { driver, limits })
    }
}
