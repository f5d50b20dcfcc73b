//! How late an agent may have noticed that a restarted system answers: a line of the job's log that people read and reports count.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// From the beginning of the last try that failed to the session that did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noticed(pub Duration);

const BEFORE: &str = "SSH answers; the try before began ";
const AFTER: &str = " s earlier";

impl fmt::Display for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEFORE}{:.1}{AFTER}", self.0.as_secs_f64())
    }
}

/// The line says something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the line does not say when SSH answered")]
pub struct OtherLine;

impl FromStr for Noticed {
    type Err = OtherLine;

    fn from_str(line: &str) -> Result<Self, OtherLine> {
        let seconds = line.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER)).ok_or(OtherLine)?;
        let seconds: f64 = seconds.parse().map_err(|_| OtherLine)?;
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| OtherLine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let noticed = Noticed(Duration::from_millis(61_400));
        assert_eq!(noticed.to_string(), "SSH answers; the try before began 61.4 s earlier");
        assert_eq!(noticed.to_string().parse(), Ok(noticed));
        for other in ["SSH answers", "SSH answers; the try before began -1 s earlier", ""] {
            assert_eq!(other.parse::<Noticed>(), Err(OtherLine), "{other}");
        }
    }
}
