//! Network to disk: the download resumes after breaks, both digests are verified, and the bootable
//! parts are written last.
//!
//! During the write, the disk holds zeros in the first megabyte (partition table, boot code) and in
//! the first megabyte of the EFI system partition. A disk with half an image therefore never boots.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, WriteImage};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use sha2::{Digest as _, Sha256};

use super::fetch::Fetch;
use super::gpt;
use super::marker::{self, LENGTH};
use crate::failure::{fatal, io, retryable};
use crate::job::JobContext;

/// Unit of writing, in bytes; all-zero units are not written.
pub const CHUNK: usize = 1 << 20;
/// Written bytes between two syncs of the disk: bounds dirty memory, and keeps the reported
/// progress honest.
const SYNC_EVERY: u64 = 64 << 20;
/// Bytes of the compressed blob passed on at once.
const PIECE: usize = 256 << 10;
/// Pieces and chunks queued for each thread: enough to bridge a sync of the disk, small enough for
/// a small machine.
const AHEAD: usize = 8;
/// Interval between two progress lines.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The parts of the image not yet on the disk.
#[derive(Debug)]
pub struct HeldBack {
    /// The first megabyte.
    pub head: Vec<u8>,
    /// The megabyte holding the start of the EFI system partition, with its offset.
    pub esp: Option<(u64, Vec<u8>)>,
}

