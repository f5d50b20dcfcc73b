//! Maintenance windows.

use muster_core::rollout::MaintenanceWindow;

use crate::document::fault;
use crate::error::Fault;
use crate::http::declared::Declared;

impl Declared for MaintenanceWindow {
    const LOOSENING: &'static [&'static str] = &["rollout.start"];

    fn faults(&self) -> Vec<Fault> {
        let faults = MaintenanceWindow::faults(self).into_iter();
        let faults = faults.map(|wrong| {
            let pointer = match wrong.pointer.is_empty() {
                true => "/spec".to_owned(),
                false => format!("/spec/{}", wrong.pointer),
            };
            fault(pointer, wrong.code, wrong.detail)
        });
        faults.collect()
    }

    /// Needs `rollout.start` for a change with further open times, because started rollouts would
    /// then take nodes.
    fn loosened(&self, new: &Self) -> Vec<&'static str> {
        match self.may_open_more(new) {
            true => vec!["rollout.start"],
            false => Vec::new(),
        }
    }
}
