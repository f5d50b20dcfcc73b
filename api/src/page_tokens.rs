//! Positions in a list (keyset paging), encoded in opaque tokens. A token is bound to the list, the
//! filter and the sort of its request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use muster_core::values::Digest;

/// The page size of a request without a limit.
const DEFAULT: u32 = 100;
/// The largest page size.
pub const MOST: u32 = 1000;

/// A page that no list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPage {
    #[error("the limit is out of range")]
    Limit,
    #[error("the token belongs to another list or another filter")]
    Token,
}

/// A position in a list.
#[derive(Clone, Debug)]
pub struct Position {
    pub limit: usize,
    /// The last key of the previous page; empty at the start.
    pub after: String,
    list: [u8; 8],
}

impl Position {
    /// The position of a request in the list called `list`, with the request's filter.
    ///
    /// # Errors
    /// [`InvalidPage`] for a limit out of range, or a token of another list.
    pub fn of(
        list: &str,
        limit: Option<u32>,
        token: Option<&str>,
        filter: &str,
    ) -> Result<Self, InvalidPage> {
        let limit = limit.unwrap_or(DEFAULT);
        if !(1..=MOST).contains(&limit) {
            return Err(InvalidPage::Limit);
        }
        let mut bound = [0; 8];
        bound.copy_from_slice(&Digest::of(format!("{list}\n{filter}").as_bytes()).0[..8]);
        let after = match token {
            None => String::new(),
            Some(token) => read(token, bound).ok_or(InvalidPage::Token)?,
        };
        Ok(Self {
            limit: limit as usize,
            after,
            list: bound,
        })
    }

    /// The number of rows to read: one more than the page holds, to find out whether another page
    /// follows.
    pub fn rows(&self) -> i64 {
        i64::try_from(self.limit + 1).unwrap_or(i64::MAX)
    }

    /// The token of the page after `last`.
    pub fn token(&self, last: &str) -> String {
        URL_SAFE_NO_PAD.encode([self.list.as_slice(), last.as_bytes()].concat())
    }
}

fn read(token: &str, list: [u8; 8]) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (bound, after) = bytes.split_at_checked(list.len())?;
    // Postgres cannot store a text with a zero byte, and would answer with an error similar to a
    // server error.
    (bound == list && !after.contains(&0)).then(|| String::from_utf8(after.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_on_in_its_own_list_only() {
        let first = Position::of("racks", Some(2), None, "").unwrap();
        let token = first.token("b");
        assert_eq!(
            first.rows(),
            3,
            "one more tells whether there is another page"
        );
        assert_eq!(
            Position::of("racks", None, Some(&token), "").unwrap().after,
            "b"
        );
        assert!(Position::of("racks", None, Some(&token), "label.a=b").is_err());
        assert!(Position::of("sites", None, Some(&token), "").is_err());
        assert!(Position::of("racks", None, Some("§"), "").is_err());
        assert!(Position::of("racks", None, Some(&first.token("a\0")), "").is_err());
        assert!(Position::of("racks", Some(0), None, "").is_err());
        assert!(Position::of("racks", Some(1001), None, "").is_err());
    }
}
