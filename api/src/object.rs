//! The common shape of all objects: the client-owned part (`labels`, `annotations`, `spec`) and the
//! part observed by the server (`status`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::values::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::problem::Fault;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

/// An object in a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Object<Spec, Status = NoStatus> {
    pub id: Uuid,
    /// Unique within the kind. Every path accepts the name or the id.
    pub name: Name,
    /// The path of this object.
    #[serde(rename = "self")]
    pub link: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// The spec exactly as written by the client.
    pub spec: Spec,
    /// Errors in the stored spec: an older version accepted a spec rejected by this version. A
    /// `PUT` with a valid spec repairs the object. Absent for a valid spec. If an invalid spec
    /// contains a secret, `spec` shows `null`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spec_faults: Vec<Fault>,
    pub status: Status,
    /// Number of changes of labels, annotations and spec. The ETag is `"<generation>"`.
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The status of kinds without observed state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoStatus {}

/// The body of a `PUT`: the complete client-owned part. Omitted fields become empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Draft<Spec> {
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    pub spec: Spec,
}

impl<Spec> Draft<Spec> {
    /// Returns a draft with this spec and without labels.
    pub fn new(spec: Spec) -> Self {
        Self {
            labels: Labels::new(),
            annotations: Labels::new(),
            spec,
        }
    }

    /// Returns the draft with one more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque; valid only with the filter of the same request. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}
