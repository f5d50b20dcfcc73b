//! The block device of a message, by the place of the name. Words of a user can stand behind that
//! place, such as the name of a process after `comm`.

/// Devices that are no disks of the node: images of containers, network disks, memory.
const NO_DISKS: [&str; 4] = ["loop", "nbd", "ram", "zram"];
/// Drives with removable media. The virtual media of a BMC are often unplugged while mounted, which
/// logs errors.
const REMOVABLE: [&str; 2] = ["sr", "fd"];

/// Returns whether the message is about a device that is no disk of the node.
pub(super) fn is_no_disk(message: &str) -> bool {
    let device = name(message).unwrap_or_default();
    is_one_of(device, &NO_DISKS) || is_one_of(device, &REMOVABLE)
}

fn is_one_of(device: &str, kinds: &[&str]) -> bool {
    let rest = kinds.iter().find_map(|kind| device.strip_prefix(*kind));
    rest.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the text from the name on: `error, dev loop6, sector 0`, `on device sr0`,
/// `XFS (loop3): `, `EXT4-fs error (device loop3): `.
fn name(message: &str) -> Option<&str> {
    let places = [" dev ", " device ", "("];
    let first = places
        .iter()
        .filter_map(|place| Some(message.find(*place)? + place.len()))
        .min()?;
    let rest = &message[first..];
    Some(rest.strip_prefix("device ").unwrap_or(rest))
}
