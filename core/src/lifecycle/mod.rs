//! The states of a node and every legal move.
