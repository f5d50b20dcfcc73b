//! A tar archive of a few texts in the format of POSIX.1-1988 (ustar), readable by every tool.

use jiff::Timestamp;

const BLOCK: usize = 512;
/// The size of the header's name field without a prefix, in bytes.
const NAME_MAX: usize = 100;

/// A growing archive in memory.
#[derive(Debug)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    at: Timestamp,
}

impl Archive {
    /// Builds an empty archive. All files get the modification time `at`.
    pub(super) fn new(at: Timestamp) -> Self {
        Self {
            bytes: Vec::new(),
            at,
        }
    }

    /// The number of bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a file. The name must be short, relative, and without `..`.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) {
        debug_assert!(name.len() < NAME_MAX && !name.starts_with('/') && !name.contains(".."));
        let mut header = [0_u8; BLOCK];
        let mut put =
            |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &name[..name.len().min(NAME_MAX - 1)]);
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", content.len()));
        put(136, &format!("{:011o}\0", self.at.as_second().max(0)));
        // The checksum is computed with blanks in the checksum field.
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    /// Ends the archive with two empty blocks, and returns the bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}
