//! Secrets are taken out of what leaves the house. Nothing of ours should hold one; what tools and firmware print is somebody else's, and is looked at
//! by its shape: a name that says that a secret follows, a private key, a bearer token, a password in a URL.

use std::ops::Range;

/// What stands where a secret was.
pub const REMOVED: &str = "[removed]";

/// Parts of a name that say that what follows is a secret, in small letters.
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

/// A text without what looks like a secret. Lines stay lines, so that what is left reads as before.
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
            // A key on one line, as in JSON, begins and ends there.
            in_key = !ends;
            if begins {
                out.push_str(REMOVED);
                out.push_str(end);
            }
            continue;
        }
        out.push_str(&words(bare));
        out.push_str(end);
    }
    out
}

/// One pass over a line, however many secrets it holds: what a machine prints may be made to be slow to read.
fn words(line: &str) -> String {
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
    // Signs that stand in a secret are a part of it.
    for (at, sign) in signs {
        if at < told {
            continue;
        }
        let secret = match sign {
            Sign::Name => named(&lower, at),
            Sign::Header => header(&lower, at),
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

/// What says that a secret may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Name,
    Header,
    Url,
}

/// Bytes in which a sign must have led to its secret, and of a secret that nothing ends: no secret is as long, and no look at it longer.
const NEAR: usize = 64;
const LONGEST: usize = 4096;

/// Where a text is cut that may be longer than what is looked at.
fn near(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// `password=x`, `"api_key": "x y"`, `muster.nonce=x`.
fn named(line: &str, at: usize) -> Option<Range<usize>> {
    // The rest of the word, then a sign that a value follows.
    let rest = near(&line[at..], NEAR);
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
    let begins = near(&line[at..], NEAR).len() - value.len() + at;
    let value = near(&line[begins..], LONGEST);
    let length = match quote {
        Some(quote) => value.find([quote, '\\']),
        None => value.find([' ', '"', '\'', ',', ';', '}', '\\', '&']),
    };
    Some(begins..begins + length.unwrap_or(value.len()))
}

/// `Authorization: Bearer x`
fn header(line: &str, at: usize) -> Option<Range<usize>> {
    let begins = ["bearer ", "basic "]
        .iter()
        .find_map(|word| line[at..].starts_with(word).then_some(at + word.len()))?;
    let value = near(&line[begins..], LONGEST);
    Some(begins..begins + value.find([' ', '"', '\'', '\\']).unwrap_or(value.len()))
}

/// `https://user:x@host/`
fn in_url(line: &str, at: usize) -> Option<Range<usize>> {
    let authority = near(&line[at..], LONGEST);
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

    /// Each of these took a look at the whole rest of its line for each of its signs.
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
