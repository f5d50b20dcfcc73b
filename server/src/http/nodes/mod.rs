//! Nodes: registration, reading, actions, and what is known of each.

pub mod actions;
mod addresses;
mod console;
mod history;
mod read;
pub mod view;
mod write;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of nodes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(read::list_nodes))
        .routes(routes!(read::get_node, write::put_node, write::patch_node, write::delete_node))
        .routes(routes!(actions::act_on_node))
        .routes(routes!(read::get_node_why))
        .routes(routes!(history::get_node_facts))
        .routes(routes!(history::list_node_gate_runs))
        .routes(routes!(history::list_node_events))
        .routes(routes!(history::get_node_timeline))
        .routes(routes!(console::get_node_console))
}
