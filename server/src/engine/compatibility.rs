//! Compatibility of stacks with nodes, by the current rules and the observed facts of each node.
//! Checked by every plan, and before every order that installs a stack on a node.

use crate::db::facts::{NodeFacts, Source};
use muster_core::ids::NodeId;
use muster_core::images::ImageManifest;
use muster_core::stacks::StackSpec;
use muster_core::stacks::rules::{self, Finding, Level, Subject};
use sqlx::PgConnection;

use crate::db;
use crate::db::specs::OrderNode;
use crate::error::Error;

/// The target of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// The pool's image, written to the disk first.
    Image,
    /// The running system.
    System,
}

/// Returns the findings of the rules for a stack and its image on this node.
///
/// # Errors
///
/// When the database fails.
pub async fn findings(
    conn: &mut PgConnection,
    node: &OrderNode,
    stack: &StackSpec,
    image: Option<&ImageManifest>,
    onto: Onto,
) -> Result<Vec<Finding>, Error> {
    let facts = NodeFacts {
        node: node.id,
        // The disk of the system is known only for an image written by Muster.
        is_foreign: node.os_host_key.is_some() && node.root_disk_serial.is_none(),
        seen: db::facts::latest(conn, node.id).await?,
    };
    Ok(judge(stack, image, onto, facts))
}

/// Returns the findings of the rules for a stack and its image on a node with these facts. The image
/// is ignored for a running system that Muster did not write.
pub fn judge(
    stack: &StackSpec,
    image: Option<&ImageManifest>,
    onto: Onto,
    of: NodeFacts,
) -> Vec<Finding> {
    let facts = of.seen.map(|seen| {
        let mut facts = seen.facts;
        if seen.source != Source::Installed {
            // The facts name the live image's kernel, not the installed system's kernel.
            facts.kernel.clear();
        }
        facts
    });
    let keeps_foreign = onto == Onto::System && of.is_foreign;
    rules::findings_of_node(Subject {
        stack,
        image: image.filter(|_| !keeps_foreign),
        facts: facts.as_ref(),
    })
}

/// Returns why the assigned stack cannot be installed on the node. Returns `None` without a
/// refusing rule or without a stack.
///
/// # Errors
///
/// When the database fails.
pub async fn refusal(
    conn: &mut PgConnection,
    node: &OrderNode,
    onto: Onto,
) -> Result<Option<String>, Error> {
    let Some(stack) = &node.stack else {
        return Ok(None);
    };
    if onto == Onto::System && node.needs_reinstall {
        return Ok(Some(format!(
            "the revision assigned to {} has another image or network than its disk: reinstall the node",
            node.name
        )));
    }
    let found = findings(conn, node, stack, node.image.as_ref(), onto).await?;
    Ok(told(&node.name, &found))
}

/// Rejects work leading to an incompatible stack. The node stays unchanged.
///
/// # Errors
///
/// 409 with the sentences of the rules.
pub async fn allow(conn: &mut PgConnection, node: NodeId, onto: Onto) -> Result<(), Error> {
    let node = db::specs::find_node(conn, node).await?;
    match refusal(conn, &node, onto).await? {
        None => Ok(()),
        Some(why) => Err(Error::conflict("incompatible", why)),
    }
}

/// Joins the refusing findings into one sentence about a node.
pub fn told(node: &str, found: &[Finding]) -> Option<String> {
    join_refusals(found).map(|why| format!("the stack cannot go onto {node}: {why}"))
}

/// Joins the sentences of the refusing findings; `None` without one.
pub fn join_refusals(found: &[Finding]) -> Option<String> {
    let refused = found
        .iter()
        .filter(|finding| finding.level == Level::Refused);
    let sentences: Vec<String> = refused.map(ToString::to_string).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}
