//! `list`, `get`, `describe` of every kind.

use clap::Args;
use serde_json::Value;

use super::Noun;
use crate::client::output::{Column, Form, age, text};
use crate::client::session::Session;

/// The largest page of the server.
const PAGE: u32 = 1000;
/// The number of events at the end of a description.
const EVENTS: usize = 10;

/// The list to print.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListArgs {
    /// Filter, such as `state=in_service AND rack~"r1*" AND label.gpu=h200`. Each list names its
    /// fields
    #[arg(short, long)]
    filter: Option<String>,
    /// Field for sorting; `-name` sorts descending
    #[arg(long, allow_hyphen_values = true)]
    sort: Option<String>,
    /// Members of each object to return, such as `status.state,labels`. A table then has these
    /// columns
    #[arg(long)]
    fields: Option<String>,
    /// Maximum number of objects. Default: all, over several pages
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl ListArgs {
    /// Returns whether the request selects a part of the list.
    pub(crate) fn narrows(&self) -> bool {
        self.filter.is_some()
    }
}

/// The objects to print.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Names or ids
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// The object to describe.
#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    /// Name or id
    name: String,
}

/// Lists the items of a path below `/v1`, page by page.
pub(crate) async fn list(
    session: &Session,
    path: &[&str],
    columns: &[Column],
    args: &ListArgs,
    parameters: Vec<(&str, String)>,
) -> anyhow::Result<()> {
    let items = all(session, path, args, parameters).await?;
    if items.is_empty() {
        session.output.note(&format!(
            "no {} fit",
            path.last()
                .copied()
                .unwrap_or_default()
                .replace(['_', '-'], " ")
        ));
    }
    print(session, &items, columns, args)
}

/// Prints a list with the columns of its kind, or the columns of the requested fields.
pub(crate) fn print(
    session: &Session,
    items: &[Value],
    columns: &[Column],
    args: &ListArgs,
) -> anyhow::Result<()> {
    let chosen = args.fields.as_deref().map(chosen);
    session.output.list(
        items,
        chosen.as_deref().unwrap_or(columns),
        session.clock.now(),
    )
}

/// Returns the columns of the requested fields. The columns live until the program ends.
fn chosen(fields: &str) -> Vec<Column> {
    let column = |field: &str| {
        let pointer: &'static str = format!("/{}", field.trim().replace('.', "/")).leak();
        Column::new(field.trim().to_uppercase().leak(), pointer, Form::Text)
    };
    std::iter::once(Column::new("NAME", "/name|/id", Form::Text))
        .chain(fields.split(',').map(column))
        .collect()
}

/// Reads all pages, up to the limit.
pub(crate) async fn all(
    session: &Session,
    path: &[&str],
    args: &ListArgs,
    parameters: Vec<(&str, String)>,
) -> anyhow::Result<Vec<Value>> {
    let mut given: Vec<(&str, String)> = parameters;
    for (name, value) in [
        ("filter", &args.filter),
        ("sort", &args.sort),
        ("fields", &args.fields),
    ] {
        given.extend(value.clone().map(|value| (name, value)));
    }
    let mut items = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let left = args
            .limit
            .map_or(PAGE, |limit| {
                limit - u32::try_from(items.len()).unwrap_or(limit)
            })
            .min(PAGE);
        let limit = left.to_string();
        let mut query: Vec<(&str, &str)> = given
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        query.push(("limit", limit.as_str()));
        query.extend(token.as_deref().map(|token| ("page_token", token)));
        let mut page = session.client.get_value(path, &query).await?;
        if let Value::Array(found) = page["items"].take() {
            items.extend(found);
        }
        token = page["next_page_token"].as_str().map(str::to_owned);
        let full = args
            .limit
            .is_some_and(|limit| items.len() >= limit as usize);
        if token.is_none() || full {
            return Ok(items);
        }
    }
}

