//! The engine from declaration to release, against machines that keep state.

mod adopt; // A machine that runs already
mod asides; // In the middle of something else
mod asked; // Power, gates and a new installation on demand
mod constraints; // The promises, as the database says them
mod disks; // What may be on them is nobody else's to claim
mod edges; // What people ask for
mod failures; // What does not go well
mod life; // The way of a node that goes well
mod pages; // The console of what has lived
mod parts; // Components by serial; rename and move
mod power; // Racks that cannot feed all at once; two engines
mod promises; // What may only rise, and what has ended
mod release; // Giving a node back, wherever it is
mod standing; // What an operation waits for, and what came of it
mod stops; // Cancel, undrain, outcomes nobody heard
mod walks; // Whatever people, time and crashes do
