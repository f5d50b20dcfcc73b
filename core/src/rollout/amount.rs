//! Numbers of nodes: a count, or a percentage of a total.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of nodes. In JSON a count is a number (`3`) and a percentage is a text (`"25%"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Amount {
    Count(u32),
    /// 1 to 100.
    Percent(u8),
}

/// The form in JSON.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
enum Written {
    Count(u32),
    Percent(String),
}

impl Amount {
    /// Returns the absolute number of nodes. A percentage rounds down, to at least 1.
    pub fn of(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let share = u64::from(total) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(u32::MAX).max(1)
            }
        }
    }

    /// Returns whether the amount may allow more nodes than `before`. A count and a percentage are
    /// not comparable without a total, so a change of the form counts as more.
    pub fn may_exceed(self, before: Self) -> bool {
        match (self, before) {
            (Self::Count(new), Self::Count(old)) => new > old,
            (Self::Percent(new), Self::Percent(old)) => new > old,
            (Self::Count(_), Self::Percent(_)) | (Self::Percent(_), Self::Count(_)) => true,
        }
    }

    /// Returns the amount as shown: `3`, or `25% (3 of 14)`.
    pub fn describe(self, total: u32) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Percent(_) => format!("{self} ({} of {total})", self.of(total)),
        }
    }
}

/// Returns a number of nodes as shown: `1 node`, `3 nodes`.
pub(super) fn count_nodes(count: u32) -> String {
    match count {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl TryFrom<Written> for Amount {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Count(count) => return Ok(Self::Count(count)),
            Written::Percent(text) => text,
        };
        text.strip_suffix('%')
            .and_then(|number| number.parse().ok())
            .filter(|percent| (1..=100).contains(percent))
            .map(Self::Percent)
            .ok_or_else(|| format!("{text:?} is no amount: write 3, or \"1%\" to \"100%\""))
    }
}

/// Reads an amount as shown: `3` or `25%`.
impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let written = match text.parse() {
            Ok(count) => Written::Count(count),
            Err(_) => Written::Percent(text.to_owned()),
        };
        written.try_into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Amount {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        Written::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Amount {}

impl From<Amount> for Written {
    fn from(amount: Amount) -> Self {
        match amount {
            Amount::Count(count) => Self::Count(count),
            Amount::Percent(_) => Self::Percent(amount.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_rounds_down_to_at_least_one() {
        let table = [
            (Amount::Percent(25), 14, 3),
            (Amount::Percent(25), 3, 1),
            (Amount::Percent(1), 0, 1),
            (Amount::Percent(100), u32::MAX, u32::MAX),
            (Amount::Count(0), 14, 0),
            (Amount::Count(5), 3, 5),
        ];
        for (amount, total, wanted) in table {
            assert_eq!(amount.of(total), wanted, "{amount} of {total}");
        }
        assert_eq!(Amount::Percent(25).describe(14), "25% (3 of 14)");
    }

    #[test]
    fn an_amount_is_read_as_written() {
        for text in ["3", "\"25%\""] {
            let amount: Amount = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
            assert_eq!(amount.to_string().parse(), Ok(amount));
        }
        for wrong in ["-1", "\"0%\"", "\"101%\"", "\"25\"", "1.5", "\"+5%%\""] {
            assert!(serde_json::from_str::<Amount>(wrong).is_err(), "{wrong}");
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
    }
}
