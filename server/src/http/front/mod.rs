//! The front of the public listener: the client behind trusted proxies, and whether the client used
//! TLS. Headers of other peers are removed, so no later part can read the headers.

mod forwarded; // The client's address in the headers of proxies

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};
use ipnet::IpNet;

use crate::auth::sessions::came_by_tls;

/// Headers of proxies. Only a trusted peer may send them.
const PROXIED: [&str; 5] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    PROTO,
    "x-real-ip",
];
const PROTO: &str = "x-forwarded-proto";
/// A browser uses TLS for a year, for this host name only.
const HSTS: &str = "max-age=31536000";

/// The proxies before a replica, and the transport of its clients.
#[derive(Clone, Debug, Default)]
pub struct Front {
    /// Networks of trusted proxies.
    pub proxies: Vec<IpNet>,
    /// Every client uses TLS: with this replica, or with a proxy before it.
    pub secure: bool,
}

impl Front {
    /// Returns whether a peer is a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|proxy| proxy.contains(&address))
    }

    /// Returns the client's address behind a trusted proxy, or `None` for the peer itself.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        let is_proxy = |address| self.trusts(address);
        forwarded::find_client(headers, is_proxy).filter(|client| *client != peer)
    }
}

/// Middleware: sets the address of the client, removes the headers of untrusted peers, and tells
/// browsers to use TLS only.
pub async fn resolve_client(
    State(front): State<Arc<Front>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|ConnectInfo(peer)| peer.ip());
    match peer.filter(|peer| front.trusts(*peer)) {
        Some(peer) => {
            if let Some(client) = front.client(peer, request.headers()) {
                let client = SocketAddr::new(client, 0);
                request.extensions_mut().insert(ConnectInfo(client));
            }
        }
        None => {
            for name in PROXIED {
                request.headers_mut().remove(name);
            }
        }
    }
    if front.secure {
        let https = HeaderValue::from_static("https");
        request.headers_mut().insert(PROTO, https);
    }
    let secure = front.secure || came_by_proxied_tls(request.headers());
    let mut response = next.run(request).await;
    if secure {
        let headers = response.headers_mut();
        headers.insert(
            header::STRICT_TRANSPORT_SECURITY,
            HeaderValue::from_static(HSTS),
        );
    }
    response
}

/// Returns whether a trusted proxy reports TLS. An origin alone is the word of the client.
fn came_by_proxied_tls(headers: &HeaderMap) -> bool {
    PROXIED.iter().any(|name| headers.contains_key(*name)) && came_by_tls(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_trusted_by_its_network() {
        let front = Front {
            proxies: vec!["10.0.0.0/24".parse().unwrap()],
            secure: false,
        };
        for (address, trusted) in [
            ("10.0.0.7", true),
            ("::ffff:10.0.0.7", true),
            ("10.0.1.7", false),
            ("::1", false),
        ] {
            assert_eq!(front.trusts(address.parse().unwrap()), trusted, "{address}");
        }
    }
}
