//! The confirmation of irreversible actions. Only a person at a terminal is asked.

use std::io::{IsTerminal as _, Write as _};

use super::output::clean;

/// Returns whether a person can be asked.
pub(crate) fn would_ask(yes: bool) -> bool {
    !yes && std::io::stdin().is_terminal()
}

/// Returns whether the person at the terminal confirms. Without a terminal, the typed command
/// counts as confirmation.
///
/// # Errors
/// When reading from the terminal fails.
pub(crate) fn agreed(question: &str, yes: bool) -> anyhow::Result<bool> {
    if !would_ask(yes) {
        return Ok(true);
    }
    eprint!("{} [y/N] ", clean(question));
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
