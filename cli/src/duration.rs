//! Durations as typed by people.

use std::time::Duration;

/// `90s`, `15m`, `2h`, `30d`.
///
/// # Errors
/// For any other form.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 15m, 2h or 30d");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        "d" => number.checked_mul(24 * 3600),
        _ => None,
    };
    // The longest lifetime of a token is a year.
    seconds
        .filter(|seconds| *seconds <= 366 * 24 * 3600)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("2d"), Ok(Duration::from_secs(172_800)));
        for bad in [
            "",
            "5",
            "m",
            "5w",
            "1000d",
            "-1s",
            "99999999999999999999s",
            "10000h",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
