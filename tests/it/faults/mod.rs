//! What breaks around the programs, injected from outside. `docs/faults.md` says which test stands for which fault.

mod bad_wire; // Datagrams that are lost, repeated, reordered
mod clocks; // Clocks that are wrong, and set
mod cut_off; // Agents that hear nothing
