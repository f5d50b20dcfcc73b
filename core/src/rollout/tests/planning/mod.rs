//! Canary, waves, order, drain policies, refused effects, membership.

mod drains; // Effects, obstacles, jobs, drain policies
mod order; // Order of nodes, closed times, progress, sentences
mod waves; // Canary, soak, waves

use super::*;
