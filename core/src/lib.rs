//! The domain of Muster: words, rules and messages. The crate is pure by decision: no I/O, no async
//! code and no clock reads. Every rule can be tested by a plain function call.

pub mod audit; // Canonical bytes, digests and seals of the history
pub mod cabling; // Declared cables compared with switch ports from LLDP
pub mod claims; // Binding of a node to a pool
pub mod clock; // Time as a value
pub mod clusters; // Schedulers, and the node description sent to a scheduler
pub mod consoles; // Serial console text: filtering and display
pub mod effects; // Impact of a change on machines
pub mod event_kinds; // Renamed kinds of events
pub mod fabric; // Pair measurements: which nodes meet, and which node is blamed
pub mod facts; // Facts observed by an inspection
pub mod firmware; // Firmware and BIOS values of BMCs compared with the wanted values
pub mod gates; // Gate criteria and verdicts
pub mod ids; // A separate type for each kind of id
pub mod images; // OS disk images and their manifests
pub mod lifecycle; // Node states and every legal transition
pub mod network; // Bonds, VLANs, MTU and addresses of installed nodes
pub mod out_of_band; // Networks of BMCs and consoles
pub mod parts; // Boards, GPUs, NICs, disks and DIMMs by serial number
pub mod permits; // Permission to power, image or wipe a node once
pub mod profiles; // Requirements of a hardware model
pub mod recovery; // Recovery actions on a failing node, and their bounds
pub mod redact; // Removes secrets from outgoing text
pub mod remains; // Identifiers by which the remains of a deleted node are found again
pub mod revisions; // The documents that a node of a pool installs
pub mod rollout; // Rolling upgrades: the planner and the ledger of disruption
pub mod signatures; // Signatures of images by release owners
pub mod stacks; // Pins over an image, the lock, and the converge plan
pub mod values; // MAC addresses, digests, names, secrets: parsed once
pub mod wire; // Messages between server, agent and muster-node
pub mod words; // Enums stored, sent and shown as text
