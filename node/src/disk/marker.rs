//! In use, by whom, since when: kept in the disk's first megabyte, so that it can be read without mounting anything, also from a half-written disk.
//!
//! `/etc/muster/marker.json` on the root file system says the same for people and for the installed system; this one is what decides.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use muster_core::ids::ClaimId;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, Marker, Plan};

use crate::failure::{fatal, io as io_failure};

/// Between the partition table's entries (which end at 24 KiB even with sectors of 4 KiB) and the first partition (1 MiB).
pub const OFFSET: u64 = 64 << 10;
/// One sector of the largest kind.
pub const LENGTH: usize = 4096;
const MAGIC: &str = "MUSTER MARKER 1 ";

/// What stands where a marker would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Marker(Marker),
    /// It says it is a marker, and cannot be read: nobody knows whose data this is.
    Damaged,
}

/// The sector of a marker: magic and digest, then JSON, then zeros.
///
/// # Errors
/// `malformed` when it does not fit, which no real marker can.
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

/// Reads a marker's sector.
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

/// Refuses a disk that is another's: marked with another claim, or with a higher epoch than the plan's. `claim` is `None` for a node that never had
/// one, whose disks therefore carry no marker.
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
            refuse("carries a damaged marker: nobody can tell whose data it holds".into())
        }
        Found::Marker(marker) if Some(marker.claim) != claim => refuse(format!(
            "is in use by claim {} (node {}, epoch {})",
            marker.claim, marker.node, marker.epoch
        )),
        Found::Marker(marker) if marker.epoch > plan.epoch => refuse(format!(
            "is in use since epoch {}, and the plan is of epoch {}",
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
