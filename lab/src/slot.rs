//! One place in the rack.

use std::sync::Arc;

use crate::bmc::Bmc;
use crate::machine::Machine;

/// One place in the rack: a machine, and its BMC if it has one.
#[derive(Debug)]
pub struct Slot {
    /// The machine.
    pub machine: Arc<Machine>,
    /// Its BMC.
    pub bmc: Option<Bmc>,
}
