//! Sites: places with a provisioning network of their own, served by one or more agents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// A site. Its name and labels say all there is to declare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteSpec {}

impl Kind for SiteSpec {
    const KIND: &'static str = "site";
    const COLLECTION: &'static str = "sites";
    const SCHEMA: &'static str = "Site";
    type Status = NoStatus;
}
