//! The generation that a writer expects of an object. Stale and missing expectations are refused.

use crate::error::Error;

/// What a caller expects of the object it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub(crate) matches: Option<Expected>,
    /// `If-None-Match: *`: create only.
    pub(crate) absent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// `*`: that it exists.
    Any,
    Generation(i64),
}

impl Preconditions {
    /// Of a caller that says which generation it saw.
    pub fn generation(seen: i64) -> Self {
        Self {
            matches: Some(Expected::Generation(seen)),
            absent: false,
        }
    }

    /// Holds a write that may create against what is there.
    ///
    /// # Errors
    /// 412 when it does not hold.
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

    /// Holds a destructive call against what is there: it must say what it read.
    ///
    /// # Errors
    /// 428 without `If-Match`, 412 when it does not hold.
    pub fn allow_removal(self, current: i64) -> Result<(), Error> {
        match self.matches {
            None => Err(Error::PreconditionRequired),
            Some(_) => self.allow_write(Some(current)),
        }
    }
}
