//! The marker of a disk in use: node, claim, epoch and image. The marker is stored in the disk's
//! first megabyte and can be read without a mount, also from a half-written disk.
//!
//! `/etc/muster/marker.json` on the root file system repeats the marker for people and for the
//! installed system. Only the marker in the first megabyte is checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use muster_core::ids::ClaimId;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, Marker, Plan};

use crate::failure::{fatal, io as io_failure};

/// Offset of the marker, between the partition table's entries (ending at 24 KiB even with sectors
/// of 4 KiB) and the first partition (1 MiB).
pub const OFFSET: u64 = 64 << 10;
/// Length of the marker: one sector of the largest kind.
pub const LENGTH: usize = 4096;
const MAGIC: &str = "MUSTER MARKER 1 ";

/// The content found at the marker's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Marker(Marker),
    /// The marker's magic with unreadable content: the owner of the data is unknown.
    Damaged,
}

/// Encodes a marker's sector: magic and digest, then JSON, then zeros.
///
/// # Errors
/// `malformed` when the marker is too long; a real marker always fits.
pub fn encode(marker: &Marker) -> Result<[u8; LENGTH], Failure> {
    let json = serde_json::to_string(marker)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    let text = format!("{MAGIC}{}\n{json}\n", Digest::of(json.as_bytes()).hex());
    let mut sector = [0; LENGTH];
    let place = sector
        .get_mut(..text.len())
        .ok_or_else(|| fatal(FailureCode::Malformed, "the marker is too long"))?;
    place.copy_from_slice(text.as_bytes());
    Ok(sector)
}

/// Decodes a marker's sector.
pub fn decode(sector: &[u8]) -> Found {
    let Some(rest) = sector.strip_prefix(MAGIC.as_bytes()) else {
        return Found::Nothing;
    };
    let mut lines = rest.splitn(3, |&byte| byte == b'\n');
    let (Some(digest), Some(json), Some(_)) = (lines.next(), lines.next(), lines.next()) else {
        return Found::Damaged;
    };
    match (
        Digest::of(json).hex().as_bytes() == digest,
        serde_json::from_slice(json),
    ) {
        (true, Ok(marker)) => Found::Marker(marker),
        _ => Found::Damaged,
    }
}

/// Refuses a disk owned by another claim, or marked with a higher epoch than the plan's. `claim` is
/// `None` for a node without any claim so far; disks of such a node carry no marker.
///
/// # Errors
/// `marked_in_use`, `io`.
pub fn check(
    disk: &File,
    plan: &Plan,
    claim: Option<ClaimId>,
    serial: &str,
) -> Result<(), Failure> {
    let mut sector = [0; LENGTH];
    match disk.read_exact_at(&mut sector, OFFSET) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read.map_err(io_failure(format!("reading the marker of disk {serial}")))?,
    }
    let refuse = |why: String| {
        Err(fatal(
            FailureCode::MarkedInUse,
            format!("disk {serial} {why}"),
        ))
    };
    match decode(&sector) {
        Found::Nothing => Ok(()),
        Found::Damaged => {
            refuse("carries a damaged marker: the owner of the data is unknown".into())
        }
        Found::Marker(marker) if Some(marker.claim) != claim => refuse(format!(
            "is in use by claim {} (node {}, epoch {})",
            marker.claim, marker.node, marker.epoch
        )),
        Found::Marker(marker) if marker.epoch > plan.epoch => refuse(format!(
            "is in use since epoch {}, newer than the plan's epoch {}",
            marker.epoch, plan.epoch
        )),
        Found::Marker(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::ids::NodeId;
    use proptest::prelude::*;

    fn marker() -> Marker {
        Marker {
            protocol: 1,
            node: NodeId::new(),
            claim: ClaimId::new(),
            epoch: 3,
            image: Digest::of(b"image"),
        }
    }

    #[test]
    fn a_marker_round_trips_and_damage_is_seen() {
        let marker = marker();
        let mut sector = encode(&marker).unwrap();
        assert_eq!(decode(&sector), Found::Marker(marker));
        assert_eq!(decode(&[0; LENGTH]), Found::Nothing);
        sector[100] ^= 1;
        assert_eq!(decode(&sector), Found::Damaged);
        assert_eq!(decode(MAGIC.as_bytes()), Found::Damaged);
    }

    proptest! {
        #[test]
        fn no_sector_breaks_the_reader(tail in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert_eq!(decode(&[MAGIC.as_bytes(), &tail].concat()), Found::Damaged);
        }
    }
}
