//! The agent's delay in noticing that a restarted system answers: a line in the job's log, for
//! people and for reports with statistics.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A system answering again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Time between the last failed connection attempt and the first successful connection.
    pub late: Duration,
    /// Time from the first connection to the open session.
    pub log_in: Duration,
}

impl fmt::Display for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (late, log_in) = (self.late.as_secs_f64(), self.log_in.as_secs_f64());
        write!(
            f,
            "SSH answers; it did not {late:.2} s before; the log-in took {log_in:.2} s"
        )
    }
}

/// Error for a log line with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the line does not say when SSH answered")]
pub struct OtherLine;

impl FromStr for Noticed {
    type Err = OtherLine;

    fn from_str(line: &str) -> Result<Self, OtherLine> {
        let told = line
            .strip_prefix("SSH answers; it did not ")
            .and_then(|rest| rest.strip_suffix(" s"))
            .ok_or(OtherLine)?;
        let (late, log_in) = told
            .split_once(" s before; the log-in took ")
            .ok_or(OtherLine)?;
        let seconds = |text: &str| {
            let seconds: f64 = text.parse().map_err(|_| OtherLine)?;
            Duration::try_from_secs_f64(seconds).map_err(|_| OtherLine)
        };
        Ok(Self {
            late: seconds(late)?,
            log_in: seconds(log_in)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let noticed = Noticed {
            late: Duration::from_millis(250),
            log_in: Duration::from_millis(61_400),
        };
        assert_eq!(
            noticed.to_string(),
            "SSH answers; it did not 0.25 s before; the log-in took 61.40 s"
        );
        assert_eq!(noticed.to_string().parse(), Ok(noticed));
        let negative = "SSH answers; it did not -1 s before; the log-in took 1 s";
        for other in [
            "SSH answers",
            negative,
            "SSH answers; it did not 1 s before",
            "",
        ] {
            assert_eq!(other.parse::<Noticed>(), Err(OtherLine), "{other}");
        }
    }
}
