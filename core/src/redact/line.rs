//! Redaction of a single line: a name announcing a secret, a bearer token, a password in a URL.

use std::ops::Range;

/// The replacement for a removed secret.
pub const REMOVED: &str = "[removed]";

/// Parts of a name announcing a secret, in lower case.
pub(super) const NAMES: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "private_key",
    "nonce",
];

/// Redacts a line in a single pass for any number of secrets, because a machine may print text
/// designed to be slow to scan.
pub(super) fn redact_line(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let mut signs: Vec<(usize, Sign)> = Vec::new();
    signs.extend(
        NAMES
            .iter()
            .flat_map(|name| lower.match_indices(name))
            .map(|(at, name)| (at + name.len(), Sign::Name)),
    );
    signs.extend(
        lower
            .match_indices("authorization: ")
            .map(|(at, sign)| (at + sign.len(), Sign::Header)),
    );
    signs.extend(
        lower
            .match_indices("://")
            .map(|(at, sign)| (at + sign.len(), Sign::Url)),
    );
    signs.sort_unstable();
    let (mut out, mut told) = (String::with_capacity(line.len()), 0);
    // Signs inside a secret belong to the secret and are skipped.
    for (at, sign) in signs {
        if at < told {
            continue;
        }
        let secret = match sign {
            Sign::Name => find_named_secret(&lower, at),
            Sign::Header => find_header_secret(&lower, at),
            Sign::Url => in_url(&lower, at),
        };
        if let Some(secret) = secret
            .filter(|secret| !secret.is_empty() && !lower[secret.start..].starts_with(REMOVED))
        {
            out.push_str(&line[told..secret.start]);
            out.push_str(REMOVED);
            told = secret.end;
        }
    }
    out.push_str(&line[told..]);
    out
}

/// A sign that a secret may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Name,
    Header,
    Url,
}

/// `NEAR` is the maximum distance in bytes from a sign to its secret. `LONGEST` is the maximum scan
/// length of an unterminated secret, longer than any real secret.
const NEAR: usize = 64;
const LONGEST: usize = 4096;

/// Cuts a text to the maximum length of a scan.
fn cut_text(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Matches `password=x`, `"api_key": "x y"`, `muster.nonce=x`.
fn find_named_secret(line: &str, at: usize) -> Option<Range<usize>> {
    // Skips the rest of the word, then expects the separator before a value.
    let rest = cut_text(&line[at..], NEAR);
    let rest =
        rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let rest = rest.trim_start_matches(['"', '\'', '\\']).trim_start();
    let value = rest.strip_prefix([':', '='])?.trim_start_matches(' ');
    let quote = value
        .trim_start_matches('\\')
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\''));
    let value = value.trim_start_matches(['"', '\'', '\\']);
    let begins = cut_text(&line[at..], NEAR).len() - value.len() + at;
    let value = cut_text(&line[begins..], LONGEST);
    let length = match quote {
        Some(quote) => value.find([quote, '\\']),
        None => value.find([' ', '"', '\'', ',', ';', '}', '\\', '&']),
    };
    Some(begins..begins + length.unwrap_or(value.len()))
}

/// Matches `Authorization: Bearer x`.
fn find_header_secret(line: &str, at: usize) -> Option<Range<usize>> {
    let begins = ["bearer ", "basic "]
        .iter()
        .find_map(|word| line[at..].starts_with(word).then_some(at + word.len()))?;
    let value = cut_text(&line[begins..], LONGEST);
    Some(begins..begins + value.find([' ', '"', '\'', '\\']).unwrap_or(value.len()))
}

/// Matches `https://user:x@host/`.
fn in_url(line: &str, at: usize) -> Option<Range<usize>> {
    let authority = cut_text(&line[at..], LONGEST);
    let authority = &authority[..authority
        .find(['/', ' ', '"', '\''])
        .unwrap_or(authority.len())];
    let (user, _) = authority.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let begins = at + name.len() + 1;
    Some(begins..begins + password.len())
}

/// Returns the length of the line without a URL's authority that ends with the line. More text may
/// show that the authority contains a password.
pub(super) fn before_open_url(line: &str) -> usize {
    match line.rfind("://") {
        Some(at) if !line[at + 3..].contains(['/', ' ', '"', '\'']) => at + 3,
        Some(_) | None => line.len(),
    }
}
