//! Secrets are taken out of what leaves the house. Nothing of ours should hold one; what tools and firmware print is somebody else's, and is looked at
//! by its shape: a name that says that a secret follows, a private key, a bearer token, a password in a URL.

/// What stands where a secret was.
pub const REMOVED: &str = "[removed]";

/// Parts of a name that say that what follows is a secret, in small letters.
const NAMES: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "private_key", "nonce"];

/// A text without what looks like a secret. Lines stay lines, so that what is left reads as before.
pub fn redact(text: &str) -> String {
    let (mut out, mut in_key) = (String::with_capacity(text.len()), false);
    for line in text.split_inclusive('\n') {
        let (bare, end) = line.strip_suffix('\n').map_or((line, ""), |bare| (bare, "\n"));
        let (begins, ends) = (bare.contains("-----BEGIN") && bare.contains("PRIVATE KEY"), bare.contains("-----END"));
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

fn words(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((at, value)) = next_secret(rest) {
        out.push_str(&rest[..at]);
        out.push_str(REMOVED);
        rest = &rest[at + value..];
    }
    out.push_str(rest);
    out
}

/// Where the first secret of a line begins, and how long it is in bytes.
fn next_secret(line: &str) -> Option<(usize, usize)> {
    [named(line), bearer(line), in_url(line)].into_iter().flatten().min_by_key(|(at, _)| *at)
}

/// `password=x`, `"api_key": "x"`, `muster.nonce=x`.
fn named(line: &str) -> Option<(usize, usize)> {
    let lower = line.to_ascii_lowercase();
    let mut found: Vec<(usize, usize)> = Vec::new();
    for name in NAMES {
        for (at, _) in lower.match_indices(name) {
            // The rest of the word, then a sign that a value follows.
            let after = at + name.len();
            let word =
                lower[after..].find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))).unwrap_or(0);
            let sign = lower[after + word..].trim_start_matches(['"', '\'', '\\']);
            let Some(value) = sign.trim_start().strip_prefix([':', '=']) else { continue };
            let value = value.trim_start_matches([' ', '"', '\'', '\\']);
            let begins = lower.len() - value.len();
            let length = value.find([' ', '"', '\'', ',', ';', '}', '\\', '&']).unwrap_or(value.len());
            if length > 0 && !lower[begins..].starts_with(REMOVED) {
                found.push((begins, length));
            }
        }
    }
    found.into_iter().min()
}

/// `Authorization: Bearer x`
fn bearer(line: &str) -> Option<(usize, usize)> {
    let lower = line.to_ascii_lowercase();
    let at = ["bearer ", "basic "].iter().find_map(|word| {
        let begins = lower.find(&format!("authorization: {word}"))? + "authorization: ".len() + word.len();
        (!lower[begins..].starts_with(REMOVED)).then_some(begins)
    })?;
    let length = lower[at..].find([' ', '"', '\'', '\\']).unwrap_or(lower.len() - at);
    (length > 0).then_some((at, length))
}

/// `https://user:x@host/`
fn in_url(line: &str) -> Option<(usize, usize)> {
    line.match_indices("://").find_map(|(at, _)| {
        let authority = &line[at + 3..];
        let end = authority.find(['/', ' ', '"', '\'']).unwrap_or(authority.len());
        let (user, _) = authority[..end].rsplit_once('@')?;
        let (name, password) = user.split_once(':')?;
        (!password.is_empty() && password != REMOVED).then_some((at + 3 + name.len() + 1, password.len()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_looks_like_a_secret_goes_and_the_rest_stays() {
        let table = [
            ("password=hunter2 user=root", "password=[removed] user=root"),
            ("{\"api_key\": \"abc\", \"gpu\": 3}", "{\"api_key\": \"[removed]\", \"gpu\": 3}"),
            ("a \\\"token\\\":\\\"abc\\\" b", "a \\\"token\\\":\\\"[removed]\\\" b"),
            ("BOOT muster.nonce=0011 quiet", "BOOT muster.nonce=[removed] quiet"),
            ("IPMI_PASSWORD: calvin", "IPMI_PASSWORD: [removed]"),
            ("Authorization: Bearer abc.def rest", "Authorization: Bearer [removed] rest"),
            ("GET https://root:calvin@10.0.0.1/redfish", "GET https://root:[removed]@10.0.0.1/redfish"),
            (
                "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi",
                "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi",
            ),
            ("a token ring and a secret place", "a token ring and a secret place"),
            ("password=a token=b", "password=[removed] token=[removed]"),
        ];
        for (said, told) in table {
            assert_eq!(redact(said), told);
        }
        let key =
            "before\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\nzzz\n-----END OPENSSH PRIVATE KEY-----\nafter\n";
        assert_eq!(redact(key), "before\n[removed]\nafter\n");
        assert_eq!(
            redact("x -----BEGIN PRIVATE KEY-----\\nabc\\n-----END PRIVATE KEY-----\nafter"),
            "[removed]\nafter"
        );
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
