//! Required, optional and shadow gates.

use crate::words;

words! {
    /// The effect of a gate's verdict on admission.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Mode, "mode of a gate" {
        /// Every verdict except `pass` blocks.
        Required = "required",
        /// `skipped` does not block; `fail` and `error` do.
        Optional = "optional",
        /// No verdict blocks.
        Shadow = "shadow",
    }
}
