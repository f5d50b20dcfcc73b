//! AMD's tools.

pub(super) mod amd_smi; // `amd-smi metric --json`
pub(super) mod rocm_smi; // `rocm-smi --json`
