//! One stack: the facts, the driver, the packages, the settings, the pools and the findings of the
//! rules.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use muster_api::stacks::StackStatus;
use muster_core::images::ImageManifest;
use muster_core::stacks::StackSpec;
use muster_core::stacks::diff::list_settings;
use muster_core::stacks::rules::{Subject, findings};

use super::driver::{self, Detail};
use super::list::name_system;
use super::packages::{self, PackageQuery, Packages};
use super::uses::{self, Use};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::error::Error;
use crate::http::declared::Declared as _;
use crate::http::extract::{Path, Query};
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};
use crate::ui::frame::{Frame, Live, Section, Visit};
use crate::ui::nodes::{Pair, pair};

/// Most settings shown.
const SETTINGS: usize = 300;
/// Most findings shown.
const FINDINGS: usize = 100;

#[derive(Template, WebTemplate)]
#[template(path = "stack.html")]
pub(in crate::ui) struct Page {
    frame: Frame,
    name: String,
    version: String,
    published: Moment,
    is_locked: bool,
    pairs: Vec<Pair>,
    driver: Option<Detail>,
    /// Day of the facts about driver branches.
    branches: String,
    uses: Vec<Use>,
    /// Number of nodes with the stack assigned.
    nodes: i64,
    /// Whether the reader has more pools than were searched.
    more_pools: bool,
    packages: Packages,
    settings: Vec<Setting>,
    /// Number of settings beyond the shown ones.
    more_settings: usize,
    findings: Vec<Finding>,
    /// Number of findings beyond the shown ones.
    more_findings: usize,
    /// Whether the image of the stack is missing or unreadable, so rules lack facts.
    lacks_image: bool,
}

/// An item of the stack other than a package.
struct Setting {
    item: String,
    value: String,
    effect: &'static str,
}

/// A finding of the compatibility rules.
struct Finding {
    rule: String,
    chip: Chip,
    sentence: String,
    source: String,
}

/// Shows a stack, found by name or id.
pub(in crate::ui) async fn show_stack(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Query(query): Query<PackageQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let missing = || Error::NotFound(format!("stack {key:?}"));
    let row = db::objects::find(&mut conn, "stack", &key)
        .await?
        .ok_or_else(missing)?;
    let spec: StackSpec = document::stored(&row)?;
    let status = StackSpec::status(&app, &mut conn, &row).await?;
    let image = db::objects::find(&mut conn, "image", &spec.image).await?;
    let manifest = image
        .as_ref()
        .and_then(|image| document::stored::<ImageManifest>(image).ok());
    let found = uses::load_uses(&mut conn, &actor).await?;
    let more_pools = found.more;
    let uses: Vec<Use> = found
        .rows
        .into_iter()
        .filter(|one| one.stack == row.name)
        .collect();
    let (settings, more_settings) = render_settings(&spec);
    let (findings, more_findings) = render_findings(&spec, manifest.as_ref());
    let summary = status.summary.as_ref();
    let driver = summary.and_then(|summary| summary.driver.as_ref());
    Ok(Page {
        version: format::cut(&spec.version, 60),
        published: format::moment(row.updated_at, visit.now),
        is_locked: spec.lock.is_some(),
        pairs: render_pairs(&spec, &status, image.as_ref()),
        driver: driver.map(|driver| driver::render_detail(driver, visit.now)),
        branches: summary.map_or_else(String::new, |summary| summary.branches.clone()),
        nodes: uses.iter().map(|one| one.nodes).sum(),
        uses,
        more_pools,
        packages: packages::render_packages(&row.name, &spec, &query),
        settings,
        more_settings,
        findings,
        more_findings,
        lacks_image: manifest.is_none(),
        // A reload would interrupt a reader of hundreds of packages.
        frame: Frame::new(&visit, &actor, Section::Stacks, row.name.clone())
            .by_hand(
                format!("muster stack show {}", format::shell(&row.name)),
                &format!("/v1/stacks/{}", row.name),
            )
            .live(Live::Never),
        name: row.name,
    })
}

fn render_pairs(spec: &StackSpec, status: &StackStatus, image: Option<&ObjectRow>) -> Vec<Pair> {
    let mut pairs = vec![
        pair("Image", spec.image.as_str()),
        pair(
            "Operating system",
            image.map_or_else(
                || "unknown: the image does not exist".to_owned(),
                name_system,
            ),
        ),
        pair("Made for", describe_selector(spec)),
    ];
    let closure = status
        .summary
        .as_ref()
        .and_then(|summary| summary.closure.as_ref());
    match closure {
        Some(closure) => pairs.extend([
            pair("Lock", closure.lock.to_string()),
            pair("Architecture", closure.arch.as_str()),
            pair("Packages", closure.packages.to_string()),
            pair("Size of packages", format::bytes(closure.bytes)),
            pair("Effect of a change", closure.describe_effect()),
        ]),
        None => pairs.push(pair(
            "Lock",
            "none: size and effect are unknown, and no pool can use the stack",
        )),
    }
    pairs.push(pair(
        "Bundle",
        match status.bundle_present {
            true => "uploaded",
            false => "not uploaded: nodes cannot install the packages",
        },
    ));
    pairs
}

/// Returns the hardware and the system that the stack is made for.
fn describe_selector(spec: &StackSpec) -> String {
    let Some(selector) = &spec.selector else {
        return "every node".to_owned();
    };
    let has = |part: Option<bool>, name: &str| {
        part.map(|has| match has {
            true => format!("with {name}"),
            false => format!("without {name}"),
        })
    };
    let parts: Vec<String> = [
        selector.os.clone(),
        selector.os_version.clone(),
        selector.arch.clone(),
        selector.gpu.as_ref().map(|gpu| format!("GPUs of {gpu}")),
        has(selector.nvswitch, "NVSwitch"),
        has(selector.nvlink5, "NVLink 5"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match parts.is_empty() {
        true => "every node".to_owned(),
        false => parts.join(", "),
    }
}

/// Returns the shown settings and the number of further ones.
fn render_settings(spec: &StackSpec) -> (Vec<Setting>, usize) {
    let all = list_settings(spec);
    let more = all.len().saturating_sub(SETTINGS);
    let shown = all.into_iter().take(SETTINGS).map(|one| Setting {
        item: format::cut(&one.item, 160),
        value: format::cut(&one.value, 200),
        effect: one.class.as_str(),
    });
    (shown.collect(), more)
}

/// Returns the shown findings about the stack over the image, and the number of further ones.
fn render_findings(spec: &StackSpec, image: Option<&ImageManifest>) -> (Vec<Finding>, usize) {
    let all = findings(Subject {
        stack: spec,
        image,
        facts: None,
    });
    let more = all.len().saturating_sub(FINDINGS);
    let shown = all.into_iter().take(FINDINGS).map(|one| Finding {
        rule: format::cut(&one.rule, 40),
        chip: chips::level(one.level),
        sentence: format::cut(&one.sentence, 600),
        source: format::cut(&one.source, 300),
    });
    (shown.collect(), more)
}
