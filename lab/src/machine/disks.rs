//! The files behind a machine's disks, read from outside while the machine is off. The files are
//! the independent proof for "imaged" and "wiped".

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

/// Size of a read in bytes.
pub const BLOCK: u64 = 4096;
/// Maximum number of blocks in a sample.
const MAX_BLOCKS: usize = 65_536;

/// Result of reading a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRead {
    /// Offset on the disk in bytes; a multiple of [`BLOCK`].
    pub offset: u64,
    /// Digest of the block's content.
    pub digest: Digest,
    /// Whether every byte is zero.
    pub zero: bool,
}

/// The size of a disk and the part in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Size of the disk in bytes.
    pub size: u64,
    /// Bytes of the sparse file allocated on the host; zero for a disk never written or completely
    /// discarded.
    pub stored: u64,
}

/// Makes a sparse file for each disk without a file, and corrects the size of existing files.
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
    /// Returns the size and the allocated bytes of a disk; works also while the machine runs.
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

    /// Reads up to `count` blocks chosen by `seed`: half of the blocks from the whole disk, half
    /// from allocated parts of the file. The machine must be off.
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

    /// Reads the blocks at the given offsets, for example the same blocks again after a wipe. The
    /// machine must be off.
    pub fn disk_read(&self, serial: &str, offsets: &[u64]) -> Result<Vec<BlockRead>, LabError> {
        read_blocks(
            &self.idle_disk(serial)?,
            serial,
            &offsets[..offsets.len().min(MAX_BLOCKS)],
        )
    }

    /// Writes a zstd-compressed image to a disk, to simulate a machine installed before its
    /// arrival. The machine must be off.
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

    /// Returns an upper bound for the bytes of content written to the disks by the guest since its
    /// boot. Returns `None` while the machine is off or QEMU gives no answer.
    ///
    /// The result is the smaller of two counts from outside. The count of QEMU's process includes
    /// data sent by the guest to the network. QEMU's count for the disks includes ranges of zeroes,
    /// discarded instead of written.
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

    /// Returns the path of the file behind a disk.
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

/// Returns the offset of the first block at or after `offset` allocated in the file.
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
