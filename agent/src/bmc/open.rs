//! Opens handles on BMCs. All handles on the same address share the pace and the login state of the
//! BMC.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::ids::JobId;
use muster_core::out_of_band::{find_special, list_networks, may_connect};
use muster_core::wire::bmc::{BmcTarget, IpmiTarget};

use super::error::BmcError;
use super::ipmi::Ipmi;
use super::pace::{Limits, Slot};
use super::redfish::Redfish;
use super::system::{Bmc, Driver};

/// The address and login of a BMC, by protocol.
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

/// Shared state per BMC, keyed by address and port.
type Slots = HashMap<(IpAddr, u16), Arc<Slot>>;

/// All BMCs of the agent process. Create a single instance per agent, because the shared state is
/// kept per address.
#[derive(Clone, Debug, Default)]
pub struct Bmcs {
    limits: Limits,
    slots: Arc<Mutex<Slots>>,
}

impl Bmcs {
    /// Creates the shared state without any BMC.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            slots: Arc::default(),
        }
    }

    /// Returns the timeouts and rate limits applied to every BMC.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns a handle on the BMC for the given job. The call sends no packet.
    ///
    /// # Errors
    /// [`BmcError::Outside`] when the address is outside of the networks in the order;
    /// [`BmcError::Special`] when no network of a site may have the address;
    /// [`BmcError::Unreachable`] when the HTTP client cannot be built.
    pub fn open<'order>(
        &self,
        target: impl Into<Target<'order>>,
        job: JobId,
    ) -> Result<Bmc, BmcError> {
        let target = target.into();
        let (address, networks) = match target {
            Target::Redfish(target) => ((target.address, target.port), &target.bmc_networks),
            Target::Ipmi(target) => ((target.address, target.port), &target.bmc_networks),
        };
        if !may_connect(networks, address.0) {
            return Err(match find_special(address.0.into()) {
                Some(word) => BmcError::Special {
                    address: address.0,
                    word,
                },
                None => BmcError::Outside {
                    address: address.0,
                    networks: list_networks(networks),
                },
            });
        }
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
