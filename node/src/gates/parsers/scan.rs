//! Numbers and words in the output of tools. A number consists of decimal digits with at most a
//! single point. Signs, exponents, `nan` and surrounding text are rejected.

/// Upper bound of a valid number. Larger numbers are blank sentinels (DCGM's and NVML's are just
/// under 2^63) or invalid. Doubles count exactly up to the bound.
pub(super) const LARGEST: f64 = 9_007_199_254_740_992.0;
/// Maximum length of a stored word, in characters.
const WORD_MAX: usize = 120;

/// Deserializes a number and checks the range before any computation. Otherwise a change of unit
/// could make a blank sentinel plausible.
pub(super) fn plain<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = <f64 as serde::Deserialize>::deserialize(deserializer)?;
    match (0.0..LARGEST).contains(&number) {
        true => Ok(number),
        false => Err(serde::de::Error::custom(format!(
            "{number} is no measurement"
        ))),
    }
}

/// Parses a number in the range of a measurement.
pub(super) fn number(word: &str) -> Option<f64> {
    let plain = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    if !plain || word.len() > 24 {
        return None;
    }
    // Rust's parser also rejects two points.
    word.parse().ok().filter(|number| *number < LARGEST)
}

/// Parses a number without a fraction.
pub(super) fn count(word: &str) -> Option<f64> {
    if word.contains('.') {
        None
    } else {
        number(word)
    }
}

/// Parses `81559 MiB`: a number, exactly a single space, and the given unit.
pub(super) fn quantity(text: &str, unit: &str) -> Option<f64> {
    number(text.strip_suffix(unit)?.strip_suffix(' ')?)
}

/// Returns text safe to store: a single line of bounded length, without control characters.
pub(super) fn word(text: &str) -> String {
    text.trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(WORD_MAX)
        .collect()
}

/// Rejects an output with a truncated last line. All line-based tools end the output with a
/// newline, and a truncated number is a different number.
pub(super) fn whole(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("its output is empty".into());
    }
    if !text.ends_with('\n') {
        return Err(format!(
            "it ends in the middle of a line: {:?}",
            word(text.lines().last().unwrap_or_default())
        ));
    }
    Ok(())
}

/// Returns the text between the first `open` and the next `close`.
pub(super) fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    Some(rest.split_once(close)?.0)
}

/// Returns the PCI address in the form of sysfs: `00000000:1B:00.0` becomes `0000:1b:00.0`.
pub(super) fn pci_address(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let short = text
        .strip_prefix("0000")
        .filter(|short| short.len() == 12)
        .unwrap_or(&text);
    let (domain, rest) = short.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |word: &str, digits: usize| {
        word.len() == digits && word.chars().all(|c| c.is_ascii_hexdigit())
    };
    let known =
        (hex(domain, 4) || hex(domain, 8)) && hex(bus, 2) && hex(device, 2) && hex(function, 1);
    known.then(|| short.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strict() {
        assert_eq!(number("12"), Some(12.0));
        assert_eq!(number("231.70"), Some(231.7));
        for wrong in [
            "",
            "-1",
            "+1",
            "1e3",
            "nan",
            "inf",
            ".5",
            "5.",
            "1.2.3",
            "0x10",
            "N/A",
            " 1",
            "9223372036854775794",
        ] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
        assert_eq!(count("1.5"), None);
        assert_eq!(quantity("81559 MiB", "MiB"), Some(81_559.0));
        for wrong in [
            "81559",
            "81559 MB",
            "81559MiB",
            "81559  MiB",
            "-3 MiB",
            "N/A",
        ] {
            assert_eq!(quantity(wrong, "MiB"), None, "{wrong:?}");
        }
    }

    #[test]
    fn addresses_are_as_sysfs_writes_them() {
        assert_eq!(
            pci_address("00000000:1B:00.0").as_deref(),
            Some("0000:1b:00.0")
        );
        assert_eq!(pci_address("0000:83:00.0").as_deref(), Some("0000:83:00.0"));
        assert_eq!(
            pci_address("00010000:01:00.0").as_deref(),
            Some("00010000:01:00.0")
        );
        for wrong in [
            "",
            "N/A",
            "1b:00.0",
            "0000:1b:00",
            "0000:xx:00.0",
            "0000:1b:00.0.0",
        ] {
            assert_eq!(pci_address(wrong), None, "{wrong:?}");
        }
    }
}
