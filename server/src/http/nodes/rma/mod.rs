//! What a maker wants to see before a part goes back: one download of what a node is, what was measured on it, what was tried, and what it said. Bounded,
//! without secrets, and without how to reach it.

mod bmc; // What its BMC said
mod tar; // The archive

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use jiff::Timestamp;
use muster_api::problem::Problem;
use muster_core::ids::NodeId;
use muster_core::redact::redact;
use muster_core::values::Digest;
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;

use self::tar::Archive;
use super::{history, parts, recoveries, view};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::Path;

/// Bytes of the archive before it is compressed; what would be over it is left out, and the manifest says so.
const MOST: usize = 64 << 20;
/// Bytes of one file: its end is kept.
const FILE_MAX: usize = 8 << 20;
/// Runs of gates, with their evidence.
const RUNS: i64 = 20;
/// Chunks of the console: all that is kept of it.
const CONSOLE: i64 = 1000;
const FAST: i32 = 3;

/// Everything about a node in one archive (tar, zstd): identity, parts by serial, facts, what its BMC said of firmware, BIOS, events and sensors, gate runs
/// with evidence, recoveries, timeline, console, and a manifest with digests. What looks like a secret is removed.
#[utoipa::path(get, path = "/v1/nodes/{node}/rma", tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The archive", body = String, content_type = "application/zstd"),
    (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::http) async fn get_node_rma(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Response, Error> {
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    let (name, files) = files(&mut conn, &node, now).await?;
    drop(conn);
    // What machines printed is read through whole: nobody else waits for that.
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

/// A file by its name in the archive, as it was found.
type File = (String, String);

fn json(name: &str, document: &impl Serialize) -> Result<File, Error> {
    Ok((
        name.to_owned(),
        serde_json::to_string_pretty(document).map_err(Error::internal)?,
    ))
}

/// The archive, without secrets, and with a manifest: `sha256:…  name`, or why a file is not there.
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

async fn files(
    conn: &mut PgConnection,
    key: &str,
    now: Timestamp,
) -> Result<(String, Vec<File>), Error> {
    let node = view::load_one(conn, key, now).await?;
    let (id, name) = (NodeId(node.id), node.name.to_string());
    let machine = db::pages::nodes::find_machine(conn, id).await?;
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known".into());
    let identity = json!({
        "node": name, "made_at": now, "made_by": concat!("muster ", env!("CARGO_PKG_VERSION")),
        "serial": known(machine.as_ref().and_then(|machine| machine.serial.clone())),
        "smbios_uuid": machine.as_ref().and_then(|machine| machine.smbios_uuid),
        "hardware_profile": node.spec.get("profile"), "rack": node.spec.get("rack"), "rack_unit": node.spec.get("rack_unit"),
        "state": node.status.state, "since": node.status.entered_at, "reason": node.status.reason,
    });
    let mut files = vec![json("node.json", &identity)?];
    let components = db::components::list(conn, id).await?;
    files.push(json(
        "components.json",
        &components
            .into_iter()
            .map(parts::component)
            .collect::<Vec<_>>(),
    )?);
    if let Some(seen) = db::facts::latest(conn, id).await? {
        let document =
            json!({ "seen_at": seen.observed_at, "source": seen.source, "facts": seen.facts });
        files.push(json("facts.json", &document)?);
    }
    files.extend(bmc::files(conn, id).await?);
    let tried = db::recoveries::list(conn, id, recoveries::NEWEST).await?;
    files.push(json(
        "recoveries.json",
        &tried
            .into_iter()
            .map(|row| recoveries::object(id, row))
            .collect::<Vec<_>>(),
    )?);
    let timeline = history::timeline(conn, id).await?;
    let line = |item: &muster_api::nodes::TimelineEntry| {
        format!(
            "{}  {}  {}\n",
            item.at.strftime("%F %T UTC"),
            item.kind,
            item.summary.replace('\n', " ")
        )
    };
    files.push((
        "timeline.txt".to_owned(),
        timeline.items.iter().map(line).collect::<String>(),
    ));
    let console = db::consoles::tail(conn, id, None, CONSOLE).await?;
    files.push((
        "console.txt".to_owned(),
        console
            .iter()
            .map(|chunk| chunk.text.as_str())
            .collect::<String>(),
    ));
    for (at, run) in db::gates::list(conn, id, RUNS)
        .await?
        .into_iter()
        .enumerate()
    {
        let results = db::gates::results(conn, run.id).await?;
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
    Ok((name, files))
}
