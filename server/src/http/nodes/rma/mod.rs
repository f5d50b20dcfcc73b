//! The archive for the return of a part to its maker: identity of the node, measurements,
//! recoveries, timeline and console. The archive is bounded, and holds no secrets and no addresses
//! for access.

mod bmc; // Firmware, event log and sensors of the BMC
mod tar; // The archive format

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use jiff::Timestamp;
use muster_api::nodes::TimelineEntry;
use muster_api::problem::Problem;
use muster_core::ids::NodeId;
use muster_core::redact::redact;
use muster_core::values::Digest;
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;

use self::tar::Archive;
use super::{history, recoveries};
use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, raw};
use crate::db;
use crate::error::Error;
use crate::http::extract::Path;
use crate::intents::nodes::view::NodeObject;
use crate::intents::nodes::{parts, view};

/// The largest archive before compression, in bytes. The manifest lists the left-out files.
const MOST: usize = 64 << 20;
/// The largest file, in bytes. The end of a larger file is kept.
const FILE_MAX: usize = 8 << 20;
/// The number of gate runs, with their evidence.
const RUNS: i64 = 20;
/// The number of console chunks; the database keeps no more.
const CONSOLE: i64 = 1000;
const FAST: i32 = 3;

/// Returns an archive about a node for the return of a part (RMA): tar, compressed with zstd.
///
/// The archive holds identity, parts by serial, facts and BMC data: firmware, BIOS, events and
/// sensors. Gate runs with evidence, recoveries, timeline, and a manifest with digests are included
/// too, and the console for a caller with `node.console`. Texts similar to secrets are removed.
#[utoipa::path(get, path = "/v1/nodes/{node}/rma",
    extensions(("x-muster-access" = json!({ "verb": "node.evidence", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The archive", body = String, content_type = "application/zstd"),
    (status = 404, description = "No such node", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::http) async fn get_node_rma(
    State(app): State<App>,
    actor: Actor,
    Path(node): Path<String>,
) -> Result<Response, Error> {
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    let (name, mut files) = collect_files(&mut conn, &node, now).await?;
    let (kind, key) = ("node", node.as_str());
    if actor
        .may_read_raw(&mut conn, raw::CONSOLE, Named { kind, key }, now)
        .await?
    {
        files.push(console_file(&mut conn, &node).await?);
    }
    drop(conn);
    // Redaction reads all text of the machines: a blocking thread keeps other requests running.
    let packed =
        tokio::task::spawn_blocking(move || zstd::encode_all(pack(&files, now).as_slice(), FAST))
            .await;
    let packed = packed.map_err(Error::internal)?.map_err(Error::internal)?;
    let file = format!(
        "attachment; filename=\"rma-{name}-{}.tar.zst\"",
        now.strftime("%Y%m%dT%H%M%SZ")
    );
    let disposition = HeaderValue::from_str(&file).map_err(Error::internal)?;
    let kind = HeaderValue::from_static("application/zstd");
    Ok((
        [
            (header::CONTENT_TYPE, kind),
            (header::CONTENT_DISPOSITION, disposition),
        ],
        packed,
    )
        .into_response())
}

/// A file of the archive before redaction: its name and its text.
type File = (String, String);

fn json(name: &str, document: &impl Serialize) -> Result<File, Error> {
    Ok((
        name.to_owned(),
        serde_json::to_string_pretty(document).map_err(Error::internal)?,
    ))
}

/// Packs the redacted files with a manifest: `sha256:…  name`, or the reason for a left-out file.
fn pack(files: &[File], now: Timestamp) -> Vec<u8> {
    let (mut archive, mut manifest) = (Archive::new(now), String::new());
    for (name, text) in files {
        let text = redact(text);
        let kept = &text[text.ceil_char_boundary(text.len().saturating_sub(FILE_MAX))..];
        let line = if archive.len() + kept.len() > MOST {
            format!("left out: {name}, {} bytes", text.len())
        } else {
            archive.add(name, kept.as_bytes());
            let cut = if kept.len() < text.len() {
                format!("  (the last {} bytes)", kept.len())
            } else {
                String::new()
            };
            format!("{}  {name}{cut}", Digest::of(kept.as_bytes()))
        };
        manifest.push_str(&line);
        manifest.push('\n');
    }
    archive.add("MANIFEST", manifest.as_bytes());
    archive.finish()
}

/// Collects the files of the archive. Returns the name of the node, and the files.
async fn collect_files(
    conn: &mut PgConnection,
    key: &str,
    now: Timestamp,
) -> Result<(String, Vec<File>), Error> {
    let node = view::load_one(conn, key, now).await?;
    let (id, name) = (NodeId(node.id), node.name.to_string());
    let mut files = vec![identity_file(conn, &node, now).await?];
    files.push(components_file(conn, id).await?);
    files.extend(facts_file(conn, id).await?);
    files.extend(bmc::build_files(conn, id).await?);
    files.push(recoveries_file(conn, id).await?);
    files.push(timeline_file(conn, id).await?);
    files.extend(gate_runs(conn, id).await?);
    Ok((name, files))
}

/// `node.json`: the machine, its place and its state.
async fn identity_file(
    conn: &mut PgConnection,
    node: &NodeObject,
    now: Timestamp,
) -> Result<File, Error> {
    let machine = db::pages::nodes::find_machine(conn, NodeId(node.id)).await?;
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known".into());
    let document = json!({
        "node": node.name, "made_at": now, "made_by": concat!("muster ", env!("CARGO_PKG_VERSION")),
        "serial": known(machine.as_ref().and_then(|machine| machine.serial.clone())),
        "smbios_uuid": machine.as_ref().and_then(|machine| machine.smbios_uuid),
        "hardware_profile": node.spec.get("profile"), "rack": node.spec.get("rack"), "rack_unit": node.spec.get("rack_unit"),
        "state": node.status.state, "since": node.status.entered_at, "reason": node.status.reason,
    });
    json("node.json", &document)
}

/// `components.json`: the parts by serial.
async fn components_file(conn: &mut PgConnection, node: NodeId) -> Result<File, Error> {
    let rows = db::components::list(conn, node).await?;
    let components: Vec<_> = rows.into_iter().map(parts::render_component).collect();
    json("components.json", &components)
}

/// `facts.json`, where an inspection has reported.
async fn facts_file(conn: &mut PgConnection, node: NodeId) -> Result<Option<File>, Error> {
    let Some(seen) = db::facts::latest(conn, node).await? else {
        return Ok(None);
    };
    let document =
        json!({ "seen_at": seen.observed_at, "source": seen.source, "facts": seen.facts });
    json("facts.json", &document).map(Some)
}

/// `recoveries.json`: the newest recoveries with their runbook steps.
async fn recoveries_file(conn: &mut PgConnection, node: NodeId) -> Result<File, Error> {
    let rows = db::recoveries::list(conn, node, recoveries::NEWEST).await?;
    let recoveries: Vec<_> = rows
        .into_iter()
        .map(|row| recoveries::object(node, row))
        .collect();
    json("recoveries.json", &recoveries)
}

/// `timeline.txt`: one line for each entry.
async fn timeline_file(conn: &mut PgConnection, node: NodeId) -> Result<File, Error> {
    let timeline = history::timeline(conn, node).await?;
    let line = |item: &TimelineEntry| {
        format!(
            "{}  {}  {}\n",
            item.at.strftime("%F %T UTC"),
            item.kind,
            item.summary.replace('\n', " ")
        )
    };
    let text = timeline.items.iter().map(line).collect();
    Ok(("timeline.txt".to_owned(), text))
}

/// `console.txt`: the end of the serial console.
async fn console_file(conn: &mut PgConnection, key: &str) -> Result<File, Error> {
    let node = db::nodes::find_id(conn, key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
    let chunks = db::consoles::tail(conn, node, None, CONSOLE).await?;
    let text = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
    Ok(("console.txt".to_owned(), text))
}

/// Two files for each of the newest gate runs: the results, and the kernel log during the run.
async fn gate_runs(conn: &mut PgConnection, node: NodeId) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    let runs = db::gates::list(conn, node, RUNS).await?;
    for (at, run) in runs.into_iter().enumerate() {
        let results = db::gates::list_results(conn, run.id).await?;
        let logs = results
            .iter()
            .map(|result| result.evidence.kernel_log.as_str())
            .filter(|log| !log.is_empty());
        let log = logs.collect::<Vec<_>>().join("\n");
        let folder = format!(
            "gate-runs/{:02}-{}",
            at + 1,
            run.finished_at.strftime("%Y%m%dT%H%M%SZ")
        );
        let document = json!({
            "suite": run.suite, "verdict": run.verdict, "step": run.step, "fingerprint": run.fingerprint,
            "finished_at": run.finished_at, "voided_at": run.voided_at.map(|at| at.to_jiff()), "results": results,
        });
        files.push(json(&format!("{folder}.json"), &document)?);
        files.push((format!("{folder}.kernel.log"), log));
    }
    Ok(files)
}
