//! Source files as the rules read them: production text, code without literals, literals without code.

use std::path::{Path, PathBuf};

/// A Rust file: its path below the workspace, with `/`, and its text.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

/// A string literal: the offset of its first quote or prefix, and its value.
#[derive(Debug)]
pub(super) struct Literal {
    pub(super) at: usize,
    pub(super) value: String,
}

/// Rust text in two parts. `code` keeps every offset: comments and literals are blank there.
#[derive(Debug)]
pub(super) struct Lexed {
    pub(super) code: String,
    pub(super) literals: Vec<Literal>,
}

/// A piece of Rust text that is no code, with the offset behind its end.
enum Piece {
    Comment(usize),
    Text { value: String, end: usize },
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate of the tests is a member of the workspace")
        .to_path_buf()
}

/// Every Rust file of a folder of the workspace, tests included.
pub(super) fn sources(folder: &str) -> Vec<Source> {
    let root = root();
    let found: Vec<Source> = files(&root.join(folder))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| Source {
            path: relative(&root, &path),
            text: std::fs::read_to_string(&path).expect("a source file is text"),
        })
        .collect();
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

/// Every file below a folder of the workspace, in order, without installed packages.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).expect("a folder of the workspace is readable");
        for path in entries.flatten().map(|entry| entry.path()) {
            match path.is_dir() {
                true if path.ends_with("node_modules") => {}
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .expect("the file is below the folder")
        .to_string_lossy()
        .into_owned()
}

impl Source {
    /// Whether the file is compiled for tests only: a file in a `tests` folder, or `tests.rs`.
    pub(super) fn is_test(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
    }

    /// The text without inline test modules.
    pub(super) fn production(&self) -> String {
        let code = lex(&self.text).code;
        let mut kept = String::new();
        let mut rest = 0;
        while let Some(found) = code[rest..].find("#[cfg(test)]\nmod ") {
            let start = rest + found;
            let head = code[start..].find(['{', ';']).map(|at| start + at);
            let head = head.expect("a module has a body or a file");
            let end = match code[head..].starts_with('{') {
                true => code[head..]
                    .find("\n}")
                    .map_or(code.len(), |at| head + at + 2),
                false => head + 1,
            };
            kept.push_str(&self.text[rest..start]);
            rest = end;
        }
        kept.push_str(&self.text[rest..]);
        kept
    }
}

/// Separates code from comments and literals.
pub(super) fn lex(text: &str) -> Lexed {
    let mut code = text.as_bytes().to_vec();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = match piece(text, at) {
            None => {
                at += 1;
                continue;
            }
            Some(Piece::Comment(end)) => end,
            Some(Piece::Text { value, end }) => {
                literals.push(Literal { at, value });
                end
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    Lexed {
        code: String::from_utf8_lossy(&code).into_owned(),
        literals,
    }
}

fn piece(text: &str, at: usize) -> Option<Piece> {
    let bytes = text.as_bytes();
    let after = |found: Option<usize>, length: usize| found.map_or(text.len(), |i| i + length);
    match bytes[at] {
        b'/' if bytes.get(at + 1) == Some(&b'/') => {
            let found = bytes[at..].iter().position(|byte| *byte == b'\n');
            Some(Piece::Comment(after(found.map(|i| at + i), 0)))
        }
        b'/' if bytes.get(at + 1) == Some(&b'*') => {
            let found = text[at + 2..].find("*/");
            Some(Piece::Comment(after(found.map(|i| at + 2 + i), 2)))
        }
        b'"' => Some(quoted(text, at)),
        b'r' if at == 0 || !is_word(bytes[at - 1]) || bytes[at - 1] == b'b' => raw(text, at),
        b'\'' => character(text, at).map(Piece::Comment),
        _ => None,
    }
}

fn quoted(text: &str, at: usize) -> Piece {
    let mut value = String::new();
    let mut characters = text[at + 1..].char_indices();
    while let Some((offset, character)) = characters.next() {
        match character {
            '"' => {
                let end = at + 1 + offset + 1;
                return Piece::Text { value, end };
            }
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                // A line that goes on: the compiler drops the break and the indentation.
                Some((_, '\n')) => {
                    while characters.as_str().starts_with([' ', '\n']) {
                        characters.next();
                    }
                }
                Some((_, other)) => value.push(other),
                None => {}
            },
            other => value.push(other),
        }
    }
    let end = text.len();
    Piece::Text { value, end }
}

fn raw(text: &str, at: usize) -> Option<Piece> {
    let hashes = text[at + 1..].bytes().take_while(|b| *b == b'#').count();
    let start = at + 1 + hashes + 1;
    if text.as_bytes().get(start - 1) != Some(&b'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let stop = text[start..].find(&close).map_or(text.len(), |i| start + i);
    Some(Piece::Text {
        value: text[start..stop].to_owned(),
        end: (stop + close.len()).min(text.len()),
    })
}

/// The end of a character literal; a lifetime has none.
fn character(text: &str, at: usize) -> Option<usize> {
    let mut rest = text[at + 1..].char_indices();
    let (_, first) = rest.next()?;
    if first == '\\' {
        rest.next();
        return rest
            .find(|(_, character)| *character == '\'')
            .map(|(offset, _)| at + 1 + offset + 1);
    }
    let (offset, second) = rest.next()?;
    (second == '\'').then_some(at + 1 + offset + 1)
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Every place where `word` stands alone in the code.
pub(super) fn word_offsets(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let is_free = |at: usize| {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let behind = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_word) && !behind.is_some_and(is_word)
    };
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| is_free(*at))
        .collect()
}

/// The function whose body contains an offset: the last one that begins before it.
pub(super) fn function_at(code: &str, at: usize) -> &str {
    let name = code[..at]
        .rfind("fn ")
        .map_or("", |found| &code[found + 3..]);
    let end = name.bytes().position(|b| !is_word(b)).unwrap_or(name.len());
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "server/src/db/nodes.rs".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn code_keeps_its_offsets_and_loses_comments_and_literals() {
        let text =
            "let a = '\"'; // spawn(\nlet b: &'static str = r#\"x\"y\"#; f(\"a\\\n   b\\\"\")";
        let lexed = lex(text);
        assert_eq!(lexed.code.len(), text.len());
        assert!(!lexed.code.contains("spawn("), "{}", lexed.code);
        assert!(lexed.code.contains("let b: &'static str"));
        let values: Vec<&str> = lexed.literals.iter().map(|l| l.value.as_str()).collect();
        assert_eq!(values, ["x\"y", "ab\""]);
    }

    #[test]
    fn production_ends_at_a_test_module_and_goes_on_behind_it() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod more {\n    const T: &str = \"\n}\n\";\n}\nfn c() {}\n";
        let production = source(text).production();
        assert_eq!(production, "fn a() {}\n\nfn b() {}\n\nfn c() {}\n");
    }

    #[test]
    fn files_of_tests_are_recognised_by_their_path() {
        for (path, is_test) in [
            ("core/src/gates/tests/edges.rs", true),
            ("lab/src/bmc/tests.rs", true),
            ("tests/it/nodes.rs", true),
            ("core/src/gates/suites.rs", false),
        ] {
            let text = String::new();
            let path = path.to_owned();
            assert_eq!(Source { path, text }.is_test(), is_test);
        }
    }
}
