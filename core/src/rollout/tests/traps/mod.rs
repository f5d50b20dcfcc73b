//! The traps of other engines, by their number in the research on the field. Each test was seen
//! failing without the guard under test.

mod drains; // Drains and the disruption budget
mod failures; // Failures and stalls
mod halts; // Halted, superseded and reversed rollouts
mod slots; // Slots and windows

use super::*;
