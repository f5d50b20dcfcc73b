//! Text of nodes' serial consoles: what of it is kept, and how it is shown. A node writes what it likes there; nothing of it is trusted.

/// Bytes of text that an agent puts into one chunk at most.
pub const CHUNK_BYTES: usize = 8 << 10;

/// What of a console's text is kept: everything printable, line ends, tabs, and what escape sequences are made of (ESC, and the BEL that
/// ends some).
pub fn kept(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{7}' | '\u{1b}'))
        .collect()
}

/// Characters of one escape sequence; what claims to be longer is text after all.
const SEQUENCE: usize = 256;

/// Makes plain lines of a console's text, for terminals and pages: escape sequences (ECMA-48) are taken out wherever a chunk may have cut
/// them, every line ends with one `\n`, and nothing can reorder what is beside it. One for each reading from beginning to end.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    inside: Inside,
    /// Characters of the sequence so far.
    length: usize,
    /// A carriage return whose line feed may follow.
    returned: bool,
    /// Something stands in the line.
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
    /// `ESC ]` and its like: a string up to BEL or ESC.
    String,
}

impl Plain {
    /// The next chunk, as plain text.
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
        // Some firmware returns twice before it feeds; a return alone begins the line anew, which is shown as another line.
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
            c if c.is_control() || reorders(c) => {}
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
                // The cursor goes elsewhere: screens drawn that way stay readable as lines.
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

    /// It was no sequence, or one that was cut off.
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

/// Unicode's bidirectional controls: they show text in another order than it was written.
fn reorders(c: char) -> bool {
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
            kept("a\0b\u{8}\u{9b}31m\u{7f}\r\n\t\u{1b}[0mä"),
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
            prop_assert!(whole.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control() && !reorders(c)));
            let (before, after) = text.split_at(text.floor_char_boundary(at));
            let mut reader = Plain::default();
            let cut = reader.feed(before) + &reader.feed(after);
            prop_assert_eq!(cut, whole);
        }
    }
}
