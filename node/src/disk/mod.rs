//! Disks: found by serial, marked, imaged, wiped.
use crate::job::JobContext;
use muster_core::wire::node::*;
pub fn write_image(_plan: &Plan, _image: &WriteImage, _cx: &JobContext) -> Result<ImageWritten, Failure> {
    Err(crate::failure::fatal("unsupported", "not yet"))
}
pub fn wipe(_plan: &Plan, _wipe: &WipePlan, _cx: &JobContext) -> Result<Vec<WipedDisk>, Failure> {
    Err(crate::failure::fatal("unsupported", "not yet"))
}
