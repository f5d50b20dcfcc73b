//! Convertible units. Metrics and limits are never converted: comparing Gb/s with GB/s is an error.
//! Only the linter converts, to compare a threshold with the physical limit of the hardware.

/// The physical quantity of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    DataRate,
    Data,
    Time,
    Power,
    Speed,
    Frequency,
}

/// Every unit with a dimension, and its factor to the dimension's base unit (bit/s, byte, s, W,
/// flop/s, Hz).
const UNITS: &[(&str, Dimension, f64)] = &[
    ("Mb/s", Dimension::DataRate, 1e6),
    ("Gb/s", Dimension::DataRate, 1e9),
    ("MB/s", Dimension::DataRate, 8e6),
    ("GB/s", Dimension::DataRate, 8e9),
    ("MiB/s", Dimension::DataRate, 8.0 * 1_048_576.0),
    ("GiB/s", Dimension::DataRate, 8.0 * 1_073_741_824.0),
    ("bytes", Dimension::Data, 1.0),
    ("MB", Dimension::Data, 1e6),
    ("GB", Dimension::Data, 1e9),
    ("MiB", Dimension::Data, 1_048_576.0),
    ("GiB", Dimension::Data, 1_073_741_824.0),
    ("ns", Dimension::Time, 1e-9),
    ("µs", Dimension::Time, 1e-6),
    ("ms", Dimension::Time, 1e-3),
    ("s", Dimension::Time, 1.0),
    ("W", Dimension::Power, 1.0),
    ("kW", Dimension::Power, 1e3),
    ("Gflop/s", Dimension::Speed, 1e9),
    ("Tflop/s", Dimension::Speed, 1e12),
    ("MHz", Dimension::Frequency, 1e6),
    ("GHz", Dimension::Frequency, 1e9),
];

/// Returns the dimension of a unit and its factor to the base unit. Returns `None` for counts and
/// similar units, which compare only with themselves.
pub fn dimension(unit: &str) -> Option<(Dimension, f64)> {
    UNITS
        .iter()
        .find(|(name, ..)| *name == unit)
        .map(|(_, dimension, factor)| (*dimension, *factor))
}

/// Converts a value from unit `from` to unit `to`. Returns `None` if the dimensions differ.
pub(super) fn convert(value: f64, from: &str, to: &str) -> Option<f64> {
    if from == to {
        return Some(value);
    }
    let ((left, factor), (right, other)) = (dimension(from)?, dimension(to)?);
    (left == right).then(|| value * factor / other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabyte_is_eight_gigabits() {
        assert_eq!(convert(50.0, "GB/s", "Gb/s"), Some(400.0));
        assert_eq!(convert(2.0, "GPUs", "GPUs"), Some(2.0));
        assert_eq!(
            (convert(1.0, "GB/s", "GB"), convert(1.0, "GPUs", "links")),
            (None, None)
        );
    }

    #[test]
    fn no_unit_is_there_twice() {
        let mut names: Vec<&str> = UNITS.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), UNITS.len());
    }
}
