//! Versions compared number by number, without Debian's epoch and revision. This order differs from
//! dpkg's, which the rules do not need.

use std::cmp::Ordering;

/// Returns the upstream part: 4.6.0 for `1:4.6.0-1`.
pub(super) fn upstream(version: &str) -> &str {
    let plain = version.split_once(':').map_or(version, |(_, plain)| plain);
    plain
        .rsplit_once('-')
        .map_or(plain, |(upstream, _)| upstream)
}

/// Returns the numbers of a version: 570, 124, 6 for 570.124.06. Parsing stops at the first part
/// without a leading digit.
pub(super) fn numbers(version: &str) -> Vec<u64> {
    let digits = |part: &str| {
        part.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()
    };
    upstream(version).split('.').map_while(digits).collect()
}

/// Compares two versions number by number. A missing number counts as 0, so 13.0 equals 13.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (numbers(a), numbers(b));
    let at = |numbers: &[u64], place: usize| numbers.get(place).copied().unwrap_or_default();
    let places = 0..a.len().max(b.len());
    places
        .map(|place| at(&a, place).cmp(&at(&b, place)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Returns the first `parts` numbers: `24.11` for 24.11.5.
pub(super) fn first(version: &str, parts: usize) -> String {
    upstream(version)
        .split('.')
        .take(parts)
        .collect::<Vec<_>>()
        .join(".")
}

/// Returns whether a text matches a pattern, where `*` matches any text. Runs in linear time in
/// both lengths, because the search never moves back before the latest star.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_their_makers() {
        assert_eq!(upstream("1:4.6.0-1"), "4.6.0");
        assert_eq!(upstream("580.126.20-0ubuntu0.24.04.1"), "580.126.20");
        assert_eq!(compare("570.26", "570.124.06"), Ordering::Less);
        assert_eq!(compare("13.0-1", "13"), Ordering::Equal);
        assert_eq!(compare("12.10", "12.8.1"), Ordering::Greater);
        assert_eq!(first("22.05.8-4+deb12u3", 2), "22.05");
    }

    #[test]
    fn a_star_is_anything() {
        assert!(
            glob("nvidia-dkms-*-open", "nvidia-dkms-580-open")
                && !glob("nvidia-dkms-*-open", "nvidia-dkms-580")
        );
        assert!(
            glob("a*", "a") && glob("*", "") && glob("a*b*c", "a1b2b3c") && !glob("a*b*c", "acb")
        );
        assert!(!glob("ab*ba", "aba"), "no letter counts twice");
        assert!(glob("runc", "runc") && !glob("runc", "runc2"));
    }
}
