//! Stacks held against the nodes that they are to go onto, by the rules of today and by what was seen of each: asked by every plan and before every order
//! that puts one on a node.

use muster_core::ids::NodeId;
use muster_core::images::ImageManifest;
use muster_core::stacks::StackSpec;
use muster_core::stacks::rules::{self, Finding, Level, Subject};
use sqlx::PgConnection;

use crate::db;
use crate::db::specs::OrderNode;
use crate::error::Error;

/// What the stack is put onto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// The image, which is written first.
    Image,
    /// What runs there.
    System,
}

/// What the rules say of a stack over its image, on this node.
///
/// # Errors
/// When the database fails.
pub async fn findings(
    conn: &mut PgConnection,
    node: &OrderNode,
    stack: &StackSpec,
    image: Option<&ImageManifest>,
    onto: Onto,
) -> Result<Vec<Finding>, Error> {
    let seen = db::facts::latest(conn, node.id).await?;
    // Only Muster's own writing of an image tells on which disk the system lies.
    let strange =
        onto == Onto::System && node.os_host_key.is_some() && node.root_disk_serial.is_none();
    let facts = seen.map(|seen| {
        let mut facts = seen.facts;
        if seen.source != "installed" {
            // The live image's kernel, which the system does not run.
            facts.kernel.clear();
        }
        facts
    });
    let image = image.filter(|_| !strange);
    Ok(rules::findings_of_node(Subject {
        stack,
        image,
        facts: facts.as_ref(),
    }))
}

/// Why the stack that a node's pool asks for cannot go onto it; nothing where no rule refuses it, or it has no stack.
///
/// # Errors
/// When the database fails.
pub async fn refusal(
    conn: &mut PgConnection,
    node: &OrderNode,
    onto: Onto,
) -> Result<Option<String>, Error> {
    let Some(stack) = &node.stack else {
        return Ok(None);
    };
    let found = findings(conn, node, stack, node.image.as_ref(), onto).await?;
    Ok(told(&node.name, &found))
}

/// Refuses to begin what would end at the stack: the node stays as it is.
///
/// # Errors
/// 409 with the sentences of the rules.
pub async fn allow(conn: &mut PgConnection, node: NodeId, onto: Onto) -> Result<(), Error> {
    let node = db::specs::find_node(conn, node).await?;
    match refusal(conn, &node, onto).await? {
        None => Ok(()),
        Some(why) => Err(Error::conflict("incompatible", why)),
    }
}

/// What refuses, as one sentence.
pub fn told(node: &str, found: &[Finding]) -> Option<String> {
    let refused = found
        .iter()
        .filter(|finding| finding.level == Level::Refused);
    let sentences: Vec<String> = refused.map(ToString::to_string).collect();
    (!sentences.is_empty())
        .then(|| format!("the stack cannot go onto {node}: {}", sentences.join("; ")))
}
