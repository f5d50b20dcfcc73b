//! Accepts the single report of the live image: its host key and the nonce of the boot.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use muster_core::wire::calls::Seen;
use muster_core::wire::node::LiveReport;

use super::{Door, Peer};
use crate::boot::arm::ReportRefused;
use crate::boot::lookout::Identity;

/// Maximum length of a host key line. An RSA-4096 public key has less than 800 characters.
const MAX_HOST_KEY: usize = 1024;

/// `POST /boot/v1/report`: accepts a single report per nonce with status 204.
pub(super) async fn take_report(
    State(door): State<Arc<Door>>,
    peer: Peer,
    body: Bytes,
) -> Response {
    match accept(&door, peer.0, &body) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err((status, why)) => {
            tracing::warn!(from = %peer.0, why, "report of a live image rejected");
            (status, why).into_response()
        }
    }
}

fn accept(door: &Door, from: Ipv4Addr, body: &[u8]) -> Result<(), (StatusCode, &'static str)> {
    let report: LiveReport = serde_json::from_slice(body)
        .map_err(|_| (StatusCode::BAD_REQUEST, "not a report of protocol 1\n"))?;
    if report.protocol != 1 || !is_public_key(&report.host_key) {
        return Err((
            StatusCode::BAD_REQUEST,
            "not a report of protocol 1 with an OpenSSH public key\n",
        ));
    }
    let shared = &door.shared;
    let address = shared
        .armed
        .address_of_nonce(&report.nonce)
        .ok_or((StatusCode::NOT_FOUND, "no boot with this nonce is armed\n"))?;
    if !shared.may_act_for(address, from) {
        return Err((
            StatusCode::FORBIDDEN,
            "this boot's machine has another address\n",
        ));
    }
    let mac = report.mac;
    shared
        .armed
        .take_report(report, from)
        .map_err(|refused| match refused {
            ReportRefused::UnknownNonce => {
                (StatusCode::NOT_FOUND, "no boot with this nonce is armed\n")
            }
            ReportRefused::Second => (
                StatusCode::CONFLICT,
                "this boot was reported before; it has failed now\n",
            ),
            ReportRefused::WrongMachine => (
                StatusCode::FORBIDDEN,
                "this MAC is not of the armed node; the boot has failed now\n",
            ),
        })?;
    shared.lookout.saw(
        mac,
        Seen::Report,
        Identity::default(),
        format!("host key reported by {from}"),
    );
    Ok(())
}

/// Returns whether the line is a key type and base64 only. The line is used in comparisons and
/// logs.
fn is_public_key(line: &str) -> bool {
    let word = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=-@.".contains(&byte))
    };
    let parts: Vec<&str> = line.split(' ').collect();
    line.len() <= MAX_HOST_KEY
        && parts.len() == 2
        && parts.iter().all(|part| !part.is_empty() && word(part))
}
