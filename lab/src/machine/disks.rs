//! The files behind a machine's disks, read from outside while it is off: the witness for "imaged" and "wiped".

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use muster_core::values::Digest;
use nix::unistd::{Whence, lseek};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::launch::GuestAct;
use super::qemu_args::disk_file;
use super::{Machine, PowerState};
use crate::error::{LabError, io};
use crate::plan::{DiskPlan, MachinePlan};

/// The unit of reading, in bytes.
pub const BLOCK: u64 = 4096;
/// The most blocks one sample reads.
const MAX_BLOCKS: usize = 65_536;

/// One block as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRead {
    /// Where on the disk, in bytes; a multiple of [`BLOCK`].
    pub offset: u64,
    /// Its digest.
    pub digest: Digest,
    /// Whether every byte is zero.
    pub zero: bool,
}

/// How much of a disk holds anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of the sparse file that the host has stored; zero for a disk never written, or discarded whole.
    pub stored: u64,
}

/// Makes the files of disks that do not exist yet, sparse.
pub(crate) fn create(plan: &MachinePlan, dir: &std::path::Path) -> Result<(), LabError> {
    for disk in &plan.disks {
        let path = dir.join(disk_file(disk));
        let what = || io(format!("make {}", path.display()));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(what())?;
        let size = u64::from(disk.size_gib) << 30;
        if file.metadata().map_err(what())?.len() != size {
            file.set_len(size).map_err(what())?;
        }
    }
    Ok(())
}

impl Machine {
    /// How much of a disk holds anything; also while it runs.
    pub fn disk_use(&self, serial: &str) -> Result<DiskUse, LabError> {
        let metadata = self
            .disk(serial)?
            .metadata()
            .map_err(io(format!("read the size of {serial}")))?;
        Ok(DiskUse {
            size: metadata.len(),
            stored: metadata.blocks() * 512,
        })
    }

    /// Reads up to `count` blocks chosen by `seed`: half of them anywhere, half where the file holds data. The machine must be off.
    pub fn disk_sample(
        &self,
        serial: &str,
        seed: u64,
        count: usize,
    ) -> Result<Vec<BlockRead>, LabError> {
        let file = self.idle_disk(serial)?;
        let blocks = file
            .metadata()
            .map_err(io(format!("read the size of {serial}")))?
            .len()
            / BLOCK;
        let mut random = StdRng::seed_from_u64(seed);
        let mut offsets = Vec::with_capacity(count.min(MAX_BLOCKS));
        for turn in 0..count.min(MAX_BLOCKS) {
            let anywhere = random.random_range(0..blocks) * BLOCK;
            let written = (turn % 2 == 1)
                .then(|| next_data(&file, anywhere))
                .flatten();
            offsets.push(written.unwrap_or(anywhere));
        }
        read_blocks(&file, serial, &offsets)
    }

    /// Reads the blocks at these offsets: the same ones again after a wipe. The machine must be off.
    pub fn disk_read(&self, serial: &str, offsets: &[u64]) -> Result<Vec<BlockRead>, LabError> {
        read_blocks(
            &self.idle_disk(serial)?,
            serial,
            &offsets[..offsets.len().min(MAX_BLOCKS)],
        )
    }

    /// Puts a zstd-compressed image on a disk, as a machine arrives that somebody else has installed. It must be off.
    pub async fn image_disk(&self, serial: &str, image: &std::path::Path) -> Result<(), LabError> {
        self.idle_disk(serial)?;
        let path = self.disk_path(serial)?;
        let mut zstd = tokio::process::Command::new("zstd");
        zstd.args(["-d", "-q", "-f", "--sparse", "-o"])
            .arg(&path)
            .arg(image)
            .kill_on_drop(true);
        let written = zstd.status().await.map_err(io("start zstd"))?;
        match written.success() {
            true => Ok(()),
            false => Err(self.refusal(format!(
                "zstd could not write {} to {}",
                image.display(),
                path.display()
            ))),
        }
    }

    /// Bytes of content that this boot's guest has had written to its disks, at most. None while it is off or says nothing.
    ///
    /// The smaller of two counts from outside: QEMU's process has written what its guest sends to the network as well, and QEMU's count
    /// for its disks has ranges of zeroes that nobody wrote out.
    pub async fn written(&self) -> Option<u64> {
        let guest = self.running.lock().await.guest.clone()?;
        let counters = std::fs::read_to_string(format!("/proc/{}/io", guest.pid?)).ok()?;
        let process = counters
            .lines()
            .find_map(|line| line.strip_prefix("wchar: "))?
            .parse()
            .ok()?;
        let counts = guest.act(GuestAct::CountBlocks).await.ok()?;
        let disks: Option<u64> = counts
            .as_array()?
            .iter()
            .map(|disk| disk["stats"]["wr_bytes"].as_u64())
            .sum();
        disks.map(|disks| disks.min(process))
    }

    fn idle_disk(&self, serial: &str) -> Result<File, LabError> {
        match self.power() {
            PowerState::Off => self.disk(serial),
            PowerState::On => {
                Err(self.refusal("its disks are read from outside only while it is off"))
            }
        }
    }

    fn disk(&self, serial: &str) -> Result<File, LabError> {
        let path = self.disk_path(serial)?;
        File::open(&path).map_err(io(format!("open {}", path.display())))
    }

    /// The file behind a disk.
    pub(crate) fn disk_path(&self, serial: &str) -> Result<std::path::PathBuf, LabError> {
        let of_serial = |disk: &&DiskPlan| disk.serial == serial;
        let disk = self
            .plan
            .disks
            .iter()
            .find(of_serial)
            .ok_or_else(|| LabError::Unknown(format!("disk {serial}")))?;
        Ok(self.dir.join(disk_file(disk)))
    }
}

/// The first block at or after `offset` that the file stores.
fn next_data(file: &File, offset: u64) -> Option<u64> {
    let found = lseek(file, i64::try_from(offset).ok()?, Whence::SeekData).ok()?;
    u64::try_from(found).ok().map(|found| found / BLOCK * BLOCK)
}

fn read_blocks(file: &File, serial: &str, offsets: &[u64]) -> Result<Vec<BlockRead>, LabError> {
    let mut block = vec![0; BLOCK as usize];
    let read = |offset: &u64| {
        file.read_exact_at(&mut block, *offset)
            .map_err(io(format!("read {serial} at {offset}")))?;
        Ok(BlockRead {
            offset: *offset,
            digest: Digest::of(&block),
            zero: block.iter().all(|byte| *byte == 0),
        })
    };
    offsets.iter().map(read).collect()
}
