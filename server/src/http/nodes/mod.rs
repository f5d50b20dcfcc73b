//! Nodes: registration, reading, actions, and what is known of each.

pub mod actions;
mod addresses;
pub mod adopt; // A machine that runs already
mod console;
mod drift; // What differs from its stack
pub(in crate::http) mod erasures; // What erases its disks, beyond the hourly limit
mod history;
mod matching; // A discovered machine that a declared node waits for
pub mod parts; // Components, and what replaced them
pub mod place; // Another name, another rack
mod read;
pub mod recoveries; // What was tried on it
pub mod rma; // All of it, for the maker of a part
pub mod view;
pub(in crate::http) mod write;

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
