//! Maintenance windows: the times at which rollouts may take nodes out of service.

use muster_core::rollout::MaintenanceWindow;

use crate::kind::Kind;
use crate::object::NoStatus;

impl Kind for MaintenanceWindow {
    const KIND: &'static str = "maintenance_window";
    const COLLECTION: &'static str = "maintenance_windows";
    const SCHEMA: &'static str = "MaintenanceWindowObject";
    type Status = NoStatus;
}
