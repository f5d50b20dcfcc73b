//! The offset of a node's clock, measured by the times in the lines of muster-node.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// The offset of a node's clock from the server's, measured during a job.
#[derive(Debug, Default)]
pub struct NodeTime(Mutex<Option<i64>>);

impl NodeTime {
    /// Notes a line written at `at` by the node's clock and read at `now` by the server's. A line
    /// may be read late and never early, so the largest offset is the closest.
    pub fn note(&self, at: Timestamp, now: Timestamp) {
        let offset_ms = at.as_millisecond() - now.as_millisecond();
        let mut largest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *largest = Some(largest.map_or(offset_ms, |before| before.max(offset_ms)));
    }

    /// Returns the offset in milliseconds, positive for a clock that is ahead. `None`: no line was
    /// read.
    pub fn offset_ms(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_read_late_does_not_hide_the_clock() {
        let second = |second| Timestamp::from_second(second).unwrap();
        let time = NodeTime::default();
        assert_eq!(time.offset_ms(), None);
        // An old line of a job that another agent had followed.
        time.note(second(1000), second(5000));
        assert_eq!(time.offset_ms(), Some(-4_000_000));
        time.note(second(5001), second(5002));
        time.note(second(5001), second(5009));
        assert_eq!(time.offset_ms(), Some(-1000));
        time.note(second(9002), second(5002));
        assert_eq!(time.offset_ms(), Some(4_000_000));
    }
}
