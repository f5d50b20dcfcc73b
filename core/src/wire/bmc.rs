//! BMCs and how to talk to them, as an order names them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::facts::Firmware;
use crate::values::{Digest, Secret};

/// How a node is powered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Power {
    Redfish(BmcTarget),
    Ipmi(IpmiTarget),
    /// A named person presses the button; jobs wait for what they see on the wire.
    Manual {
        person: String,
    },
}

/// The machine that is meant, as its own firmware has told (SMBIOS type 1). Behind an address that was mistyped stands another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

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
    /// Another password, which it may take instead: one was being changed into the other, and nobody saw how that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Secret>,
    /// A BMC that names another one is told nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

impl Power {
    /// The machine that is meant, where that is known.
    pub fn machine(&self) -> Option<&Machine> {
        match self {
            Self::Redfish(target) => target.machine.as_ref(),
            Self::Ipmi(target) => target.machine.as_ref(),
            Self::Manual { .. } => None,
        }
    }
}

impl PartialEq for BmcTarget {
    fn eq(&self, other: &Self) -> bool {
        (
            self.address,
            self.port,
            &self.user,
            self.certificate,
            &self.system,
            &self.machine,
        ) == (
            other.address,
            other.port,
            &other.user,
            other.certificate,
            &other.system,
            &other.machine,
        )
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
    /// As that of [`BmcTarget`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Secret>,
    /// As that of [`BmcTarget`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

impl PartialEq for IpmiTarget {
    fn eq(&self, other: &Self) -> bool {
        (
            self.address,
            self.port,
            &self.user,
            self.firmware,
            &self.machine,
        ) == (
            other.address,
            other.port,
            &other.user,
            other.firmware,
            &other.machine,
        )
    }
}

/// Another password for the BMC's account. Idempotent: the next attempt gets the same one, and looks first whether it is taken already.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateBmc {
    /// With the password that it has, as far as is known.
    pub power: Power,
    /// The one that it is to have. It is stored, sealed, before anybody is told it.
    pub next: Secret,
    /// Whether `next` was sent before, so that the BMC may have it already.
    pub tried: bool,
}

impl PartialEq for RotateBmc {
    fn eq(&self, other: &Self) -> bool {
        (&self.power, self.tried) == (&other.power, other.tried)
    }
}
