//! Removes secrets from text. Muster's own text should contain no secrets, but output of tools,
//! consoles and firmware may. Secrets are recognized by shape: a name announcing a secret, a
//! private key, a bearer token, or a password in a URL.

mod key; // Private keys of several lines
mod line; // A single line
mod stream; // Text in pieces

pub use self::line::REMOVED;
pub use self::stream::Stream;

use self::key::Key;
use self::line::redact_line;

/// Redacts consecutive texts, such as the lines of a log. A private key may extend over several
/// texts.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    key: Key,
}

impl Redactor {
    /// Returns the next text without parts similar to a secret. Lines and line ends are kept.
    pub fn redact(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let bare = line.trim_end_matches(['\n', '\r']);
            match self.key.covers(bare) {
                true => out.push_str(REMOVED),
                false => out.push_str(&redact_line(bare)),
            }
            out.push_str(&line[bare.len()..]);
        }
        out
    }
}

/// Returns a whole text without parts similar to a secret. Lines and line ends are kept, so the
/// remaining text stays readable.
pub fn redact(text: &str) -> String {
    Redactor::default().redact(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::line::NAMES;
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
        assert_eq!(
            redact(key),
            "before\n[removed]\n[removed]\n[removed]\n[removed]\nafter\n"
        );
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
            prop_assert_eq!(once.matches('\n').count(), text.matches('\n').count());
        }

        #[test]
        fn no_secret_stays_behind_its_name(secret in "[A-Za-z0-9]{8,30}", name in proptest::sample::select(&NAMES[..]), sign in "(=|: |\": \")") {
            prop_assume!(!NAMES.iter().any(|name| secret.to_ascii_lowercase().contains(name)));
            let redacted = redact(&format!("x {name}{sign}{secret} y"));
            prop_assert!(!redacted.contains(&secret));
        }
    }
}
