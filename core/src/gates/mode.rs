//! Required, optional and shadow gates.

use serde::{Deserialize, Serialize};

/// The effect of a gate's verdict on admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every verdict except `pass` blocks.
    Required,
    /// `skipped` does not block; `fail` and `error` do.
    Optional,
    /// No verdict blocks.
    Shadow,
}

impl Mode {
    /// Returns the name used in profiles.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Shadow => "shadow",
        }
    }
}
