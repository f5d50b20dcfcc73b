//! Text of nodes' serial consoles: which characters are kept, and how the text is shown. A node can
//! write any bytes to its console, so the text is untrusted.

/// Maximum bytes of text an agent puts into a chunk.
pub const CHUNK_BYTES: usize = 8 << 10;

/// Filters a console's text. Printable characters, line ends and tabs are kept, together with the
/// characters of escape sequences (ESC, and the BEL ending some of them).
pub fn filter_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{7}' | '\u{1b}'))
        .collect()
}

/// Maximum characters in an escape sequence; a longer sequence is treated as text.
const SEQUENCE: usize = 256;

/// Converts console text to plain lines for terminals and pages. Escape sequences (ECMA-48) are
/// removed even if split between chunks, and every line ends with a single `\n`. Bidirectional
/// controls are removed, so the text cannot reorder its surroundings. Use one value per reading,
/// from beginning to end.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    inside: Inside,
    /// Characters of the current sequence so far.
    length: usize,
    /// A carriage return was read, and a line feed may follow.
    returned: bool,
    /// The current line has text.
    begun: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Text,
    /// After ESC, or its intermediate characters.
    Escape,
    /// `ESC [`: parameters up to a final character.
    Control,
    /// `ESC ]` and similar introducers: a string up to BEL or ESC.
    String,
}

impl Plain {
    /// Returns the next chunk as plain text.
    pub fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.length += 1;
            match self.inside {
                Inside::Text => self.text(c, &mut out),
                Inside::Escape => self.escape(c, &mut out),
                Inside::Control => self.control(c, &mut out),
                Inside::String => self.string(c, &mut out),
            }
        }
        out
    }

    fn enter(&mut self, inside: Inside) {
        if self.inside == Inside::Text {
            self.length = 0;
        }
        self.inside = inside;
    }

    fn text(&mut self, c: char, out: &mut String) {
        if c == '\r' {
            self.returned = true;
            return;
        }
        // Some firmware sends two carriage returns before the line feed. A carriage return alone
        // restarts the line, which is shown as a new line.
        if std::mem::take(&mut self.returned) && c != '\n' {
            self.end_line(out);
        }
        match c {
            '\u{1b}' => self.enter(Inside::Escape),
            '\n' => {
                out.push('\n');
                self.begun = false;
            }
            '\t' => out.push('\t'),
            c if c.is_control() || is_bidi_control(c) => {}
            c => {
                out.push(c);
                self.begun = true;
            }
        }
    }

    fn escape(&mut self, c: char, out: &mut String) {
        match c {
            '[' => self.enter(Inside::Control),
            ']' | 'P' | 'X' | '^' | '_' => self.enter(Inside::String),
            ' '..='/' | '\u{1b}' if self.length < SEQUENCE => {}
            '0'..='~' => self.inside = Inside::Text,
            _ => self.abandon(c, out),
        }
    }

    fn control(&mut self, c: char, out: &mut String) {
        match c {
            ' '..='?' if self.length < SEQUENCE => {}
            '@'..='~' => {
                self.inside = Inside::Text;
                // A cursor movement ends the line, so full-screen output stays readable as lines.
                if matches!(c, 'H' | 'f') {
                    self.end_line(out);
                }
            }
            _ => self.abandon(c, out),
        }
    }

    fn string(&mut self, c: char, out: &mut String) {
        match c {
            '\u{7}' => self.inside = Inside::Text,
            '\u{1b}' => self.inside = Inside::Escape,
            '\n' | '\r' => self.abandon(c, out),
            _ if self.length < SEQUENCE => {}
            _ => self.abandon(c, out),
        }
    }

    /// Handles an invalid or truncated sequence as text.
    fn abandon(&mut self, c: char, out: &mut String) {
        self.inside = Inside::Text;
        self.text(c, out);
    }

    fn end_line(&mut self, out: &mut String) {
        if std::mem::take(&mut self.begun) {
            out.push('\n');
        }
    }
}

/// Returns whether `c` is a Unicode bidirectional control. Such controls display text in a
/// different order than written.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str) -> String {
        Plain::default().feed(text)
    }

    #[test]
    fn control_characters_are_not_kept() {
        assert_eq!(
            filter_text("a\0b\u{8}\u{9b}31m\u{7f}\r\n\t\u{1b}[0mä"),
            "ab31m\r\n\t\u{1b}[0mä"
        );
    }

    #[test]
    fn a_firmwares_screen_becomes_lines() {
        assert_eq!(
            plain("\u{1b}c\u{1b}[?7l\u{1b}[2JSeaBIOS\r\r\niPXE \u{1b}[1;36mok\u{1b}[0m\r\n"),
            "SeaBIOS\niPXE ok\n"
        );
        assert_eq!(
            plain("one\u{1b}[05;01Htwo\u{1b}[06;01H\u{1b}(Bthree"),
            "one\ntwo\nthree"
        );
        assert_eq!(plain("10%\r20%\r\ndone"), "10%\n20%\ndone");
        assert_eq!(
            plain("\u{1b}]0;title\u{7}# \u{1b}]3008;x\u{1b}\\ls\n\u{1b}]open\nnext"),
            "# ls\n\nnext"
        );
    }

    #[test]
    fn what_never_ends_swallows_little() {
        let flood = format!("\u{1b}]{}\u{1b}[{}", "x".repeat(1000), ";".repeat(1000));
        assert!(plain(&flood).len() > 1000);
        assert_eq!(plain("abc\u{202e}def\u{9b}1m"), "abcdef1m");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_passes_and_cuts_do_not_matter(
            text in "[ -~\u{0}-\u{1f}\u{7f}-\u{a0}\u{202e}ä]{0,80}",
            at in 0_usize..100,
        ) {
            let whole = plain(&text);
            prop_assert!(whole.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control() && !is_bidi_control(c)));
            let (before, after) = text.split_at(text.floor_char_boundary(at));
            let mut reader = Plain::default();
            let cut = reader.feed(before) + &reader.feed(after);
            prop_assert_eq!(cut, whole);
        }
    }
}
