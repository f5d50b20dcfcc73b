//! Standard output. Without a reader, as after `muster node list | head -1`, `println!` would panic.
//! Here the command drops further output and goes on to the end: all writes are done, and the exit
//! code tells the result.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Prints a line, like `println!`.
macro_rules! print_line {
    ($($argument:tt)*) => { $crate::printing::print(format_args!($($argument)*), "\n") };
}

/// Prints text without a line end, like `print!`.
macro_rules! print_text {
    ($($argument:tt)*) => { $crate::printing::print(format_args!($($argument)*), "") };
}

/// Prints text. Another failure of the output, such as a full disk, ends the program with exit code 1.
/// Commands without an end of their own end once [`is_reader_gone`].
pub(crate) fn print(text: Arguments<'_>, end: &str) {
    if is_reader_gone() {
        return;
    }
    let Err(error) = write(text, end) else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        READER_GONE.store(true, Ordering::Relaxed);
        return;
    }
    eprintln!("muster: cannot write to standard output: {error}");
    std::process::exit(1);
}

/// Whether the reader of standard output went away.
pub(crate) fn is_reader_gone() -> bool {
    READER_GONE.load(Ordering::Relaxed)
}

/// Checks for a reader of a secret shown only once.
///
/// # Errors
/// When the reader is gone.
pub(crate) fn ensure_read(what: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        !is_reader_gone(),
        "{what} was made and could not be printed: make another"
    );
    Ok(())
}

fn write(text: Arguments<'_>, end: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.write_all(end.as_bytes())?;
    out.flush()
}
