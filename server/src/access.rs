//! Values of access control: roles within scopes, the place of an object, and the read scope of a
//! reader.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::access::{self, Scope};
use muster_api::tokens::Role;

/// A role within a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    pub scope: Scope,
    /// The stored role is older than a change of its verbs, and keeps the lost verbs for one
    /// version: the release verbs of operators and automation, the raw verbs of viewers.
    pub keeps_lost_verbs: bool,
}

impl Grant {
    /// Returns whether the grant has the verb.
    pub fn has(&self, verb: &str) -> bool {
        access::has(self.role, verb) || (self.keeps_lost_verbs && access::had(self.role, verb))
    }
}

/// The place of an object: site, rack, pool and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub site: Option<String>,
    pub rack: Option<String>,
    pub pool: Option<String>,
    pub labels: BTreeMap<String, String>,
}

/// Read scope of a reader: an object must be within one scope of each list.
pub type Sight = Vec<Vec<Scope>>;

/// An arming of the local administrator: the person, the reason, and the time range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Armed {
    pub armed_at: Timestamp,
    pub until: Timestamp,
    /// `USER@HOST` of the host's shell.
    pub by: String,
    pub reason: String,
}

/// Returns whether objects of a declared kind have a place in the fleet. Objects without a place
/// are readable by every reader, and written by callers with the right over the whole fleet.
pub fn has_place(kind: &str) -> bool {
    matches!(kind, "site" | "rack" | "subnet" | "cluster" | "pool")
}
