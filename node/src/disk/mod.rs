//! Disks: found by serial, marked, imaged, wiped. The code here destroys data, so each act first
//! proves four facts. The disk has the named serial, the disk is unused, the marker belongs to the
//! claim, and the server signed a permit.

pub mod erase; // The disk's own erase methods
pub mod fetch; // A blob over HTTP, resumed after a break
pub mod find; // Finds the disk with a serial
pub mod gpt; // The part of a partition table needed for imaging
pub mod image; // The job `write-image`
pub mod marker; // The marker of a disk in use
pub mod nvram; // The firmware's boot entries
pub mod settle; // Writes this node's own files into a generic image
mod signature; // The signature of an image
pub mod stream; // Network to disk, with both digests verified
pub mod table; // Fits an image's partitions to the disk
pub mod verify; // Proof that a wipe erased the disk
pub mod wipe; // The job `wipe`

pub use image::write_image;
pub use wipe::wipe;
