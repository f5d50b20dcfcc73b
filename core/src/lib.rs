//! The domain of Muster: words, rules and messages. Pure by decision: nothing here does I/O, is async, or reads a clock,
//! so every rule can be tested by calling it.

pub mod audit; // What makes the history provable
pub mod cabling; // Declared cables against the switch ports that nodes heard
pub mod claims; // One node bound to one pool
pub mod clock; // Time as a value
pub mod clusters; // Where nodes are admitted, and what a scheduler is told about them
pub mod consoles; // Text of serial consoles: what is kept, how it is shown
pub mod effects; // What a change costs the machines it reaches
pub mod fabric; // Pairs of nodes, measured by turns: who meets whom, and who is blamed
pub mod facts; // What inspection observed on a node
pub mod firmware; // What BMCs say of firmware and BIOS, against what is wanted
pub mod gates; // Gate criteria and verdicts
pub mod ids; // One type per kind of id
pub mod images; // OS disk images and their manifests
pub mod lifecycle; // The states of a node and every legal move
pub mod network; // Bonds, VLANs, MTU and addresses of installed nodes
pub mod parts; // Boards, GPUs, NICs, disks and DIMMs by serial
pub mod permits; // The right to power, image or wipe one node once
pub mod profiles; // What a hardware model must have
pub mod recovery; // What is tried on a node that fails, and what bounds it
pub mod redact; // Secrets in what leaves the house
pub mod stacks; // Pins over an image, their lock, and the plan a node converges to
pub mod values; // MAC addresses, digests, names, secrets: parsed once, valid ever after
pub mod wire; // Messages between server, agent and muster-node
