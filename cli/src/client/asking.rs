//! A question before what cannot be taken back. Asked only where somebody can answer: on a terminal.

use std::io::{IsTerminal as _, Write as _};

use super::output::clean;

/// Whether somebody would be asked.
pub(crate) fn would_ask(yes: bool) -> bool {
    !yes && std::io::stdin().is_terminal()
}

/// Whether whoever sits at the terminal agrees; where nobody does, what was typed is their word.
///
/// # Errors
/// When the terminal cannot be read.
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
