//! Disks: found by serial, marked, imaged, wiped. What is here destroys data, so each act first proves that it may: the disk is the one that was
//! named, nothing uses it, its marker is not another's, and the server signed for it.

pub mod erase; // The disk's own ways to erase itself
pub mod fetch; // One blob over HTTP, resumed when it breaks
pub mod find; // A serial becomes one whole disk
pub mod gpt; // As much of a partition table as imaging must know
pub mod image; // The job `write-image`
pub mod marker; // In use, by whom, since when
pub mod nvram; // The firmware's boot entries
pub mod settle; // Makes a generic image this node's own
pub mod stream; // Network to disk, verified
pub mod table; // Fits an image's partitions to the disk
pub mod verify; // Whether a wipe wiped
pub mod wipe; // The job `wipe`

pub use image::write_image;
pub use wipe::wipe;
