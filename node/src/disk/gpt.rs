//! The part of a GUID partition table (UEFI 2.10, 5.3) needed for imaging: the start of a
//! partition. The image's table is unverified at this point, so every number is checked.

/// Sector size of images, in bytes.
pub const SECTOR: u64 = 512;
const ENTRIES_MAX: u32 = 256;

/// Returns the first byte of partition `number` (from 1) in the table at the start of `disk`;
/// `None` without such a partition.
pub fn start_of(disk: &[u8], number: u32) -> Option<u64> {
    let header = disk.get(512..1024)?;
    let u32_at =
        |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at =
        |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (entries, count, size) = (
        u64_at(header, 72)?,
        u32_at(header, 80)?,
        u32_at(header, 84)?,
    );
    let index = number
        .checked_sub(1)
        .filter(|&index| index < count.min(ENTRIES_MAX))?;
    if !header.starts_with(b"EFI PART") || !(128..=4096).contains(&size) {
        return None;
    }
    let at = entries
        .checked_mul(SECTOR)?
        .checked_add(u64::from(index) * u64::from(size))?;
    let at = usize::try_from(at).ok()?;
    let entry = disk.get(at..at.checked_add(128)?)?;
    let first = u64_at(entry, 32)?;
    match entry[..16] == [0; 16] || first == 0 {
        true => None,
        false => first.checked_mul(SECTOR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_table_breaks_the_reader(mut disk in proptest::collection::vec(any::<u8>(), 1024..8192), number in 0_u32..300) {
            disk[512..520].copy_from_slice(b"EFI PART");
            start_of(&disk, number);
        }
    }
}
