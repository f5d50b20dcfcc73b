//! The specification of the Container Device Interface (CDI) for the installed NVIDIA driver, made
//! from dpkg's file lists. Container runtimes read the file at the start of a container.

mod conflict; // Other files that define the same devices
mod document; // The content of the file
mod driver; // The driver's files on the node
mod links; // Links to libraries
mod lists; // dpkg's file lists
mod nodes; // Device nodes of a loaded driver
#[cfg(test)]
mod tests;

use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::stacks::language::CDI_SPECIFICATION;
use muster_core::wire::node::{Failure, FailureCode};

use super::dpkg::Database;
use super::file::Target;
use super::item::Item;
use super::record::Record;
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;

pub(crate) use nodes::make as make_gpu_nodes;

const UDEVADM: &str = "/usr/bin/udevadm";
/// Longest wait for udevadm, beyond its own limit of 30 s.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The specification for the present state of the node.
pub(super) enum Specification {
    /// The stack wants none, or no package has the user space of the driver.
    Absent,
    Ready(Target),
    /// The specification cannot be made, or would define the devices of another file again.
    Refused(Failure),
}

impl Specification {
    /// Makes the specification of the installed driver.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn of(
        machine: &Machine,
        plan: &ConvergePlan,
        database: &Database,
        record: &Record,
    ) -> Result<Self, Failure> {
        if !plan.cdi {
            return Ok(Self::Absent);
        }
        match make(machine, database) {
            Ok(None) => Ok(Self::Absent),
            Ok(Some(content)) => {
                let mut target = Target::ours(CDI_SPECIFICATION, Some(content));
                target.former = record.wrote_openly(CDI_SPECIFICATION);
                Ok(Self::Ready(target))
            }
            Err(failure) if is_of_specification(&failure.code) => Ok(Self::Refused(failure)),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the path of a wanted specification: the former file is replaced, not removed.
    pub(super) fn path(&self) -> Option<&'static str> {
        match self {
            Self::Absent => None,
            Self::Ready(_) | Self::Refused(_) => Some(CDI_SPECIFICATION),
        }
    }

    /// Compares the present file with the specification.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn observe(
        &self,
        machine: &Machine,
        key: &[u8; 32],
    ) -> Result<Option<Item>, Failure> {
        match self {
            Self::Absent => Ok(None),
            Self::Ready(target) => target.observe(machine, key).map(Some),
            Self::Refused(failure) => Ok(Some(Item::new(
                format!("file {CDI_SPECIFICATION}"),
                "the specification of the installed driver",
                Some(failure.message.clone()),
            ))),
        }
    }

    fn write(self, machine: &Machine, plan: &ConvergePlan, cx: &JobContext) -> Result<(), Failure> {
        let target = match self {
            Self::Absent => return Ok(()),
            Self::Refused(failure) => return Err(failure),
            Self::Ready(target) => target,
        };
        let key = files::random()?;
        if target.observe(machine, &key)?.fits {
            return Ok(());
        }
        let mut record = Record::load(machine)?;
        record.begin_keeping(machine, plan)?;
        record.write(machine, &target)?;
        target.write(machine)?;
        cx.log(&format!("wrote {CDI_SPECIFICATION}"));
        Ok(())
    }
}

/// Writes the specification of the installed driver and its present device nodes.
///
/// # Errors
/// `cdi_incomplete`, `cdi_conflict`, or `io`.
pub(super) fn apply(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    if !plan.cdi {
        return Ok(());
    }
    nodes::make(machine, cx);
    settle(machine, cx);
    cx.check()?;
    let (database, record) = (Database::read(machine)?, Record::load(machine)?);
    Specification::of(machine, plan, &database, &record)?.write(machine, plan, cx)
}

/// Returns the content; `None` when no package has the user space of the driver.
fn make(machine: &Machine, database: &Database) -> Result<Option<Vec<u8>>, Failure> {
    let Some(driver) = driver::find(machine, database)? else {
        return Ok(None);
    };
    conflict::check(machine)?;
    Ok(Some(document::render(&driver)))
}

fn is_of_specification(code: &FailureCode) -> bool {
    matches!(code, FailureCode::CdiConflict | FailureCode::CdiIncomplete)
}

/// Waits for udev, which makes the nodes of a module just loaded. A failure is logged: a node
/// missing in the specification is a difference for the next run.
fn settle(machine: &Machine, cx: &JobContext) {
    if !machine.path(UDEVADM).exists() {
        return;
    }
    let argv = [UDEVADM, "settle", "--timeout=30"];
    let settled = machine.output(cx, FailureCode::CdiIncomplete, &argv, SETTLE_TIMEOUT);
    if let Err(failure) = settled {
        cx.log(&failure.message);
    }
}
