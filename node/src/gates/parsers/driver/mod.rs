//! The software of NVIDIA's driver, measured on any machine, also without a GPU.

pub(super) mod cdi; // Specifications of devices for containers
pub(super) mod containers; // Container runtimes
mod kernel_errors; // Errors of an insertion, with causes and next steps
mod ldconfig; // The loader's list of libraries
pub(super) mod libraries; // Libraries named by a gate
pub(super) mod load; // The kernel's answer to the module
pub(super) mod module; // The module's file
pub(super) mod nouveau; // The kernel's own driver for the GPUs
mod version; // Versions of the driver in names
pub(super) mod versions; // Versions of module, tool and library
