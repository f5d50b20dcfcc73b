//! BMCs and how to talk to them, as an order names them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::facts::Firmware;
use crate::values::{Digest, Secret};

/// A BMC that speaks Redfish.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BmcTarget {
    pub address: IpAddr,
    pub port: u16,
    pub user: String,
    pub password: Secret,
    /// SHA-256 of the certificate pinned at first contact; `None`: pin what is seen and report it.
    pub certificate: Option<Digest>,
    /// The `Id` of the computer system behind it; `None`: it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

impl PartialEq for BmcTarget {
    fn eq(&self, other: &Self) -> bool {
        (self.address, self.port, &self.user, self.certificate, &self.system)
            == (other.address, other.port, &other.user, other.certificate, &other.system)
    }
}

/// A BMC that speaks IPMI 2.0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpmiTarget {
    pub address: IpAddr,
    pub port: u16,
    pub user: String,
    pub password: Secret,
    /// What the machine is to boot by: IPMI's boot flags say it each time.
    pub firmware: Firmware,
}

impl PartialEq for IpmiTarget {
    fn eq(&self, other: &Self) -> bool {
        (self.address, self.port, &self.user, self.firmware) == (other.address, other.port, &other.user, other.firmware)
    }
}
