//! The generation a writer expects of an object. Stale and missing expectations are rejected.

use crate::error::Error;
use crate::intents::dry_run;

/// The caller's expectation of the object to be written: the `If-Match` and `If-None-Match` headers
/// (RFC 9110, section 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub(crate) matches: Option<Expected>,
    /// `If-None-Match: *`: create only.
    pub(crate) absent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// `*`: the object exists.
    Any,
    Generation(i64),
}

impl Preconditions {
    /// Builds the precondition of a caller that read generation `seen`.
    pub fn generation(seen: i64) -> Self {
        Self {
            matches: Some(Expected::Generation(seen)),
            absent: false,
        }
    }

    /// Compares the precondition of a write with the current generation. A write may create the
    /// object, so `current` may be `None`.
    ///
    /// # Errors
    /// 412 when the precondition fails.
    pub fn allow_write(self, current: Option<i64>) -> Result<(), Error> {
        match (self.absent, self.matches, current) {
            (true, _, Some(now)) => Err(Error::Exists(now)),
            (_, Some(Expected::Generation(wanted)), Some(now)) if wanted != now => {
                Err(Error::Stale(now))
            }
            (_, Some(_), None) => Err(Error::Stale(0)),
            _ => Ok(()),
        }
    }

    /// Compares the precondition of a destructive call with the current generation. The caller must
    /// state the generation it read.
    ///
    /// # Errors
    /// 428 without `If-Match`, 412 when the precondition fails.
    pub fn allow_removal(self, current: i64) -> Result<(), Error> {
        match self.matches {
            None => Err(Error::PreconditionRequired),
            Some(_) => self.allow_write(Some(current)),
        }
    }

    /// Compares the precondition of an erasure with the current generation. `*` is refused, because
    /// a change since the caller's read would not stop the erasure. A dry run takes `*`.
    ///
    /// # Errors
    /// 400 for `*`, 428 without `If-Match`, 412 when the precondition fails.
    pub fn allow_erasure(self, current: i64) -> Result<(), Error> {
        match self.matches {
            Some(Expected::Any) if !dry_run::asked() => Err(Error::invalid(
                "If-Match",
                "etag_required",
                format!(
                    "This request erases disks: send the ETag that was read instead of `*`. The current ETag is \"{current}\"."
                ),
            )),
            None | Some(Expected::Any | Expected::Generation(_)) => self.allow_removal(current),
        }
    }
}
