//! Nodes: registration, reading, actions, and observations.

mod actions; // Requests of actions
mod adopt; // Adoption of a running machine
mod console; // The serial console
mod drift; // Differences from the stack
mod history; // Facts, gate runs, events and timeline
mod hold; // The legal hold
mod matching; // Match of a discovered machine with a declared node
mod parts; // Components and their replacement
mod place; // Rename and move
mod read; // List and detail
pub mod recoveries; // Recovery attempts
pub mod rma; // The archive for the maker of a part
mod write; // Registration, change and removal

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of nodes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(read::list_nodes))
        .routes(routes!(
            read::get_node,
            write::put_node,
            write::patch_node,
            write::delete_node
        ))
        .routes(routes!(actions::act_on_node))
        .routes(routes!(adopt::adopt_node))
        .routes(routes!(parts::replace_parts))
        .routes(routes!(parts::list_node_components))
        .routes(routes!(parts::list_components))
        .routes(routes!(matching::match_node))
        .routes(routes!(place::rename_node))
        .routes(routes!(place::move_node))
        .routes(routes!(
            hold::get_node_hold,
            hold::hold_records,
            hold::release_records
        ))
        .routes(routes!(read::get_node_why))
        .routes(routes!(history::get_node_facts))
        .routes(routes!(drift::get_node_drift))
        .routes(routes!(history::list_node_gate_runs))
        .routes(routes!(history::list_node_events))
        .routes(routes!(history::get_node_timeline))
        .routes(routes!(recoveries::list_node_recoveries))
        .routes(routes!(rma::get_node_rma))
        .routes(routes!(console::get_node_console))
}
