//! The list of stacks: version, size, driver, and the pools with the stack in the newest revision.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_core::stacks::StackSpec;
use muster_core::stacks::summary::summarize_stack;
use serde::Deserialize;
use sqlx::PgConnection;

use super::driver::{self, Brief};
use super::uses::{self, Uses};
use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::error::Error;
use crate::http::extract::Query;
use crate::ui::format::{self, Moment, member};
use crate::ui::frame::{Frame, Live, Section, Visit};

/// Most stacks of one page. Each stack is read as a whole.
const ROWS: usize = 50;
/// Most pools named in a row.
const NAMED: usize = 8;
/// Most missing stacks named.
const MISSING: usize = 20;

#[derive(Template, WebTemplate)]
#[template(path = "stacks.html")]
pub(in crate::ui) struct Page {
    frame: Frame,
    rows: Vec<Row>,
    missing: Vec<Missing>,
    /// Number of further missing stacks.
    more_missing: usize,
    is_first: bool,
    /// Address of the next page. Empty on the last page.
    next: String,
    /// Whether the reader has more pools than were searched.
    more_pools: bool,
}

struct Row {
    name: String,
    /// Empty for an unreadable stack.
    version: String,
    image: String,
    os: String,
    /// Number of packages with dependencies. Empty without a lock.
    packages: String,
    size: String,
    driver: Option<Brief>,
    pools: Vec<String>,
    /// Number of further pools.
    more: usize,
    published: Moment,
    /// Why the stack cannot be read. Empty for a readable stack.
    fault: String,
}

/// A stack that pools have and that does not exist.
struct Missing {
    stack: String,
    pools: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::ui) struct ListQuery {
    /// Name of the last stack on the page before.
    after: String,
}

/// Lists a page of stacks, by name.
pub(in crate::ui) async fn list_stacks(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<ListQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let is_first = query.after.is_empty();
    let page = filter::Page {
        sort: filter::BY_NAME[0],
        after: Some(query.after.as_str()),
        limit: i64::try_from(ROWS + 1).unwrap_or(i64::MAX),
    };
    let list = filter::objects_of("stack");
    // Stacks have no place, so every reader may see every stack.
    let mut ids = filter::list_ids(&mut conn, &list, &[], &Sight::new(), page).await?;
    let more = ids.len() > ROWS;
    ids.truncate(ROWS);
    let stacks = db::objects::list_by_id(&mut conn, &ids).await?;
    let uses = uses::load_uses(&mut conn, &actor).await?;
    let mut missing = match is_first {
        true => find_missing(&mut conn, &stacks, &uses).await?,
        false => Vec::new(),
    };
    let more_missing = format::cut_rows(&mut missing, MISSING);
    let next = stacks
        .last()
        .filter(|_| more)
        .map(|last| format!("/stacks?after={}", format::escape(&last.name)))
        .unwrap_or_default();
    let systems = load_systems(&mut conn, &stacks).await?;
    let rows = stacks
        .into_iter()
        .map(|row| render_row(row, &uses, &systems, visit.now));
    Ok(Page {
        rows: rows.collect(),
        missing,
        more_missing,
        is_first,
        next,
        more_pools: uses.more,
        // Each reload reads every stack of the page, and stacks change seldom.
        frame: Frame::new(&visit, &actor, Section::Stacks, "Stacks")
            .by_hand("muster stack list", "/v1/stacks")
            .live(Live::Never),
    })
}

/// Finds the stacks of pools that do not exist. A deletion of a stack is refused while the document
/// of a pool names the stack, but revisions of pools keep their own copy.
async fn find_missing(
    conn: &mut PgConnection,
    stacks: &[ObjectRow],
    uses: &Uses,
) -> Result<Vec<Missing>, Error> {
    let mut pools: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let of_revisions = uses.rows.iter().map(|one| (&one.stack, &one.pool));
    let of_documents = uses.named.iter().map(|one| (&one.stack, &one.pool));
    for (stack, pool) in of_revisions.chain(of_documents) {
        if !stack.is_empty() && !stacks.iter().any(|row| row.name == *stack) {
            pools.entry(stack).or_default().insert(pool);
        }
    }
    let names: Vec<String> = pools.keys().map(|name| (*name).to_owned()).collect();
    let absent = db::pages::stacks::list_missing(conn, &names).await?;
    let missing = absent.iter().map(|stack| Missing {
        stack: format::cut(stack, 63),
        pools: pools
            .get(stack.as_str())
            .into_iter()
            .flatten()
            .map(|pool| (*pool).to_owned())
            .collect(),
    });
    Ok(missing.collect())
}

/// Returns the operating system of each image below the stacks. Missing images are left out.
async fn load_systems(
    conn: &mut PgConnection,
    stacks: &[ObjectRow],
) -> Result<BTreeMap<String, String>, Error> {
    let images: BTreeSet<&str> = stacks
        .iter()
        .map(|row| member(&row.spec, "image"))
        .collect();
    let mut systems = BTreeMap::new();
    for image in images {
        if let Some(row) = db::objects::find(conn, "image", image).await? {
            systems.insert(image.to_owned(), name_system(&row));
        }
    }
    Ok(systems)
}

/// Returns the operating system of an image: `debian 12, amd64`.
pub(super) fn name_system(image: &ObjectRow) -> String {
    let [os, version, arch] = ["os", "os_version", "arch"].map(|name| member(&image.spec, name));
    format::cut(&format!("{os} {version}, {arch}"), 80)
}

fn render_row(
    row: ObjectRow,
    uses: &Uses,
    systems: &BTreeMap<String, String>,
    now: Timestamp,
) -> Row {
    let mut pools: Vec<String> = uses
        .rows
        .iter()
        .filter(|one| one.newest && one.stack == row.name)
        .map(|one| one.pool.clone())
        .collect();
    let more = pools.len().saturating_sub(NAMED);
    pools.truncate(NAMED);
    let (summary, fault) = match document::stored::<StackSpec>(&row) {
        Ok(spec) => (Some(summarize_stack(&spec)), String::new()),
        Err(error) => (None, format::cut(&error.public().1, 300)),
    };
    let image = member(&row.spec, "image");
    let version = summary.as_ref().map(|summary| summary.version.as_str());
    let closure = summary
        .as_ref()
        .and_then(|summary| summary.closure.as_ref());
    let driver = summary.as_ref().and_then(|summary| summary.driver.as_ref());
    let system = systems.get(image).cloned();
    Row {
        version: format::cut(version.unwrap_or_default(), 60),
        os: system.unwrap_or_else(|| "unknown".to_owned()),
        packages: closure.map_or_else(String::new, |closure| closure.packages.to_string()),
        size: closure.map_or_else(String::new, |closure| format::bytes(closure.bytes)),
        driver: driver.map(|driver| driver::render_brief(driver, now)),
        image: format::cut(image, 63),
        pools,
        more,
        published: format::moment(row.updated_at, now),
        fault,
        name: row.name,
    }
}
