//! `muster get`, `muster delete`, `muster rack`, `muster site`: kinds that are known by name.

use clap::{Args, Subcommand};
use muster_api::client::{Client, ClientError};
use muster_api::kind;
use muster_api::racks::RackSpec;
use muster_core::values::Name;
use serde_json::Value;

use super::Session;
use super::output::{Rows, age};

/// What to show.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// A kind: site, rack, subnet, hardware-profile, credential, image, stack, suite, cluster, pool, webhook, node, claim.
    kind: String,
    /// One object; all of them without it.
    name: Option<String>,
    /// Such as `label.gpu=h200`.
    #[arg(short, long)]
    filter: Option<String>,
}

/// What to remove.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    kind: String,
    name: String,
}

/// What can be done with racks.
#[derive(Debug, Subcommand)]
pub(crate) enum RackVerb {
    /// List racks.
    List,
}

/// What can be done with sites.
#[derive(Debug, Subcommand)]
pub(crate) enum SiteVerb {
    /// List the agents of a site.
    Agents { site: String },
    /// Enrol an agent and print its token, this once.
    Enrol { site: String, agent: Name },
}

fn collection(word: &str) -> Result<&'static str, ClientError> {
    let unknown = || {
        let kinds: Vec<&str> = kind::COLLECTIONS.iter().map(|(kind, _)| *kind).collect();
        ClientError::Usage(format!("{word:?} is no kind; there are: {}", kinds.join(", ")))
    };
    kind::collection(word).map(|(_, collection)| collection).ok_or_else(unknown)
}

pub(super) async fn get(session: &Session, args: GetArgs) -> anyhow::Result<()> {
    let collection = collection(&args.kind)?;
    if let Some(name) = &args.name {
        let object = session.client.get_value(&[collection, name], &[]).await?;
        return session.output.print(&object, || table(session, std::slice::from_ref(&object)));
    }
    let items = list(&session.client, collection, args.filter.as_deref()).await?;
    session.output.print(&items, || table(session, &items))
}

/// Every object of a collection, page by page.
async fn list(client: &Client, collection: &str, filter: Option<&str>) -> Result<Vec<Value>, ClientError> {
    let mut items = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let mut query = vec![("limit", "1000")];
        query.extend(filter.map(|filter| ("filter", filter)));
        query.extend(token.as_deref().map(|token| ("page_token", token)));
        let mut page = client.get_value(&[collection], &query).await?;
        if let Value::Array(found) = page["items"].take() {
            items.extend(found);
        }
        match page["next_page_token"].as_str() {
            Some(next) => token = Some(next.to_owned()),
            None => return Ok(items),
        }
    }
}

fn table(session: &Session, items: &[Value]) -> Rows<5> {
    let now = session.clock.now();
    let row = |item: &Value| {
        let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let labels = item["labels"].as_object().into_iter().flatten();
        let labels: Vec<String> =
            labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        let generation = item["generation"].as_i64().unwrap_or_default().to_string();
        [text("/name"), generation, age(now, text("/created_at").parse().ok()), labels.join(","), text("/id")]
    };
    let headings = ["NAME", "GENERATION", "AGE", "LABELS", "ID"];
    Rows { headings, rows: items.iter().map(row).collect(), wide_from: 4 }
}

pub(super) async fn delete(session: &Session, args: DeleteArgs) -> anyhow::Result<()> {
    let collection = collection(&args.kind)?;
    let object = session.client.get_value(&[collection, &args.name], &[]).await?;
    let generation = object["generation"].as_i64().unwrap_or_default();
    match session.client.delete_value(&[collection, &args.name], generation).await? {
        Some(operation) => println!("operation {}", operation["id"].as_str().unwrap_or_default()),
        None => println!("{} {} removed", args.kind, args.name),
    }
    Ok(())
}

pub(super) async fn racks(session: &Session, verb: RackVerb) -> anyhow::Result<()> {
    let RackVerb::List = verb;
    let racks = session.client.list_all::<RackSpec>(None).await?;
    session.output.print(&racks, || Rows {
        headings: ["NAME", "SITE", "UNITS", "POWER BUDGET"],
        rows: racks
            .iter()
            .map(|rack| {
                let spec = &rack.spec;
                [rack.name.to_string(), spec.site.clone(), spec.units.to_string(), format!("{} W", spec.power_budget_w)]
            })
            .collect(),
        wide_from: 4,
    })
}

pub(super) async fn sites(session: &Session, verb: SiteVerb) -> anyhow::Result<()> {
    match verb {
        SiteVerb::Agents { site } => {
            let now = session.clock.now();
            let page = session.client.list_agents(&site).await?;
            session.output.print(&page.items, || Rows {
                headings: ["NAME", "VERSION", "HEARD", "CLOCK"],
                rows: page
                    .items
                    .iter()
                    .map(|agent| {
                        let version = agent.version.clone().unwrap_or_default();
                        let clock = agent.clock_offset_ms.map_or_else(String::new, |ms| format!("{:+} s", ms / 1000));
                        [agent.name.clone(), version, age(now, agent.last_seen), clock]
                    })
                    .collect(),
                wide_from: 4,
            })
        }
        SiteVerb::Enrol { site, agent } => {
            let enrolled = session.client.enrol_agent(&site, &agent).await?;
            session.output.print_lines(&enrolled, || vec![enrolled.token.reveal().to_owned()])
        }
    }
}
