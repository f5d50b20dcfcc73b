//! A kind of message: the source of the words, a counted example and a silent example.

/// The kinds of messages of a subsystem.
#[cfg_attr(not(test), expect(dead_code, reason = "docs/gates.md has the name"))]
pub(super) struct Family {
    /// The subsystem, for docs/gates.md.
    pub(super) name: &'static str,
    pub(super) signs: &'static [Sign],
}

/// Messages with the same meaning.
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "docs/gates.md has the texts, and the tests read them"
    )
)]
pub(super) struct Sign {
    /// The fault, for docs/gates.md.
    pub(super) meaning: &'static str,
    pub(super) metric: &'static str,
    /// Project with version, file, and the printing function or macro.
    pub(super) source: &'static str,
    /// A message of the kind.
    pub(super) counted: &'static str,
    /// A similar message without a fault.
    pub(super) silent: &'static str,
    pub(super) is_told: fn(&str) -> bool,
}

/// Returns whether a message contains any of the words.
pub(super) fn any(message: &str, words: &[&str]) -> bool {
    words.iter().any(|word| message.contains(word))
}

/// Returns whether a message begins with any of the words.
pub(super) fn begins(message: &str, words: &[&str]) -> bool {
    words.iter().any(|word| message.starts_with(word))
}
