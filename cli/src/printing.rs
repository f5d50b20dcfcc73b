//! Standard output. A reader that goes away, as in `muster node list | head -1`, ends a command
//! without an error. `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};

/// Prints a line, like `println!`.
macro_rules! print_line {
    ($($argument:tt)*) => { $crate::printing::print(format_args!($($argument)*), "\n") };
}

/// Prints text without a line end, like `print!`.
macro_rules! print_text {
    ($($argument:tt)*) => { $crate::printing::print(format_args!($($argument)*), "") };
}

/// Writes to standard output.
///
/// # Errors
/// When the reader is gone, or the file cannot be written.
pub(crate) fn write(text: Arguments<'_>, end: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.write_all(end.as_bytes())?;
    out.flush()
}

/// Prints for a command that ends with its output. A lost reader ends the command with exit code 0,
/// and every other error with exit code 1.
pub(crate) fn print(text: Arguments<'_>, end: &str) {
    let Err(error) = write(text, end) else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("muster: cannot write to standard output: {error}");
    std::process::exit(1);
}
