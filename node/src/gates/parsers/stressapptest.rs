//! Parser for stressapptest 1.0: memory copied back and forth with checks. The final verdict and
//! the counts must agree. From 1.0.7 on, each line begins with a time.

use super::{Answer, Reading, scan};

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let only = |start: &str| -> Result<&str, String> {
        let mut lines = answer
            .text
            .lines()
            .filter_map(|line| said(line).strip_prefix(start));
        match (lines.next(), lines.next()) {
            (Some(line), None) => Ok(line),
            (None, _) => Err(format!("there is no line {start:?}")),
            (Some(_), Some(_)) => Err(format!("there are several lines {start:?}")),
        }
    };
    let version = only("Stats: SAT revision ")?
        .split(['_', ','])
        .next()
        .unwrap_or_default();
    if !version.starts_with("1.0.") {
        return Err(format!("version {version:?} is not known"));
    }
    // `65124.00M in 5.01s 13006.95MB/s, with 0 hardware incidents, 0 errors`
    let completed = only("Stats: Completed: ")?;
    let unreadable = || format!("{completed:?} is not understood");
    let words: Vec<&str> = completed.split_whitespace().collect();
    let [
        copied,
        "in",
        _,
        bandwidth,
        "with",
        incidents,
        "hardware",
        "incidents,",
        errors,
        "errors",
    ] = words[..]
    else {
        return Err(unreadable());
    };
    let number = |word: &str, unit: &str| scan::number(word.strip_suffix(unit)?);
    let copied = number(copied, "M").ok_or_else(unreadable)?;
    let bandwidth = number(bandwidth, "MB/s,").ok_or_else(unreadable)?;
    let incidents = scan::count(incidents).ok_or_else(unreadable)?;
    let errors = scan::count(errors).ok_or_else(unreadable)?;
    let status = only("Status: ")?;
    let clean = incidents == 0.0 && errors == 0.0;
    match (status.split(' ').next(), clean, answer.exit) {
        (Some("PASS"), true, 0) => {}
        (Some("FAIL"), false, 1..) => {}
        _ => {
            return Err(format!(
                "{status:?} does not go with {incidents} incidents, {errors} errors"
            ));
        }
    }
    let mut reading = Reading::default();
    reading.version("stressapptest", version);
    reading.add("memory.incidents", incidents);
    reading.add("memory.errors", errors);
    reading.add("memory.copied", copied);
    reading.add("memory.bandwidth", bandwidth);
    let reports = answer
        .text
        .lines()
        .map(said)
        .filter(|line| line.starts_with("Report Error"));
    reading.notes = reports.take(10).map(str::to_owned).collect();
    Ok(reading)
}

/// Removes the time from a line, such as `2025/11/13-04:34:22(UTC) `.
fn said(line: &str) -> &str {
    const TIME: &str = "0000/00/00-00:00:00(";
    let Some((time, zone)) = line.split_at_checked(TIME.len()) else {
        return line;
    };
    let as_time = |(c, like): (char, char)| c == like || like == '0' && c.is_ascii_digit();
    let zoned = |(zone, _): &(&str, &str)| {
        !zone.is_empty()
            && zone
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-".contains(c))
    };
    match zone.split_once(") ").filter(zoned) {
        Some((_, said)) if time.chars().zip(TIME.chars()).all(as_time) => said,
        _ => line,
    }
}
