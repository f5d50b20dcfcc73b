//! Parsers on recordings of the real tools, and what must never pass; the runner with real programs.

mod bench; // A plan, facts and a machine to run gates on
mod parsers; // Recordings, broken in every way
mod runner; // Stages, timeouts, disks
mod suites; // What the repository ships
