//! Stacks: named, versioned sets of pins laid over an image; locked and bundled before a pool can use them.

use muster_core::stacks::StackSpec;
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// What the server knows of a stack beside its pins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackStatus {
    /// The version operators see; absent until the stack is locked.
    pub lock_digest: Option<Digest>,
    /// Whether the bundle has been uploaded.
    pub bundle_present: bool,
}

impl Kind for StackSpec {
    const KIND: &'static str = "stack";
    const COLLECTION: &'static str = "stacks";
    const SCHEMA: &'static str = "Stack";
    type Status = StackStatus;
}
