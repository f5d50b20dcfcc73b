//! Lines of a private key in PEM form.

/// Maximum lines of a key. A longer key has no end, and the text after the bound is shown again.
/// The largest usual key has a hundred lines.
const LINES: u32 = 256;

/// The key that covers the current line of a text, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Key {
    /// Lines that the key may still have. 0: outside of a key.
    left: u32,
}

impl Key {
    /// Returns whether the line is a part of a key. Lines are passed in the order of the text.
    pub(super) fn covers(&mut self, line: &str) -> bool {
        if begins(line) && line.contains("PRIVATE KEY") {
            self.left = LINES;
        }
        let is_inside = self.left > 0;
        // A key on a single line, as in JSON, begins and ends there.
        self.left = match line.contains("-----END") {
            true => 0,
            // A line end of two characters is followed by an empty line.
            false => self.left.saturating_sub(u32::from(!line.is_empty())),
        };
        is_inside
    }

    /// Returns whether the next line is a part of a key.
    pub(super) fn is_open(&self) -> bool {
        self.left > 0
    }
}

/// Returns whether a key, or a public part such as a certificate, may begin in the line.
pub(super) fn begins(line: &str) -> bool {
    line.contains("-----BEGIN")
}
