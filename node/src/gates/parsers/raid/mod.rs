//! Software RAID: all arrays as reported by the kernel, and selected arrays as reported by mdadm.
//! Both parsers produce the same metrics.

pub(super) mod mdadm; // `mdadm --detail`
pub(super) mod mdstat; // /proc/mdstat

use super::Reading;

/// State of an array.
struct Array {
    /// `md0`
    name: String,
    level: Option<String>,
    /// The array does not run.
    inactive: bool,
    /// Number of devices in the complete array. For an inactive array, the number of listed
    /// devices.
    devices: usize,
    missing: Option<usize>,
    failed: usize,
    rebuilding: bool,
}

/// Levels with redundancy, which keep running without a device.
const REDUNDANT: [&str; 5] = ["raid1", "raid4", "raid5", "raid6", "raid10"];
const PLAIN: [&str; 2] = ["linear", "raid0"];

fn told(arrays: Vec<Array>) -> Reading {
    let mut reading = Reading::default();
    reading.count("raid.arrays", arrays.len());
    for array in arrays {
        let name = array.name.as_str();
        if let Some(level) = &array.level {
            reading.add_word("raid.level", name, level);
        }
        reading.add_of("raid.inactive", name, u8::from(array.inactive));
        reading.count_of("raid.devices", name, array.devices);
        if let Some(missing) = array.missing {
            reading.count_of("raid.devices_missing", name, missing);
        }
        reading.count_of("raid.devices_failed", name, array.failed);
        reading.add_of("raid.rebuilding", name, u8::from(array.rebuilding));
        if array.inactive || array.failed > 0 || array.missing.is_some_and(|missing| missing > 0) {
            reading.notes.push(format!(
                "{name}: {}{} of {} devices missing, {} failed",
                if array.inactive { "does not run; " } else { "" },
                array
                    .missing
                    .map_or("?".to_owned(), |missing| missing.to_string()),
                array.devices,
                array.failed
            ));
        }
    }
    reading
}
