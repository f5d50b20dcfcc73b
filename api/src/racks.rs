//! Racks: cabinets in a site, with a height, a power budget, a plan of their cables, and a shared fate.

use jiff::Timestamp;
use muster_core::cabling::{Cable, CableState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// A rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RackSpec {
    /// The site it stands in.
    pub site: String,
    /// Height in U, 1 to 60.
    pub units: u32,
    /// Watts its nodes may draw together; power-ons are ordered against it.
    pub power_budget_w: u32,
    /// The cables of its nodes as they should be; held against what the live image hears of switches (LLDP).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cables: Vec<Cable>,
}

/// The declared cables of a rack or of one of its nodes, and where each was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cabling {
    /// The rack whose plan it is.
    pub rack: String,
    /// Cables that are in another port than they should be.
    pub wrong: usize,
    /// What to do about them, a sentence each; two that are swapped have one.
    pub findings: Vec<String>,
    pub cables: Vec<FoundCable>,
}

/// A declared cable, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FoundCable {
    pub node: String,
    pub nic: String,
    /// The switch and the port that it belongs in.
    pub switch: String,
    pub port: String,
    pub state: CableState,
    /// One sentence. That of two swapped cables is the same for both.
    pub told: String,
    /// When the node was last looked at from the live image; absent when it never was.
    pub observed_at: Option<Timestamp>,
}

impl Kind for RackSpec {
    const KIND: &'static str = "rack";
    const COLLECTION: &'static str = "racks";
    const SCHEMA: &'static str = "Rack";
    type Status = NoStatus;
}
