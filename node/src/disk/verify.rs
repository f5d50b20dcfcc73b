//! Proof that a wipe erased the disk. Random sentinels are planted before the wipe and searched
//! afterwards, and other random places must be clean as well.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use muster_core::wire::node::{Failure, FailureCode};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::find::Target;
use super::stream::{CHUNK, size_of};
use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::{files, tool};

/// Unit of planting and reading, in bytes.
const BLOCK: usize = 4096;
/// Number of planted sentinels, and of other places read.
const PLACES: usize = 256;

/// The planted block and its places.
#[derive(Debug)]
pub struct Sentinels {
    block: [u8; BLOCK],
    places: Vec<u64>,
}

impl Sentinels {
    /// Writes a random block to random places, and syncs the disk.
    ///
    /// # Errors
    /// `io`; `unsanitised` for a disk not returning the written data, because such a disk cannot be
    /// verified later.
    pub fn plant(disk: &File) -> Result<Self, Failure> {
        let (block, places) = (files::random::<BLOCK>()?, places(disk)?);
        for &place in &places {
            disk.write_all_at(&block, place)
                .map_err(io("planting a sentinel"))?;
        }
        disk.sync_all().map_err(io("planting sentinels"))?;
        let planted = Self { block, places };
        let mut seen = [0; BLOCK];
        match planted.places.first() {
            Some(&place) => disk
                .read_exact_at(&mut seen, place)
                .map_err(io("reading a sentinel"))?,
            None => {
                return Err(fatal(
                    FailureCode::Unsanitised,
                    "the disk is too small to be verified",
                ));
            }
        }
        match seen == planted.block {
            true => Ok(planted),
            false => Err(fatal(
                FailureCode::Unsanitised,
                "the disk does not return the data written to the disk",
            )),
        }
    }

    /// Reads the places of all sentinels, as many other places, and both ends. All blocks must be
    /// zero; with `leaves_noise` (a cryptographic erase) a block may also hold other data than the
    /// sentinel. Returns the number of blocks read.
    ///
    /// # Errors
    /// `unsanitised` with the first unclean place, `io`.
    pub fn verify(
        &self,
        cx: &JobContext,
        target: &Target,
        disk: &File,
        leaves_noise: bool,
    ) -> Result<u64, Failure> {
        forget_cache(cx, target, disk);
        let size = size_of(disk)?;
        let mut verified = 0;
        let mut noise = 0_u64;
        let edge = (CHUNK as u64).min(size) / BLOCK as u64;
        let last = size / BLOCK as u64;
        let edges = (0..edge)
            .chain(last.saturating_sub(edge)..last)
            .map(|block| block * BLOCK as u64);
        for place in self
            .places
            .iter()
            .copied()
            .chain(places(disk)?)
            .chain(edges)
        {
            cx.check()?;
            let mut seen = [0; BLOCK];
            disk.read_exact_at(&mut seen, place).map_err(io(format!(
                "reading back disk {} at {place}",
                target.serial
            )))?;
            let clean = seen == [0; BLOCK];
            if seen == self.block || !(clean || leaves_noise) {
                return Err(fatal(
                    FailureCode::Unsanitised,
                    format!("disk {} still holds data at byte {place}", target.serial),
                ));
            }
            noise += u64::from(!clean);
            verified += 1;
        }
        if noise > 0 {
            cx.log(&format!(
                "disk {}: {noise} of {verified} blocks read as random data, none as a planted sentinel",
                target.serial
            ));
        }
        Ok(verified)
    }
}

/// Returns random block-aligned places across the disk; fewer on a tiny disk.
fn places(disk: &File) -> Result<Vec<u64>, Failure> {
    let blocks = size_of(disk)? / BLOCK as u64;
    let random: [u8; PLACES * 8] = files::random()?;
    let (numbers, _) = random.as_chunks::<8>();
    Ok(numbers
        .iter()
        .filter_map(|number| u64::from_le_bytes(*number).checked_rem(blocks))
        .map(|block| block * BLOCK as u64)
        .collect())
}

/// Drops cached data, so that the next read comes from the disk.
fn forget_cache(cx: &JobContext, target: &Target, disk: &File) {
    if target.is_block_device() {
        let _ = tool::output(cx, &["blockdev", "--flushbufs", target.device()]);
    }
    let _ = posix_fadvise(disk, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::stream::zero;
    use muster_core::facts::DiskTransport;
    use std::time::Duration;

    #[test]
    fn only_a_clean_disk_verifies_and_noise_only_where_it_may_be() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let disk = file.as_file();
        disk.set_len(16 << 20).unwrap();
        let target = Target {
            name: "disk".into(),
            serial: "S".into(),
            path: file.path().into(),
            size: 16 << 20,
            transport: DiskTransport::Other,
        };
        let cx = JobContext::foreground(Duration::from_secs(60));
        let sentinels = Sentinels::plant(disk).unwrap();
        for leaves_noise in [false, true] {
            assert_eq!(
                sentinels
                    .verify(&cx, &target, disk, leaves_noise)
                    .unwrap_err()
                    .code,
                FailureCode::Unsanitised
            );
        }
        zero(disk, 0, 16 << 20).unwrap();
        assert_eq!(
            sentinels.verify(&cx, &target, disk, false).unwrap(),
            2 * 256 + 2 * 256
        );
        disk.write_all_at(b"left", (16 << 20) - 100).unwrap();
        assert!(sentinels.verify(&cx, &target, disk, false).is_err());
        assert!(sentinels.verify(&cx, &target, disk, true).is_ok());
    }
}
