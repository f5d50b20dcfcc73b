//! What a gate's verdict counts for.

use serde::{Deserialize, Serialize};

/// What a gate's verdict counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Anything but `pass` blocks.
    Required,
    /// `skipped` does not block.
    Optional,
    /// Nothing blocks.
    Shadow,
}

impl Mode {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Shadow => "shadow",
        }
    }
}
