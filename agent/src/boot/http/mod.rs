//! The HTTP listener for nodes: boot scripts, blobs, trust, time, reports, repositories. The
//! listener is separate from the operator API and has no accounts and no secrets. Names refer to
//! digests or memory, never to a file path.

#![expect(
    clippy::disallowed_types,
    reason = "nodes read no body of a refusal: the status is enough"
)]

mod blob; // Blobs and their ranges
mod bundle; // Offline repositories of stacks
mod cpio; // Builds the archive with site.json
mod direct; // Sends blobs by sendfile
pub mod listener; // Limits connections
mod report; // The live image's host key
mod script; // The iPXE script

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequestParts, Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri, header};
use muster_core::values::{Digest, Mac};
use muster_core::wire::calls::Seen;
use muster_core::wire::node::{SiteTrust, TimeReply};
use serde::Deserialize;
use tower_http::timeout::TimeoutLayer;

use self::bundle::Bundles;
use self::script::{LiveBoot, Platform};
use super::Shared;
use super::arm::{LiveImage, ScriptTurn};
use super::lookout::Identity;

/// Maximum number of request headers, and time limit for receiving the headers.
const MAX_HEADERS: usize = 64;
const HEAD_TIME: Duration = Duration::from_secs(15);
const MAX_BODY: usize = 16 << 10;
/// Time limit until the answer starts. The connection limits apply to the body.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The state of a listener: the shared state and its own address.
struct Door {
    shared: Arc<Shared>,
    address: Ipv4Addr,
    bundles: Bundles,
}

impl Door {
    fn new(shared: Arc<Shared>, address: Ipv4Addr) -> Arc<Self> {
        Arc::new(Self {
            shared,
            address,
            bundles: Bundles::default(),
        })
    }
}

/// Returns all routes for an address of the agent.
pub fn router(shared: Arc<Shared>, address: Ipv4Addr) -> Router {
    routes(Door::new(shared, address))
}

fn routes(door: Arc<Door>) -> Router {
    let routes = file_routes()
        .route("/ipxe", get(get_script))
        .route("/loader/{name}", get(get_loader))
        .route("/site.cpio", get(get_site))
        .route("/report", post(report::take_report));
    within_limits(routes, door)
}

/// Returns the routes for sources outside of the subnets: a BMC fetches firmware images, and an
/// installed node may have another address. A boot begins inside of a subnet.
fn outside_routes(door: Arc<Door>) -> Router {
    within_limits(file_routes(), door)
}

fn file_routes() -> Router<Arc<Door>> {
    Router::new()
        .route("/blob/sha256/{hex}", get(get_blob))
        .route("/time", get(get_time))
        .route("/bundle/{hex}/{*name}", get(get_bundle_file))
}

fn within_limits(routes: Router<Arc<Door>>, door: Arc<Door>) -> Router {
    Router::new()
        .nest("/boot/v1", routes)
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            ANSWER_TIME,
        ))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(door)
}

/// The source address of a request. The listener supports only IPv4.
struct Peer(Ipv4Addr);

impl<S: Send + Sync> FromRequestParts<S> for Peer {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StatusCode> {
        let peer = ConnectInfo::<SocketAddr>::from_request_parts(parts, state).await;
        match peer.map(|ConnectInfo(peer)| peer.ip().to_canonical()) {
            Ok(IpAddr::V4(address)) => Ok(Self(address)),
            Ok(IpAddr::V6(_)) | Err(_) => Err(StatusCode::BAD_REQUEST),
        }
    }
}

/// The machine data sent by iPXE. Every value can be missing or wrong.
#[derive(Debug, Default, Deserialize)]
struct Asking {
    #[serde(default)]
    mac: String,
    #[serde(default)]
    platform: String,
    uuid: Option<String>,
    serial: Option<String>,
}

