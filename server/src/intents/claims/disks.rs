//! The treatment of the disks by a release.

/// The treatment of the disks by a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// The disks stay readable for the pool's undo window. Within the window the release can be
    /// undone.
    Kept,
    ErasedNow,
}
