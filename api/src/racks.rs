//! Racks: cabinets in a site, with a height, a power budget, a plan of the cables, and a common
//! failure domain.

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
    /// Name of the rack's site.
    pub site: String,
    /// Height in U, 1 to 60.
    pub units: u32,
    /// Maximum total power draw of the rack's nodes, in watts. Power-ons wait for free budget.
    pub power_budget_w: u32,
    /// The planned cables of the rack's nodes. The plan is compared with the switch ports seen by
    /// the live image through LLDP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cables: Vec<Cable>,
}

/// The planned cables of a rack or a node, with the observed port of each cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cabling {
    /// The rack with the cable plan.
    pub rack: String,
    /// Number of cables in a wrong port.
    pub wrong: usize,
    /// Corrections, one sentence each. Two swapped cables share one sentence.
    pub findings: Vec<String>,
    pub cables: Vec<FoundCable>,
}

/// A planned cable, with the observed port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FoundCable {
    pub node: String,
    /// Name of the node's interface.
    pub nic: String,
    /// The planned switch and port of the cable.
    pub switch: String,
    pub port: String,
    pub state: CableState,
    /// The finding, in one sentence. Two swapped cables share the same sentence.
    pub told: String,
    /// Time of the latest observation of the node by the live image. Absent if the node was never
    /// observed.
    pub observed_at: Option<Timestamp>,
}

impl Kind for RackSpec {
    const KIND: &'static str = "rack";
    const COLLECTION: &'static str = "racks";
    const SCHEMA: &'static str = "Rack";
    type Status = NoStatus;
}
