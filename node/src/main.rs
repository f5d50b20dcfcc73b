//! The `muster-node` executable; see the library for what it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_node::cli::main(std::env::args().skip(1).collect())
}
