//! The list of nodes. The filter uses the API's grammar, so a copied filter works in the API.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use jiff::Timestamp;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::State as NodeState;
use muster_core::lifecycle::wait::describe_wait;
use serde::Deserialize;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{self, Op, Term};
use crate::db::macs::AddressRow;
use crate::db::nodes::NodeRow;
use crate::error::Error;
use crate::http::extract::Query;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment, member};
use crate::ui::frame::{Frame, Live, Section, Visit};

const ROWS: usize = 100;

#[derive(Template, WebTemplate)]
#[template(path = "nodes.html")]
struct Page {
    frame: Frame,
    form: NodesQuery,
    states: Vec<Choice>,
    rows: Vec<Row>,
    told: String,
    filtered: bool,
    next: String,
    first: String,
}

struct Choice {
    value: &'static str,
    word: String,
    chosen: bool,
}

struct Row {
    name: String,
    id: String,
    chip: Chip,
    why: String,
    overdue: bool,
    since: Moment,
    claim: String,
    pool: String,
    rack: String,
    address: String,
}

/// The filter bar.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::ui) struct NodesQuery {
    state: String,
    rack: String,
    /// Part of a name, or an exact serial, MAC, address or UUID.
    q: String,
    /// A filter in the API's grammar.
    filter: String,
    after: String,
}

/// Lists the nodes by name, one page at a time.
pub(in crate::ui) async fn list_nodes(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<NodesQuery>,
) -> Result<Response, Error> {
    let mut conn = app.pool.acquire().await?;
    let terms = query.terms()?;
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let from = filter::Page {
        sort: filter::BY_NAME[0],
        after: Some(query.after.as_str()),
        limit,
    };
    let ids = filter::list_ids(&mut conn, &filter::NODES, &terms, &actor.sight(), from).await?;
    let mut ids: Vec<NodeId> = ids.into_iter().map(NodeId).collect();
    let text = query.q.trim();
    if ids.is_empty()
        && !text.is_empty()
        && let Some(name) = db::pages::nodes::find_by_label(&mut conn, text).await?
        && actor.find_node(&mut conn, &name).await?.is_some()
    {
        return Ok(Redirect::to(&format!("/nodes/{name}")).into_response());
    }
    let more = ids.len() > ROWS;
    ids.truncate(ROWS);
    let nodes = db::nodes::list(&mut conn, &ids).await?;
    let addresses = db::macs::list(&mut conn, &ids).await?;
    let written = query.grammar(&terms);
    let (cli, path) = match written.as_str() {
        "" => ("muster node list".to_owned(), "/v1/nodes".to_owned()),
        text => (
            format!("muster node list --filter {}", format::shell(text)),
            format!("/v1/nodes?filter={}", format::escape(text)),
        ),
    };
    let next = nodes
        .last()
        .filter(|_| more)
        .map(|last| query.page(&last.name))
        .unwrap_or_default();
    let plus = if more { "+" } else { "" };
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Nodes, "Nodes")
            .by_hand(cli, &path)
            .live(Live::Shown),
        states: states(&query.state),
        told: format!(
            "{}{plus} {}",
            nodes.len(),
            if nodes.len() == 1 { "node" } else { "nodes" }
        ),
        filtered: !terms.is_empty(),
        next,
        first: if query.after.is_empty() {
            String::new()
        } else {
            query.page("")
        },
        rows: nodes
            .into_iter()
            .map(|node| row(node, &addresses, visit.now))
            .collect(),
        form: query,
    }
    .into_response())
}

fn states(chosen: &str) -> Vec<Choice> {
    let choice = |state: &NodeState| Choice {
        value: state.as_str(),
        word: state.as_str().replace('_', " "),
        chosen: state.as_str() == chosen,
    };
    NodeState::ALL.iter().map(choice).collect()
}

impl NodesQuery {
    /// Returns the terms of the bar and of the grammar together.
    fn terms(&self) -> Result<Vec<Term>, Error> {
        let mut terms = filter::parse(&self.filter)?;
        let mut add = |field: &str, op, value: String| {
            terms.push(Term {
                field: field.into(),
                op,
                value,
            })
        };
        if !self.state.is_empty() {
            add("state", Op::Equal, self.state.clone());
        }
        match self.rack.trim() {
            "" => {}
            rack if rack.contains('*') => add("rack", Op::Like, rack.to_owned()),
            rack => add("rack", Op::Equal, rack.to_owned()),
        }
        match self.q.trim() {
            "" => {}
            text => add("name", Op::Like, format!("*{text}*")),
        }
        Ok(terms)
    }

    /// Returns the terms as a filter in the API's grammar.
    fn grammar(&self, terms: &[Term]) -> String {
        let one = |term: &Term| {
            let op = match term.op {
                Op::Equal => "=",
                Op::NotEqual => "!=",
                Op::Like => "~",
            };
            format!("{}{op}\"{}\"", term.field, term.value.replace('"', ""))
        };
        terms.iter().map(one).collect::<Vec<_>>().join(" AND ")
    }

    /// Returns the URL of the same list, after a name.
    fn page(&self, after: &str) -> String {
        let members = [
            ("state", &*self.state),
            ("rack", &self.rack),
            ("q", &self.q),
            ("filter", &self.filter),
            ("after", after),
        ];
        let given = members.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = given
            .map(|(name, value)| format!("{name}={}", format::escape(value)))
            .collect();
        match query.is_empty() {
            true => "/nodes".to_owned(),
            false => format!("/nodes?{}", query.join("&")),
        }
    }
}

fn row(node: NodeRow, addresses: &[AddressRow], now: Timestamp) -> Row {
    let waiting = describe_wait(node.waiting_reason.as_deref(), node.waiting_for.as_deref());
    let why = match node.state {
        NodeState::Quarantined | NodeState::Failed => node.reason.clone().or(waiting),
        _ => waiting.or_else(|| node.reason.clone()),
    };
    let address = addresses
        .iter()
        .filter(|row| row.node == node.id)
        .find_map(|row| row.address);
    Row {
        id: node.id.to_string(),
        chip: chips::state(node.state),
        why: format::cut(&why.unwrap_or_default(), 160),
        overdue: node.deadline_at.is_some_and(|at| at.to_jiff() < now),
        since: format::moment(node.entered_at, now),
        claim: node.claim.unwrap_or_default(),
        pool: node.pool.unwrap_or_default(),
        rack: format::cut(member(&node.spec, "rack"), 63),
        address: address
            .map(|address| address.to_string())
            .unwrap_or_default(),
        name: node.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_becomes_the_grammar_and_back() {
        let query = NodesQuery {
            state: "failed".into(),
            rack: "r1*".into(),
            q: " gpu ".into(),
            filter: "pool=p".into(),
            ..NodesQuery::default()
        };
        let terms = query.terms().unwrap();
        let text = query.grammar(&terms);
        assert_eq!(
            text,
            r#"pool="p" AND state="failed" AND rack~"r1*" AND name~"*gpu*""#
        );
        assert_eq!(filter::parse(&text).unwrap(), terms);
        assert_eq!(
            query.page("gpu-9"),
            "/nodes?state=failed&rack=r1%2A&q=%20gpu%20&filter=pool%3Dp&after=gpu-9"
        );
        assert_eq!(NodesQuery::default().page(""), "/nodes");
    }
}
