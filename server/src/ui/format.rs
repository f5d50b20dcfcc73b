//! Times, durations and sizes as text for people. Text from nodes is cut to a fixed length, so a
//! machine cannot make a page grow.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A point in time: exact for machines and tooltips, relative for reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339, UTC.
    pub iso: String,
    /// `2026-11-21 04:18:37 UTC`.
    pub exact: String,
    /// `3 min ago`, `in 12 s`.
    pub relative: String,
}

/// Returns a point in time as seen at `now`.
pub(super) fn moment(at: Timestamp, now: Timestamp) -> Moment {
    let apart = now.duration_since(at);
    let relative = match apart.as_secs() {
        0 => "just now".to_owned(),
        seconds if seconds > 0 => format!("{} ago", duration(apart)),
        _ => format!("in {}", duration(apart.abs())),
    };
    Moment {
        iso: at.strftime("%FT%TZ").to_string(),
        exact: at.strftime("%F %T UTC").to_string(),
        relative,
    }
}

/// Formats a duration with at most two units: `850 ms`, `12 s`, `3 min 5 s`, `2 h 5 min`, `3 d 4
/// h`.
pub(super) fn duration(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big} {big_unit}"),
        _ => format!("{big} {big_unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{} ms", length.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3600..86400 => pair(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => pair(seconds / 86400, "d", seconds % 86400 / 3600, "h"),
    }
}

/// Formats a size in bytes: `1.5 TiB`, `64 GiB`, `512 B`.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scale = 1_u64;
    while unit + 1 < UNITS.len() && count / scale >= 1024 {
        scale <<= 10;
        unit += 1;
    }
    let tenths = u128::from(count) * 10 / u128::from(scale);
    match tenths % 10 {
        0 => format!("{} {}", tenths / 10, UNITS[unit]),
        rest if tenths < 1000 => format!("{}.{rest} {}", tenths / 10, UNITS[unit]),
        _ => format!("{} {}", tenths / 10, UNITS[unit]),
    }
}

/// Formats a count with separators: `12,345`.
pub(super) fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the first `most` characters. A cut text ends with `…`.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Cuts a list of rows, and returns the number of the rows that were cut off.
pub(super) fn cut_rows<Row>(rows: &mut Vec<Row>, most: usize) -> usize {
    let more = rows.len().saturating_sub(most);
    rows.truncate(most);
    more
}

/// Cuts a list of sentences. A cut list ends with the number of further sentences.
pub(super) fn cut_sentences(mut told: Vec<String>, most: usize) -> Vec<String> {
    let more = cut_rows(&mut told, most);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told
}

/// Counts the rows of a table with at most `most` rows: `64 of 80`, or `12`.
pub(super) fn count_rows(all: usize, most: usize) -> String {
    match all > most {
        true => format!("{most} of {all}"),
        false => all.to_string(),
    }
}

/// Returns the last `most` characters. A cut text begins with `…`.
pub(super) fn tail(text: &str, most: usize) -> String {
    match text.char_indices().nth_back(most.saturating_sub(1)) {
        Some((at, _)) if at > 0 => format!("…{}", &text[at..]),
        _ => text.to_owned(),
    }
}

/// Quotes a text for a POSIX shell.
pub(super) fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Escapes a value for a query string.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Returns a text member of a JSON document. A missing member gives an empty text.
pub(super) fn member<'value>(value: &'value Value, name: &str) -> &'value str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_two_units() {
        let seconds = SignedDuration::from_secs;
        for (length, text) in [
            (SignedDuration::from_millis(850), "850 ms"),
            (seconds(59), "59 s"),
            (seconds(60), "1 min"),
            (seconds(185), "3 min 5 s"),
            (seconds(7500), "2 h 5 min"),
            (seconds(273_600), "3 d 4 h"),
        ] {
            assert_eq!(duration(length), text);
        }
        let now = Timestamp::from_second(1_000).unwrap();
        assert_eq!(
            moment(Timestamp::from_second(988).unwrap(), now).relative,
            "12 s ago"
        );
        assert_eq!(
            moment(Timestamp::from_second(1_120).unwrap(), now).relative,
            "in 2 min"
        );
        assert_eq!(moment(now, now).relative, "just now");
    }

    #[test]
    fn sizes_are_never_rounded_up() {
        for (size, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            ((64 << 30) - 1, "63.9 GiB"),
            (64 << 30, "64 GiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
        assert_eq!(
            [count(999), count(1000), count(-1_234_567)],
            ["999", "1,000", "-1,234,567"]
        );
    }

    #[test]
    fn a_cut_list_names_the_number_of_the_others() {
        let told = || vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert_eq!(cut_sentences(told(), 2), ["a", "b", "and 1 more"]);
        assert_eq!(cut_sentences(told(), 3), ["a", "b", "c"]);
        let mut rows = told();
        assert_eq!((cut_rows(&mut rows, 1), rows.len()), (2, 1));
        assert_eq!((cut_rows(&mut rows, 1), rows.len()), (0, 1));
        assert_eq!([count_rows(64, 64), count_rows(65, 64)], ["64", "64 of 65"]);
    }

    #[test]
    fn texts_are_cut_at_characters_and_quoted() {
        assert_eq!(cut("äöü", 2), "äö…");
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(
            [tail("äöü", 2), tail("äöü", 3), tail("", 3)],
            ["…öü", "äöü", ""]
        );
        assert_eq!(shell("state=in_service"), "state=in_service");
        assert_eq!(shell("it's; rm"), r"'it'\''s; rm'");
        assert_eq!(escape("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
