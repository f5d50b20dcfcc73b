//! The engine from declaration to release, against machines that keep state.

mod failures; // What does not go well
mod life; // The way of a node that goes well
mod pages; // The console of what has lived
mod power; // Racks that cannot feed all at once; two engines
mod release; // Giving a node back, wherever it is
mod walks; // Whatever people, time and crashes do
