//! A place in the rack.

use std::sync::Arc;

use crate::bmc::Bmc;
use crate::machine::Machine;

/// A place in the rack: a machine, and a BMC if the machine has a BMC.
#[derive(Debug)]
pub struct Slot {
    /// The machine of the place.
    pub machine: Arc<Machine>,
    /// The BMC of the machine; `None` for manual power.
    pub bmc: Option<Bmc>,
}
