//! Rollouts: the list, the page of a rollout with waves and nodes, the forms, and the revisions of a
//! pool.

pub(in crate::ui) mod acts; // The forms of a rollout
pub(in crate::ui) mod bar; // Nodes by mark, as a bar and as text
pub(in crate::ui) mod list; // The list, and the open rollouts of other pages
pub(in crate::ui) mod page; // The page of a rollout
mod parts; // Sections of the page of a rollout
pub(in crate::ui) mod plan; // The form for a plan
pub(in crate::ui) mod revisions; // The revisions of a pool
mod waves; // Waves as columns of marks
