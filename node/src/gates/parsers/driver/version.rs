//! Versions of NVIDIA's driver in the names of files.

/// Smallest number of a driver branch. Other libraries in a driver's package have versions of their
/// own, such as `1.1.13`.
const BRANCH_MIN: u32 = 100;
/// Longest version, in characters.
const LONGEST: usize = 20;

/// Whether a word is a version of the driver, such as `550.163.01` or `575.57`.
pub(super) fn is_driver_version(word: &str) -> bool {
    let mut numbers = word.split('.');
    let branch = numbers.next().and_then(|branch| branch.parse::<u32>().ok());
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    word.len() <= LONGEST
        && word.split('.').all(is_number)
        && branch.is_some_and(|branch| branch >= BRANCH_MIN)
        && numbers.next().is_some()
}

/// Returns the driver version of a path: the end of a library's name, or the name of a folder.
pub(super) fn version_of(path: &str) -> Option<&str> {
    path.split('/').find_map(|part| {
        let version = part
            .rsplit_once(".so.")
            .map_or(part, |(_, version)| version);
        is_driver_version(version).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_branch_of_the_driver_is_a_version_of_the_driver() {
        for word in ["550.163.01", "535.309.01", "575.57", "580.95.05"] {
            assert!(is_driver_version(word), "{word}");
        }
        for word in [
            "",
            "1",
            "550",
            "1.1.13",
            "99.1",
            "550.",
            ".550",
            "550..1",
            "550.a",
            "+550.1",
            "550.163.01-2",
            "99999999999.1",
            "550.111111111111111111",
        ] {
            assert!(!is_driver_version(word), "{word}");
        }
    }

    #[test]
    fn a_path_has_the_version_of_its_library_or_its_folder() {
        let folder = "/usr/lib/x86_64-linux-gnu/nvidia/current";
        for (path, version) in [
            ("libcuda.so.550.163.01", Some("550.163.01")),
            ("libcuda.so.1", None),
            ("libnvidia-egl-gbm.so.1.1.2", None),
            ("nvidia-smi", None),
        ] {
            assert_eq!(version_of(&format!("{folder}/{path}")), version, "{path}");
        }
        let firmware = "/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin";
        assert_eq!(version_of(firmware), Some("550.163.01"));
    }
}
