//! What the rules of compatibility say of a stack on the nodes that a change reaches: fine in general, it may be wrong for one of them.

use muster_api::plans::NodesFinding;
use muster_core::stacks::rules::{Finding, Level};
use sqlx::PgConnection;

use crate::db;
use crate::db::objects::ObjectRow;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;

/// Nodes that are looked at; of more it is told that nobody did.
const MOST: usize = 500;

/// Of nodes that are held, with the stack and image that their pools then ask for.
pub(super) async fn held(
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
    Ok(found.told(nodes))
}

/// Of nodes that a pool is about to claim.
pub(super) async fn coming(
    conn: &mut PgConnection,
    nodes: &[String],
    pool: &ObjectRow,
) -> Result<Vec<NodesFinding>, Error> {
    let Some((stack, image)) = compatibility::of_pool(conn, pool.id).await? else {
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
    Ok(found.told(nodes))
}

/// The same finding of several nodes is told once.
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

    fn told(mut self, nodes: &[String]) -> Vec<NodesFinding> {
        if let Some(others) = nodes.get(MOST..).filter(|others| !others.is_empty()) {
            let sentence = format!(
                "of {} more nodes the rules were not asked: more than {MOST} are reached",
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
