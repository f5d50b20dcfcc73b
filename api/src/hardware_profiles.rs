//! Hardware profiles: the required hardware of a server model, and the model's thresholds.

use muster_core::profiles::HardwareProfile;

use crate::kind::Kind;
use crate::object::NoStatus;

impl Kind for HardwareProfile {
    const KIND: &'static str = "hardware_profile";
    const COLLECTION: &'static str = "hardware_profiles";
    const SCHEMA: &'static str = "HardwareProfileObject";
    type Status = NoStatus;
}
