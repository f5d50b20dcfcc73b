//! Racks: cabinets in a site, with a height, a power budget, and a shared fate.

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
}

impl Kind for RackSpec {
    const KIND: &'static str = "rack";
    const COLLECTION: &'static str = "racks";
    const SCHEMA: &'static str = "Rack";
    type Status = NoStatus;
}