pub(super) async fn get(session: &Session, noun: &Noun, args: GetArgs) -> anyhow::Result<()> {
    let mut found = Vec::with_capacity(args.names.len());
    for name in &args.names {
        found.push(
            session
                .client
                .get_value(&[noun.collection, name], &[])
                .await?,
        );
    }
    match found.as_slice() {
        [one] => session.output.one(one, noun.columns, session.clock.now()),
        several => session
            .output
            .list(several, noun.columns, session.clock.now()),
    }
}

pub(super) async fn describe(
    session: &Session,
    noun: &Noun,
    args: &DescribeArgs,
) -> anyhow::Result<()> {
    let object = session
        .client
        .get_value(&[noun.collection, &args.name], &[])
        .await?;
    let mut status = object["status"].clone();
    // The sentence with the summary is first.
    status.as_object_mut().map(|members| members.remove("why"));
    let events = match noun.kind {
        "node" => events(session, &text(&object["id"])).await?,
        _ => Vec::new(),
    };
    session.output.print_lines(&object, || {
        let now = session.clock.now();
        let at = |member: &str| {
            let at = object[member].as_str().and_then(|at| at.parse().ok());
            format!("{} ({} ago)", text(&object[member]), age(now, at))
        };
        let mut lines = vec![format!("{} {}", noun.kind, text(&object["name"]))];
        // The most important values for a person.
        lines.extend(object.pointer("/status/why/sentence").map(text));
        lines.push(format!("id          {}", text(&object["id"])));
        lines.push(format!("created     {}", at("created_at")));
        lines.push(format!("updated     {}", at("updated_at")));
        lines.push(format!("generation  {}", object["generation"]));
        for part in ["labels", "annotations", "spec"] {
            tell(&mut lines, part, &object[part], 0);
        }
        tell(&mut lines, "status", &status, 0);
        if !events.is_empty() {
            lines.push("events".into());
            lines.extend(events);
        }
        lines
    })
}

/// Returns the latest events of a node, oldest first.
async fn events(session: &Session, node: &str) -> anyhow::Result<Vec<String>> {
    let timeline = session.client.node_timeline(node).await?;
    let skipped = timeline.items.len().saturating_sub(EVENTS);
    let line = |item: &muster_api::nodes::TimelineEntry| {
        format!("  {}  {}", item.at.strftime("%F %T"), item.summary)
    };
    Ok(timeline.items.iter().skip(skipped).map(line).collect())
}

/// Prints a document as indented lines without empty members.
fn tell(lines: &mut Vec<String>, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let nothing = match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if nothing || depth > 8 {
        return;
    }
    match value {
        Value::Object(members) => {
            lines.push(format!("{indent}{name}"));
            members
                .iter()
                .for_each(|(name, value)| tell(lines, name, value, depth + 1));
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            lines.push(format!("{indent}{name}"));
            for item in items {
                match item.as_object().filter(|members| {
                    members
                        .values()
                        .all(|value| !value.is_object() && !value.is_array())
                }) {
                    // A flat object, in one line.
                    Some(members) => {
                        let known = members.iter().filter(|(_, value)| !value.is_null());
                        let parts: Vec<String> = known
                            .map(|(name, value)| format!("{name}={}", text(value)))
                            .collect();
                        lines.push(format!("{indent}  - {}", parts.join(" ")));
                    }
                    None => tell(lines, "-", item, depth + 1),
                }
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            lines.push(format!("{indent}{name:<20} {}", items.join(" ")));
        }
        one => lines.push(format!("{indent}{name:<20} {}", text(one))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_told_without_what_is_empty() {
        let mut lines = Vec::new();
        let spec = serde_json::json!({ "units": 42, "dns": ["a", "b"], "none": null, "no": [], "in": { "x": "y" }, "macs": [{ "mac": "m", "subnet": null }] });
        tell(&mut lines, "spec", &spec, 0);
        let words: Vec<Vec<&str>> = lines
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            words,
            [
                vec!["spec"],
                vec!["dns", "a", "b"],
                vec!["in"],
                vec!["x", "y"],
                vec!["macs"],
                vec!["-", "mac=m"],
                vec!["units", "42"]
            ]
        );
    }
}
