//! Removes secrets from outgoing text. Muster's own text should contain no secrets, but output of
//! tools and firmware may. Secrets are recognized by shape: a name announcing a secret, a private
//! key, a bearer token, or a password in a URL.

use std::ops::Range;

/// The replacement for a removed secret.
pub const REMOVED: &str = "[removed]";

/// Parts of a name announcing a secret, in lower case.
const NAMES: [&str; 9] = [
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

/// Returns the text without anything that looks like a secret. Line breaks are kept, so the
/// remaining text stays readable.
pub fn redact(text: &str) -> String {
    let (mut out, mut in_key) = (String::with_capacity(text.len()), false);
    for line in text.split_inclusive('\n') {
        let (bare, end) = line
            .strip_suffix('\n')
            .map_or((line, ""), |bare| (bare, "\n"));
        let (begins, ends) = (
            bare.contains("-----BEGIN") && bare.contains("PRIVATE KEY"),
            bare.contains("-----END"),
        );
        if begins || in_key {
            // A key on a single line, as in JSON, begins and ends there.
            in_key = !ends;
            if begins {
                out.push_str(REMOVED);
                out.push_str(end);
            }
            continue;
        }
        out.push_str(&redact_line(bare));
        out.push_str(end);
    }
    out
}

/// Redacts a line in a single pass for any number of secrets, because a machine may print text
/// designed to be slow to scan.
fn redact_line(line: &str) -> String {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_looks_like_a_secret_goes_and_the_rest_stays() {
        let table = [
            ("password=hunter2 user=root", "password=[removed] user=root"),
            (
                "{\"api_key\": \"abc\", \"gpu\": 3}",
                "{\"api_key\": \"[removed]\", \"gpu\": 3}",
            ),
            (
                "a \\\"token\\\":\\\"abc\\\" b",
                "a \\\"token\\\":\\\"[removed]\\\" b",
            ),
            (
                "BOOT muster.nonce=0011 quiet",
                "BOOT muster.nonce=[removed] quiet",
            ),
            ("IPMI_PASSWORD: calvin", "IPMI_PASSWORD: [removed]"),
            (
                "Authorization: Bearer abc.def rest",
                "Authorization: Bearer [removed] rest",
            ),
            (
                "GET https://root:calvin@10.0.0.1/redfish",
                "GET https://root:[removed]@10.0.0.1/redfish",
            ),
            (
                "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi",
                "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi",
            ),
            (
                "a token ring and a secret place",
                "a token ring and a secret place",
            ),
            ("password=a token=b", "password=[removed] token=[removed]"),
            (
                "\"password\": \"correct horse\", \"gpu\": 3",
                "\"password\": \"[removed]\", \"gpu\": 3",
            ),
            ("passwd='a b' x", "passwd='[removed]' x"),
            (
                "at http://a:b@x and ftp://c:d@y",
                "at http://a:[removed]@x and ftp://c:[removed]@y",
            ),
        ];
        for (said, told) in table {
            assert_eq!(redact(said), told);
        }
        let key = "before\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\nzzz\n-----END OPENSSH PRIVATE KEY-----\nafter\n";
        assert_eq!(redact(key), "before\n[removed]\nafter\n");
        assert_eq!(
            redact("x -----BEGIN PRIVATE KEY-----\\nabc\\n-----END PRIVATE KEY-----\nafter"),
            "[removed]\nafter"
        );
    }

    /// An earlier version scanned the rest of the line once per sign in each of these lines.
    #[test]
    fn a_line_made_to_be_slow_is_read_in_one_pass() {
        for part in [
            "token",
            "token=a ",
            "token =",
            "://",
            "://a:b@c ",
            "password=\"",
            "authorization: bearer ",
        ] {
            let line = part.repeat((512 << 10) / part.len());
            assert!(redact(&line).len() <= 3 * line.len(), "{part}");
        }
    }

    proptest! {
        #[test]
        fn anything_can_be_looked_at_and_twice_is_as_once(text in "(password=|token: |[a-zé \"\\\\:=@/\n-]|https://|-----BEGIN PRIVATE KEY-----){0,40}") {
            let once = redact(&text);
            prop_assert_eq!(redact(&once), once.clone());
            prop_assert!(once.lines().count() <= text.lines().count());
        }

        #[test]
        fn no_secret_stays_behind_its_name(secret in "[A-Za-z0-9]{8,30}", name in proptest::sample::select(&NAMES[..]), sign in "(=|: |\": \")") {
            prop_assume!(!NAMES.iter().any(|name| secret.to_ascii_lowercase().contains(name)));
            let redacted = redact(&format!("x {name}{sign}{secret} y"));
            prop_assert!(!redacted.contains(&secret));
        }
    }
}
