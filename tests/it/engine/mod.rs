//! The engine from declaration to release, against machines that keep state.

mod failures; // What does not go well
mod life; // The way of a node that goes well
mod power; // Racks that cannot feed all at once; two engines
mod release; // Giving a node back, wherever it is
mod walks; // Whatever people, time and crashes do
