//! Compatibility of a stack with the nodes affected by a change. A valid stack may still be wrong
//! for a single node.

use muster_api::plans::NodesFinding;
use muster_core::stacks::rules::{Finding, Level};
use sqlx::PgConnection;

use crate::db;
use crate::db::objects::ObjectRow;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;
use crate::intents::claims::stack;

/// The largest number of checked nodes. The findings list the other nodes as unchecked.
const MOST: usize = 500;

/// Checks held nodes against the stack and the image of their pools after the change.
pub(super) async fn check_held(
    conn: &mut PgConnection,
    nodes: &[String],
    onto: Onto,
) -> Result<Vec<NodesFinding>, Error> {
    let mut found = Found::default();
    for name in nodes.iter().take(MOST) {
        let Some(id) = db::nodes::find_id(conn, name).await? else {
            continue;
        };
        let node = db::specs::find_node(conn, id).await?;
        let Some(stack) = &node.stack else { continue };
        found.add(
            name,
            compatibility::findings(conn, &node, stack, node.image.as_ref(), onto).await?,
        );
    }
    Ok(found.finish(nodes))
}

/// Checks the nodes a pool is about to claim.
pub(super) async fn check_coming(
    conn: &mut PgConnection,
    nodes: &[String],
    pool: &ObjectRow,
) -> Result<Vec<NodesFinding>, Error> {
    let Some((stack, image)) = stack::find_stack(conn, pool.id).await? else {
        return Ok(Vec::new());
    };
    let mut found = Found::default();
    for name in nodes.iter().take(MOST) {
        let Some(id) = db::nodes::find_id(conn, name).await? else {
            continue;
        };
        let node = db::specs::find_node(conn, id).await?;
        found.add(
            name,
            compatibility::findings(conn, &node, &stack, image.as_ref(), Onto::Image).await?,
        );
    }
    Ok(found.finish(nodes))
}

/// Findings, each with all of its nodes.
#[derive(Default)]
struct Found(Vec<NodesFinding>);

impl Found {
    fn add(&mut self, node: &str, findings: Vec<Finding>) {
        for finding in findings
            .into_iter()
            .filter(|finding| finding.level > Level::Note)
        {
            match self.0.iter_mut().find(|known| known.finding == finding) {
                Some(known) => known.nodes.push(node.to_owned()),
                None => self.0.push(NodesFinding {
                    finding,
                    nodes: vec![node.to_owned()],
                }),
            }
        }
    }

    /// The findings, the most serious first.
    fn finish(mut self, nodes: &[String]) -> Vec<NodesFinding> {
        if let Some(others) = nodes.get(MOST..).filter(|others| !others.is_empty()) {
            let sentence = format!(
                "{} more nodes were not checked: the change affects more than {MOST}",
                others.len()
            );
            let finding = Finding {
                rule: "selector".into(),
                level: Level::Unknown,
                sentence,
                source: String::new(),
                about: "selector".into(),
            };
            self.0.push(NodesFinding {
                finding,
                nodes: others.to_vec(),
            });
        }
        self.0
            .sort_by_key(|found| std::cmp::Reverse(found.finding.level));
        self.0
    }
}
