//! BMC addresses, logins and expected machines, as contained in orders.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::facts::Firmware;
use crate::values::{Digest, Secret};

/// Power control of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Power {
    Redfish(BmcTarget),
    Ipmi(IpmiTarget),
    /// A named person presses the power button; jobs wait for network traffic from the machine.
    Manual {
        person: String,
    },
}

/// The expected machine, as reported by its own firmware (SMBIOS type 1). The check is needed
/// because a mistyped BMC address leads to another machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// A BMC with Redfish.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BmcTarget {
    pub address: IpAddr,
    pub port: u16,
    pub user: String,
    pub password: Secret,
    /// SHA-256 of the certificate pinned at first contact. `None`: pin the offered certificate and
    /// report the digest.
    pub certificate: Option<Digest>,
    /// The `Id` of the computer system behind the BMC. `None`: the BMC has only one system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A second password to try. Set after an interrupted password change with unknown result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Secret>,
    /// Identity of the expected machine. A BMC reporting another machine receives no commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Networks that the password may go to. Empty: the site declares no networks of BMCs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bmc_networks: Vec<IpNet>,
}

impl Power {
    /// Returns the expected machine, if known.
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
            &self.bmc_networks,
        ) == (
            other.address,
            other.port,
            &other.user,
            other.certificate,
            &other.system,
            &other.machine,
            &other.bmc_networks,
        )
    }
}

/// A BMC with IPMI 2.0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpmiTarget {
    pub address: IpAddr,
    pub port: u16,
    pub user: String,
    pub password: Secret,
    /// Firmware type used for boot. IPMI sends the type in the boot flags of each request.
    pub firmware: Firmware,
    /// See [`BmcTarget`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Secret>,
    /// See [`BmcTarget`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// See [`BmcTarget`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bmc_networks: Vec<IpNet>,
}

impl PartialEq for IpmiTarget {
    fn eq(&self, other: &Self) -> bool {
        (
            self.address,
            self.port,
            &self.user,
            self.firmware,
            &self.machine,
            &self.bmc_networks,
        ) == (
            other.address,
            other.port,
            &other.user,
            other.firmware,
            &other.machine,
            &other.bmc_networks,
        )
    }
}

/// An order to change the password of the BMC's account. Idempotent: the next attempt has the same
/// password and first checks whether the BMC already accepts the password.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateBmc {
    /// Power control, with the last known password.
    pub power: Power,
    /// The new password. The server stores the sealed password before sending the order.
    pub next: Secret,
    /// Whether an earlier attempt sent `next`. If `true`, the BMC may already have the new
    /// password.
    pub tried: bool,
}

impl PartialEq for RotateBmc {
    fn eq(&self, other: &Self) -> bool {
        (&self.power, self.tried) == (&other.power, other.tried)
    }
}
