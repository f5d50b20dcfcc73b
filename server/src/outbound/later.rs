//! The `Retry-After` header (RFC 9110, section 10.2.3): seconds or a date. The header is written by
//! a foreign server, so callers limit the wait.

use http::{HeaderMap, header};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// The requested time of the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    After(SignedDuration),
    At(Timestamp),
}

impl Later {
    /// Parses the header from an answer. `None`: the header is missing or invalid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // A number too large for the type is the longest possible wait.
            return Some(Self::After(SignedDuration::from_secs(
                text.parse().unwrap_or(i64::MAX),
            )));
        }
        DateTimeParser::new()
            .parse_timestamp(text)
            .ok()
            .map(Self::At)
    }

    /// Returns the wait from now, limited to `longest`. Zero if the time has passed.
    pub fn wait(self, now: Timestamp, longest: SignedDuration) -> SignedDuration {
        let wait = match self {
            Self::After(wait) => wait,
            Self::At(at) => at.duration_since(now),
        };
        wait.clamp(SignedDuration::ZERO, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_bounded_and_nothing_else_counts() {
        let now: Timestamp = "1994-11-06T08:48:37Z".parse().unwrap();
        let longest = SignedDuration::from_hours(1);
        let wait = |text: &str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
            Later::of(&headers).map(|later| later.wait(now, longest).as_secs())
        };
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait(" 0 "), Some(0));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(60));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "it is over");
        assert_eq!(
            [
                wait("86400"),
                wait("99999999999999999999"),
                wait("Sat, 06 Nov 2094 08:49:37 GMT")
            ],
            [Some(3600); 3]
        );
        for other in ["", "soon", "-5", "1.5", "12 s", "1994-11-06T08:49:37Z"] {
            assert_eq!(wait(other), None, "{other}");
        }
        assert_eq!(Later::of(&HeaderMap::new()), None);
    }
}
