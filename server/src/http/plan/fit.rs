//! Compatibility of a stack with the nodes affected by a change. A valid stack may still be wrong
//! for a single node.

use muster_api::plans::NodesFinding;
use muster_core::revisions::Revision;
use muster_core::stacks::rules::{Finding, Level};
use sqlx::PgConnection;

use crate::db;
use crate::db::objects::ObjectRow;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;
use crate::intents::revisions;

/// The largest number of checked nodes. The findings list the other nodes as unchecked.
const MOST: usize = 500;

/// Checks a newly claimed node against the revision of its claim.
pub(super) async fn check_claimed(
    conn: &mut PgConnection,
    nodes: &[String],
) -> Result<Vec<NodesFinding>, Error> {
    let mut found = Found::default();
    for name in nodes {
        let Some(id) = db::nodes::find_id(conn, name).await? else {
            continue;
        };
        let node = db::specs::find_node(conn, id).await?;
        let Some(stack) = &node.stack else { continue };
        let image = node.image.as_ref();
        found.add(
            name,
            compatibility::findings(conn, &node, stack, image, Onto::Image).await?,
        );
    }
    Ok(found.finish(nodes))
}

/// Checks held nodes against the newest revision of their pools, which the change proposes.
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
        let Some(newest) = db::revisions::find_newest_of_node(conn, id).await? else {
            continue;
        };
        let Revision { image, stack, .. } = revisions::parse(&newest)?;
        found.add(
            name,
            compatibility::findings(conn, &node, &stack, Some(&image), onto).await?,
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
    let Some(present) = db::revisions::find_present(conn, pool.id).await? else {
        return Ok(Vec::new());
    };
    let Revision { image, stack, .. } = revisions::parse(&present)?;
    let mut found = Found::default();
    for name in nodes.iter().take(MOST) {
        let Some(id) = db::nodes::find_id(conn, name).await? else {
            continue;
        };
        let node = db::specs::find_node(conn, id).await?;
        found.add(
            name,
            compatibility::findings(conn, &node, &stack, Some(&image), Onto::Image).await?,
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
