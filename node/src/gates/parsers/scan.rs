//! Numbers and words in the output of tools. All parsers of texts read numbers here. A number
//! consists of decimal digits with at most a single point, and may end with an exponent, as C, C++
//! and Python print long numbers (`%g`, `%e`). Other forms of exponents, signs before a number,
//! `nan` and surrounding text are rejected.

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

/// Parses a number in the range of a measurement: `231.70`, `6e+06`, `1.04858e+06`, `8.3e-05`.
pub(super) fn number(word: &str) -> Option<f64> {
    let (digits, exponent) = match word.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, Some(exponent)),
        None => (word, None),
    };
    let plain = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    if !plain || digits.len() > 24 || !exponent.is_none_or(is_exponent) {
        return None;
    }
    // Rust's parser also rejects two points. A number too small for a double becomes 0.
    let lost = |number: f64| number == 0.0 && digits.contains(|c: char| ('1'..='9').contains(&c));
    word.parse::<f64>()
        .ok()
        .filter(|number| *number < LARGEST && !lost(*number))
}

/// `+06`, `-05` or `-120`: a sign and two digits, or three for larger exponents (C17, 7.21.6.1).
fn is_exponent(power: &str) -> bool {
    let digits = power.strip_prefix(['+', '-']).unwrap_or_default();
    let is_long = digits.len() == 3 && !digits.starts_with('0');
    (digits.len() == 2 || is_long) && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// Parses a number without a fraction. With an exponent, the value must be whole.
pub(super) fn count(word: &str) -> Option<f64> {
    match word.contains(['e', 'E']) {
        true => number(word).filter(|number| number.fract() == 0.0),
        false if word.contains('.') => None,
        false => number(word),
    }
}

/// Parses the number of a GPU, slot or link: digits alone.
pub(super) fn index(word: &str) -> Option<f64> {
    number(word).filter(|_| word.bytes().all(|digit| digit.is_ascii_digit()))
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
            "1e",
            "e3",
            "1e3",
            "1e+",
            "1e+3",
            "1e++03",
            "1e+03.5",
            "1.e+03",
            "1e+003",
            "1e+999",
            "1e-999",
            "9.1e+15",
            "0x1e3",
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
        for (word, wanted) in [
            ("6e+06", 6e6),
            ("1.04858e+06", 1_048_580.0),
            ("1e+15", 1e15),
            ("1E+03", 1_000.0),
            ("8.3e-05", 8.3e-5),
            ("0e+00", 0.0),
        ] {
            assert_eq!(number(word), Some(wanted), "{word}");
        }
        assert_eq!(count("1.5"), None);
        assert_eq!(count("1.5e+00"), None);
        assert_eq!(count("1.04858e+06"), Some(1_048_580.0));
        assert_eq!(
            (index("12"), index("1e+01"), index("1.2")),
            (Some(12.0), None, None)
        );
        assert_eq!(quantity("1.5e+02 GB/s", "GB/s"), Some(150.0));
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
