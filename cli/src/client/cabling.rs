//! `muster rack cabling`, `muster node cabling`.

use clap::Subcommand;
use muster_api::racks::Cabling;

use super::output::{Column, Form};
use super::session::Session;

/// Subcommands of racks, in addition to the subcommands of every kind.
#[derive(Debug, Subcommand)]
pub(crate) enum RackVerb {
    /// Show the declared cables of a rack, each as right, swapped or elsewhere
    Cabling { rack: String },
}

const COLUMNS: &[Column] = &[
    Column::new("NODE", "/node", Form::Text),
    Column::new("NIC", "/nic", Form::Text),
    Column::new("SWITCH", "/switch", Form::Text),
    Column::new("PORT", "/port", Form::Text),
    Column::new("STATE", "/state", Form::State),
    Column::new("LOOKED", "/observed_at", Form::Age),
    Column::wide("TOLD", "/told", Form::Text),
];

pub(super) async fn run(session: &Session, verb: RackVerb) -> anyhow::Result<()> {
    let RackVerb::Cabling { rack } = verb;
    show(session, &session.client.rack_cabling(&rack).await?)
}

pub(super) async fn of_node(session: &Session, node: &str) -> anyhow::Result<()> {
    show(session, &session.client.node_cabling(node).await?)
}

/// Prints the cables as a list, and the remedies as notes.
fn show(session: &Session, cabling: &Cabling) -> anyhow::Result<()> {
    if cabling.cables.is_empty() {
        session.output.note(&format!(
            "rack {} declares no such cable: spec.cables is its plan",
            cabling.rack
        ));
    }
    for finding in &cabling.findings {
        session.output.note(finding);
    }
    session
        .output
        .list_of(&cabling.cables, COLUMNS, session.clock.now())
}
