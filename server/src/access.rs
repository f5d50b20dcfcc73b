//! Values of access control: roles within scopes, the place of an object, and the read scope of a reader.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::access::Scope;
use muster_api::tokens::Role;

/// A role within a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    pub scope: Scope,
}

/// Where an object lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub site: Option<String>,
    pub rack: Option<String>,
    pub pool: Option<String>,
    pub labels: BTreeMap<String, String>,
}

/// What a reader may see: an object lies in one scope of each list.
pub type Sight = Vec<Vec<Scope>>;

/// That it was armed: by whom, why, and from when until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Armed {
    pub armed_at: Timestamp,
    pub until: Timestamp,
    /// `USER@HOST` of the host's shell.
    pub by: String,
    pub reason: String,
}