/// `GET /boot/v1/ipxe`: returns a script, or 503 while the boot of the machine is leased and not
/// armed yet. The first script of iPXE then asks again. A malformed request receives the script for
/// a boot from the local disk.
async fn get_script(State(door): State<Arc<Door>>, peer: Peer, uri: Uri) -> Response {
    let Query(asking) = Query::<Asking>::try_from_uri(&uri).unwrap_or_default();
    let text = match asking.mac.parse::<Mac>() {
        Ok(mac) => script_for(&door, peer.0, mac, asking),
        Err(_) => Some(script::local(Platform::parse(&asking.platform)).to_owned()),
    };
    let Some(text) = text else {
        let again = [(header::RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, again).into_response();
    };
    (
        [
            (header::CONTENT_TYPE, "text/plain"),
            (header::CACHE_CONTROL, "no-store"),
        ],
        text,
    )
        .into_response()
}

/// The decision about a fetch of the script.
enum Fetch {
    /// The boot of the machine is leased and not armed yet: the machine asks again.
    Pending,
    /// The machine boots from the local disk.
    Local { seen: Seen, why: String },
    /// The machine boots the live image.
    Live { image: LiveImage, nonce: String },
}

/// Returns the script for a machine, or `None` while the boot of the machine is pending.
fn script_for(door: &Door, from: Ipv4Addr, mac: Mac, asking: Asking) -> Option<String> {
    let shared = &door.shared;
    let (text, seen, detail) = match judge_fetch(shared, from, mac) {
        Fetch::Pending => return None,
        Fetch::Local { seen, why } => {
            let local = script::local(Platform::parse(&asking.platform)).to_owned();
            (local, seen, format!("local boot: {why}"))
        }
        Fetch::Live { image, nonce } => {
            let boot = LiveBoot {
                agent: door.address,
                port: shared.ports.http,
                image,
                nonce: &nonce,
                mac,
            };
            let detail = "armed: the live image".to_owned();
            (script::live(&boot), Seen::Script, detail)
        }
    };
    if seen == Seen::FetchedTwice {
        tracing::warn!(%mac, %from, "boot script fetched again: the machine started over, or another machine uses its MAC; check the machine and its switch port");
    }
    let who = Identity {
        uuid: asking.uuid,
        serial: asking.serial,
    };
    shared.lookout.saw(mac, seen, who, detail);
    Some(text)
}

/// Decides about a fetch. The script of an armed boot is taken by the fetch.
fn judge_fetch(shared: &Shared, from: Ipv4Addr, mac: Mac) -> Fetch {
    let local = |seen, why| Fetch::Local { seen, why };
    let unarmed = || local(Seen::Script, "nothing is armed".to_owned());
    match shared.armed_for(mac) {
        None if shared.armed.is_pending(mac) => Fetch::Pending,
        None if shared.runs_live(mac) => local(
            Seen::FetchedTwice,
            format!("asked from {from}, while the machine runs the live image"),
        ),
        None => unarmed(),
        Some(image) if !shared.may_act_for(image.address, from) => local(
            refused_fetch(shared, mac),
            format!(
                "asked from {from}, while the armed machine is to be at {}",
                image.address
            ),
        ),
        Some(_) if shared.armed.is_elsewhere(mac, from) => local(
            refused_fetch(shared, mac),
            format!("asked from {from}, while the armed machine asked DHCP for another address"),
        ),
        Some(_) => match shared.armed.take_script(mac, from) {
            ScriptTurn::Pending => Fetch::Pending,
            ScriptTurn::NotArmed => unarmed(),
            ScriptTurn::Spent => local(
                Seen::FetchedTwice,
                format!("a second fetch, by {from}, fails the armed boot"),
            ),
            ScriptTurn::Armed { image, nonce } => Fetch::Live { image, nonce },
        },
    }
}

/// Returns the kind of a fetch from another address than the address of the armed machine.
fn refused_fetch(shared: &Shared, mac: Mac) -> Seen {
    if shared.armed.is_script_given(mac) {
        Seen::FetchedTwice
    } else {
        Seen::Script
    }
}

/// `GET /boot/v1/loader/{name}`: returns our iPXE, for UEFI HTTP boot.
async fn get_loader(State(door): State<Arc<Door>>, Path(name): Path<String>) -> Response {
    match door.shared.ipxe.get(&name) {
        Some(bytes) => {
            ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// `GET /boot/v1/blob/sha256/{hex}`: returns a blob.
async fn get_blob(
    State(door): State<Arc<Door>>,
    peer: Peer,
    Path(hex): Path<String>,
    headers: HeaderMap,
) -> Response {
    match blob::digest(&hex) {
        Some(digest) => send_blob(&door, peer.0, digest, &headers).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn send_blob(door: &Door, to: Ipv4Addr, digest: Digest, headers: &HeaderMap) -> Response {
    let shared = Arc::clone(&door.shared);
    blob::serve(&door.shared.blobs, digest, headers, move || {
        note_sent(&shared, to, digest)
    })
    .await
}

/// Reports the complete transfer of the kernel or the initrd to the job waiting for the armed
/// machine.
fn note_sent(shared: &Shared, to: Ipv4Addr, digest: Digest) {
    if let Some((mac, image)) = shared.armed.find_by_address(to) {
        let what = [(image.kernel, "kernel"), (image.initrd, "initrd")]
            .into_iter()
            .find(|(part, _)| *part == digest);
        if let Some((_, name)) = what {
            shared.lookout.saw(
                mac,
                Seen::Kernel,
                Identity::default(),
                format!("{name} fetched by {to}"),
            );
        }
    }
}

/// `GET /boot/v1/site.cpio`: returns the keys trusted by the live image. Unavailable until the
/// server has sent the keys. No boot is armed earlier.
async fn get_site(State(door): State<Arc<Door>>) -> Response {
    let Some(trust) = door.shared.trust.borrow().clone() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "the server has not been heard from yet\n",
        )
            .into_response();
    };
    let agent_url = format!("http://{}:{}/boot/v1", door.address, door.shared.ports.http);
    let trust = SiteTrust { agent_url, ..trust };
    match serde_json::to_vec_pretty(&trust) {
        Ok(json) => (
            [(header::CONTENT_TYPE, "application/octet-stream")],
            cpio::with_file("etc/muster/site.json", &json),
        )
            .into_response(),
        Err(error) => {
            tracing::error!(%error, "site.json for the live image could not be encoded; report the error to the maintainers");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// `GET /boot/v1/time`: returns the time of the agent in Unix milliseconds.
async fn get_time(State(door): State<Arc<Door>>) -> Json<TimeReply> {
    Json(TimeReply {
        unix_ms: door.shared.clock.now().as_millisecond(),
    })
}

/// `GET /boot/v1/bundle/{hex}/{name}`: returns a file of a bundle.
async fn get_bundle_file(
    State(door): State<Arc<Door>>,
    peer: Peer,
    Path((hex, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(bundle) = blob::digest(&hex) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // apt requests the files of a flat repository as `./NAME`.
    let name = name.strip_prefix("./").unwrap_or(&name);
    match door.bundles.find(&door.shared.blobs, bundle, name).await {
        Ok(Some(digest)) => send_blob(&door, peer.0, digest, &headers).await,
        Ok(None) => (
            StatusCode::NOT_FOUND,
            "no such bundle, or no such file in it\n",
        )
            .into_response(),
        Err(error) => {
            tracing::error!(%bundle, %error, "bundle description not readable; check the bundle and the disk of the agent");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
