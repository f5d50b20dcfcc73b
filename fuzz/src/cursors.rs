//! Page tokens: opaque, bound to their list, and never more than a text that Postgres can hold.

use muster_api::page_tokens::Position;

/// The first byte chooses between a token as it is and one that was made from the input.
pub(crate) fn run(mut data: &[u8]) {
    let honest = crate::steer(&mut data) % 2 == 1;
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let start = Position::of("nodes", None, None, "state=available").expect("the first page");
    let token = if honest {
        start.token(text)
    } else {
        text.to_owned()
    };
    match Position::of("nodes", None, Some(&token), "state=available") {
        Ok(next) => {
            assert!(
                !next.after.contains('\0'),
                "Postgres has no text with a zero byte"
            );
            assert_eq!(next.token(&next.after), token, "a token has one form");
            assert!(
                Position::of("racks", None, Some(&token), "state=available").is_err(),
                "bound to its list"
            );
            assert!(
                Position::of("nodes", None, Some(&token), "").is_err(),
                "bound to its filter"
            );
        }
        Err(_) => assert!(
            !honest || text.contains('\0'),
            "our own token {token:?} was refused"
        ),
    }
}
