//! The shape every object has: what the client owns (`labels`, `annotations`, `spec`) apart from what the server observed (`status`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::values::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::problem::Fault;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

/// An object as the server answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Object<Spec, Status = NoStatus> {
    pub id: Uuid,
    /// Unique in its kind; every path takes it or the id.
    pub name: Name,
    /// The path of this object.
    #[serde(rename = "self")]
    pub link: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// As the client wrote it, value for value.
    pub spec: Spec,
    /// What is wrong with the stored spec: an older version took a spec that this one refuses. `PUT` of a right spec repairs the object. Absent when
    /// the spec is right. `null` is shown in place of a wrong spec that holds a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spec_faults: Vec<Fault>,
    pub status: Status,
    /// Counts changes of labels, annotations and spec. The ETag is `"<generation>"`.
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The status of kinds about which nothing is observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoStatus {}

/// What a client writes with `PUT`: the whole client-owned part. What is absent becomes empty.
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
    /// A spec without labels.
    pub fn new(spec: Spec) -> Self {
        Self {
            labels: Labels::new(),
            annotations: Labels::new(),
            spec,
        }
    }

    /// The same with one more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque; bound to the filter it was given for. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}
