//! The `muster-node` executable; the library documents the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_node::cli::main(std::env::args().skip(1).collect())
}
