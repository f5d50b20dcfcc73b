//! Redaction of a text that arrives in pieces.

use super::key::{self, Key};
use super::line::{REMOVED, before_open_url, redact_line};

/// Maximum bytes of a line. The next byte begins another line.
const LONGEST: usize = 4 << 10;
/// The new bytes of an unfinished line that are read at once. Fewer bytes wait for
/// [`Stream::settle`], because each reading starts at the beginning of the line.
const STEP: usize = 64;

/// Redacts a text cut anywhere, such as the output of a console. No part of a secret is returned
/// before the whole secret is known, and the rest of the text is returned as early as possible.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    key: Key,
    /// The current line as far as received.
    line: String,
    /// The part of the redacted line that was returned.
    told: String,
    /// Bytes of the line not yet read.
    fresh: usize,
}

impl Stream {
    /// Takes the next piece. Returns the redacted text known so far and not returned before.
    pub fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for part in text.split_inclusive(['\n', '\r']) {
            let bare = part.trim_end_matches(['\n', '\r']);
            self.line.push_str(bare);
            self.fresh += bare.len();
            if bare.len() < part.len() || self.line.len() > LONGEST {
                self.end_line(&mut out);
            }
            out.push_str(&part[bare.len()..]);
        }
        if self.fresh >= STEP {
            out.push_str(&self.settle());
        }
        out
    }

    /// Returns the text of an unfinished line, such as a prompt, as far as no later text can turn
    /// the text into a secret.
    pub fn settle(&mut self) -> String {
        let mut out = String::new();
        if self.fresh > 0 && !self.key.is_open() && !key::begins(&self.line) {
            self.tell(before_open_url(&self.line), &mut out);
        }
        self.fresh = 0;
        out
    }

    /// Ends the current line. Returns the rest of the line.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_line(&mut out);
        out
    }

    fn end_line(&mut self, out: &mut String) {
        if self.key.covers(&self.line) {
            if !self.line.is_empty() {
                out.push_str(REMOVED);
            }
        } else {
            self.tell(self.line.len(), out);
        }
        self.line.clear();
        self.told.clear();
        self.fresh = 0;
    }

    /// Appends the redacted beginning of the line, without the part returned before.
    fn tell(&mut self, length: usize, out: &mut String) {
        let redacted = redact_line(&self.line[..length]);
        if let Some(rest) = redacted.strip_prefix(self.told.as_str()) {
            out.push_str(rest);
            self.told = redacted;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::line::NAMES;
    use super::*;

    /// Returns the redacted pieces, joined.
    fn feed(pieces: &[&str]) -> String {
        let mut stream = Stream::default();
        let mut out = String::new();
        for piece in pieces {
            out.push_str(&stream.feed(piece));
            out.push_str(&stream.settle());
        }
        out + &stream.finish()
    }

    #[test]
    fn a_secret_cut_in_two_is_removed() {
        for (pieces, told) in [
            (
                ["Command line: muster.nonce=00", "11 quiet\r\n"],
                "Command line: muster.nonce=[removed] quiet\r\n",
            ),
            (["pass", "word: hunter2\n"], "password: [removed]\n"),
            (["password: ", "hunter2\n"], "password: [removed]\n"),
            (
                ["\"token\": \"correct ", "horse\", 1"],
                "\"token\": \"[removed]\", 1",
            ),
            (
                ["at https://root:cal", "vin@10.0.0.1/x"],
                "at https://root:[removed]@10.0.0.1/x",
            ),
            (
                ["-----BEGIN PRIVATE KEY-----\r\nab", "cd\r\n-----END x\r\nb"],
                "[removed]\r\n[removed]\r\n[removed]\r\nb",
            ),
            (["no secret", " here\r\n# "], "no secret here\r\n# "),
        ] {
            assert_eq!(feed(&pieces), told, "{pieces:?}");
        }
    }

    #[test]
    fn a_prompt_is_shown_at_once_and_an_open_address_is_held_back() {
        let mut stream = Stream::default();
        assert_eq!(stream.feed("n1 login: "), "");
        assert_eq!(stream.settle(), "n1 login: ");
        assert_eq!(stream.settle(), "");
        assert_eq!(stream.feed("https://a:b") + &stream.settle(), "https://");
        assert_eq!(stream.feed("c\n"), "a:bc\n", "no password without a host");
        assert_eq!(stream.feed(&"x".repeat(STEP)), "x".repeat(STEP));
        let endless = "y".repeat(2 * LONGEST);
        assert_eq!(stream.feed(&endless), endless);
    }

    proptest! {
        #[test]
        fn no_secret_passes_wherever_the_text_is_cut(
            secret in "[A-Za-z0-9]{8,30}",
            before in "(muster\\.nonce=|password: |Password: \"|token = )",
            at in 0_usize..60,
        ) {
            prop_assume!(!NAMES.iter().any(|name| secret.to_ascii_lowercase().contains(name)));
            let text = format!("x {before}{secret}\" y\n");
            let (first, second) = text.split_at(at.min(text.len()));
            let told = feed(&[first, second]);
            prop_assert!(!told.contains(&secret));
            prop_assert_eq!(told, feed(&[text.as_str()]));
        }
    }
}