/// Writes the whole image except the held-back parts, and verifies both digests. `disk` holds the
/// marker from the start.
///
/// Fetching, unpacking, hashing and writing run in parallel, each on its own thread, with a few
/// megabytes queued in between.
///
/// # Errors
/// `fetch_failed`, `digest_mismatch`, `image_malformed`, `io`, `cancelled`, `deadline`. After a
/// failure the disk does not boot.
pub fn write(
    cx: &JobContext,
    image: &WriteImage,
    disk: &File,
    marker: &[u8; LENGTH],
) -> Result<HeldBack, Failure> {
    begin(disk, marker)?;
    let mut copy = Copy {
        cx,
        disk,
        image,
        done: 0,
        zeros: 0,
        unsynced: 0,
        told: Instant::now(),
    };
    let abandoned = AtomicBool::new(false);
    let (copied, fetched, raw) = thread::scope(|scope| {
        let (to_unpack, packed) = sync_channel(AHEAD);
        let (to_hash, unpacked) = sync_channel(AHEAD);
        let (to_write, hashed) = sync_channel(AHEAD);
        let (give_back, spare) = channel();
        let fetching = Fetch::new(cx, &image.url, image.size, &abandoned);
        let fetching = scope.spawn(move || fetch_all(fetching, &to_unpack));
        scope.spawn(move || unpack(packed, &to_hash, &spare));
        let hashing = scope.spawn(move || hash(&unpacked, &to_write));
        let copied = copy.run(&hashed, &give_back);
        // A blob that fails to unpack may have been damaged in transit. The rest is fetched, and
        // the digest decides.
        abandoned.store(
            copied
                .as_ref()
                .is_err_and(|failure| failure.code != FailureCode::ImageMalformed),
            Ordering::Relaxed,
        );
        drop(hashed);
        (copied, joined(fetching), joined(hashing))
    });
    // A broken connection is the cause of any decoder error.
    let compressed = match (fetched, &copied) {
        (Ok(compressed), _) => compressed,
        (Err(failure), Err(other)) if failure.code == FailureCode::Abandoned => {
            return Err(other.clone());
        }
        (Err(failure), _) => return Err(failure),
    };
    if copied
        .as_ref()
        .is_err_and(|failure| failure.code != FailureCode::ImageMalformed)
    {
        return copied;
    }
    if compressed != image.digest {
        return Err(mismatch("the blob", image.digest, compressed));
    }
    let held = copied?;
    match raw == image.raw_digest {
        true => Ok(held),
        false => Err(mismatch("the image", image.raw_digest, raw)),
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Fetches the whole blob and returns its digest, even after the unpacking thread has ended.
fn fetch_all(mut fetch: Fetch<'_>, to_unpack: &SyncSender<Vec<u8>>) -> Result<Digest, Failure> {
    loop {
        let mut piece = vec![0; PIECE];
        let count = fill(&mut fetch, &mut piece).unwrap_or(0);
        if count == 0 {
            return fetch.finish();
        }
        piece.truncate(count);
        let _nobody_wants_it = to_unpack.send(piece);
    }
}

/// Unpacks to whole chunks; the last chunk may be short. Ends early with the reason.
fn unpack(
    packed: Receiver<Vec<u8>>,
    to_hash: &SyncSender<io::Result<Vec<u8>>>,
    spare: &Receiver<Vec<u8>>,
) {
    let mut raw = match zstd::stream::read::Decoder::with_buffer(Pieces {
        packed,
        piece: Vec::new(),
        at: 0,
    }) {
        Ok(raw) => raw,
        Err(error) => return drop(to_hash.send(Err(error))),
    };
    loop {
        let mut chunk = spare.try_recv().unwrap_or_default();
        chunk.resize(CHUNK, 0);
        let filled = fill(&mut raw, &mut chunk).map(|count| {
            chunk.truncate(count);
            chunk
        });
        let over = filled.as_ref().map_or(true, Vec::is_empty);
        if to_hash.send(filled).is_err() || over {
            return;
        }
    }
}

/// Passes chunks on and returns the digest of all chunks.
fn hash(
    unpacked: &Receiver<io::Result<Vec<u8>>>,
    to_write: &SyncSender<io::Result<Vec<u8>>>,
) -> Digest {
    let mut hash = Sha256::new();
    for chunk in unpacked {
        if let Ok(chunk) = &chunk {
            hash.update(chunk);
        }
        if to_write.send(chunk).is_err() {
            break;
        }
    }
    Digest(hash.finalize().into())
}

/// Pieces of the blob, as a reader.
struct Pieces {
    packed: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.piece.len() {
            // The sender is gone: the blob has ended, or the fetch failed.
            (self.piece, self.at) = (self.packed.recv().unwrap_or_default(), 0);
        }
        Ok(&self.piece[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

fn mismatch(what: &str, wanted: Digest, got: Digest) -> Failure {
    retryable(
        FailureCode::DigestMismatch,
        format!("{what} has digest {got}, not {wanted}; the disk was left unbootable"),
    )
}

/// Clears the partition tables at both ends and writes the marker. From here on the disk belongs to
/// the claim and does not boot.
fn begin(disk: &File, marker: &[u8; LENGTH]) -> Result<(), Failure> {
    let mut head = vec![0; CHUNK];
    let at = usize::try_from(marker::OFFSET).unwrap_or(0);
    head[at..at + LENGTH].copy_from_slice(marker);
    let size = size_of(disk)?;
    let erased = disk
        .write_all_at(&head, 0)
        .and_then(|()| {
            disk.write_all_at(
                &vec![0; CHUNK],
                size.saturating_sub(CHUNK as u64).max(CHUNK as u64),
            )
        })
        .and_then(|()| disk.sync_data());
    erased.map_err(io("clearing the disk's partition tables"))
}

/// Returns the size of a block device or file in bytes, by seeking to the end.
pub fn size_of(disk: &File) -> Result<u64, Failure> {
    use std::io::{Seek as _, SeekFrom};
    (&*disk)
        .seek(SeekFrom::End(0))
        .map_err(io("reading the disk's size"))
}

/// The writer of unpacked chunks.
struct Copy<'a> {
    cx: &'a JobContext,
    disk: &'a File,
    image: &'a WriteImage,
    /// Raw bytes received so far.
    done: u64,
    /// Zero bytes before `done` not yet written to the disk.
    zeros: u64,
    unsynced: u64,
    told: Instant,
}

impl Copy<'_> {
    fn run(
        &mut self,
        chunks: &Receiver<io::Result<Vec<u8>>>,
        give_back: &Sender<Vec<u8>>,
    ) -> Result<HeldBack, Failure> {
        let mut held = HeldBack {
            head: Vec::new(),
            esp: None,
        };
        let mut esp_chunk = None;
        for chunk in chunks {
            self.cx.check()?;
            let chunk = chunk.map_err(|error| {
                fatal(
                    FailureCode::ImageMalformed,
                    format!("the image does not unpack: {error}"),
                )
            })?;
            let (offset, count, bytes) = (self.done, chunk.len(), chunk.as_slice());
            if count == 0 {
                break;
            }
            self.done += count as u64;
            if self.done > self.image.raw_size {
                return Err(fatal(
                    FailureCode::ImageMalformed,
                    format!(
                        "the image unpacks to more than {} bytes",
                        self.image.raw_size
                    ),
                ));
            }
            if offset == 0 {
                held.head = bytes.to_vec();
                esp_chunk = gpt::start_of(bytes, self.image.esp_partition)
                    .map(|start| start - start % CHUNK as u64);
            } else if Some(offset) == esp_chunk {
                held.esp = Some((offset, bytes.to_vec()));
                self.zeros += count as u64;
            } else {
                self.put(offset, bytes)?;
            }
            self.tell(false);
            let _nobody_unpacks = give_back.send(chunk);
        }
        self.flush_zeros(self.done)?;
        self.disk.sync_data().map_err(io("syncing the disk"))?;
        self.tell(true);
        match self.done == self.image.raw_size
            && held.head.len() == CHUNK
            && (esp_chunk == Some(0) || held.esp.is_some())
        {
            true => Ok(held),
            false => Err(fatal(
                FailureCode::ImageMalformed,
                "the image has a wrong size, or no EFI system partition",
            )),
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.iter().all(|&byte| byte == 0) {
            self.zeros += bytes.len() as u64;
            return Ok(());
        }
        self.flush_zeros(offset)?;
        self.disk
            .write_all_at(bytes, offset)
            .map_err(io("writing the disk"))?;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.disk.sync_data().map_err(io("syncing the disk"))?;
            // Data already on the disk is dropped from the page cache, to spare the memory of a
            // small machine.
            let _ = posix_fadvise(self.disk, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Writes the pending zeros ending at `end` to the disk.
    fn flush_zeros(&mut self, end: u64) -> Result<(), Failure> {
        let length = std::mem::take(&mut self.zeros);
        zero(self.disk, end - length, length).map_err(io("zeroing a part of the disk"))
    }

    fn tell(&mut self, now: bool) {
        if now || self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            self.cx.progress(
                "writing the image",
                Some(self.done),
                Some(self.image.raw_size),
                Some("bytes"),
            );
        }
    }
}

/// Makes a range read as zeros, by the device's own command when available. The kernel guarantees
/// zeros in both cases (fallocate(2) on block devices); a discard gives no such guarantee.
///
/// # Errors
/// Returns the kernel's error.
pub fn zero(disk: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let signed =
        |value: u64| i64::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    match fallocate(
        disk,
        FallocateFlags::FALLOC_FL_ZERO_RANGE,
        signed(offset)?,
        signed(length)?,
    ) {
        Ok(()) => return Ok(()),
        Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let zeros = vec![0; CHUNK];
    let mut at = offset;
    while at < offset + length {
        let count = (offset + length - at).min(CHUNK as u64);
        disk.write_all_at(&zeros[..usize::try_from(count).unwrap_or(CHUNK)], at)?;
        at += count;
    }
    Ok(())
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
