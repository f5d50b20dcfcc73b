//! File systems mounted by a stack: systemd units of type `.mount`, with the directory encoded in
//! the unit's name.

use super::ConvergePlan;

/// Returns the directory of a mount unit, by systemd's naming rule: `-` means `/`, and `\x2d` means
/// `-` (systemd.unit(5), string escaping). Returns `None` for units of other types and for names
/// without a valid path.
fn mount_point(unit: &str) -> Option<String> {
    let name = unit
        .strip_suffix(".mount")
        .filter(|name| !name.is_empty())?;
    if name == "-" {
        return Some("/".into());
    }
    let mut path = vec![b'/'];
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'-' => path.push(b'/'),
            b'\\' => {
                let digits = rest.strip_prefix(b"x").and_then(|digits| digits.get(..2))?;
                path.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = &rest[3..];
            }
            other => path.push(other),
        }
    }
    let path = String::from_utf8(path).ok()?;
    let clean = path
        .split('/')
        .skip(1)
        .all(|part| !part.is_empty() && part != "." && part != "..");
    (clean && !path.chars().any(char::is_control)).then_some(path)
}

impl ConvergePlan {
    /// Returns the mount units required to be active, each with the mounted directory.
    pub fn mounts(&self) -> Vec<(&str, String)> {
        let running = self.services.iter().filter(|service| service.running);
        running
            .filter_map(|service| Some((service.name.as_str(), mount_point(&service.name)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_named_after_its_directory() {
        let places = [
            ("shared.mount", Some("/shared")),
            ("mnt-weka-fs01.mount", Some("/mnt/weka/fs01")),
            ("mnt-my\\x2ddata.mount", Some("/mnt/my-data")),
            ("-.mount", Some("/")),
            ("shared.service", None),
            (".mount", None),
            ("a--b.mount", None),
            ("a-..-b.mount", None),
            ("a\\x0.mount", None),
            ("a\\x0a.mount", None),
        ];
        for (unit, place) in places {
            assert_eq!(mount_point(unit).as_deref(), place, "{unit}");
        }
    }
}
