//! Options of the public listener: TLS, and the proxies before it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::ensure;
use ipnet::IpNet;
use muster_server::http::front::Front;
use muster_server::http::listener::certificate::Certificate;

/// TLS of the public listener, and the proxies before it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PublicArgs {
    /// Certificate of the public listener with its chain, in PEM. With --tls-key, API and console
    /// are served by https. Both files are read again when they change.
    #[arg(
        long,
        env = "MUSTER_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Key of --tls-cert, in PEM without a password.
    #[arg(
        long,
        env = "MUSTER_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    pub tls_key: Option<PathBuf>,
    /// Serve plain http beyond loopback, because a proxy with TLS is before this listener. Every
    /// client then counts as a client with TLS.
    #[arg(long, env = "MUSTER_BEHIND_TLS_PROXY", conflicts_with = "tls_cert")]
    pub behind_tls_proxy: bool,
    /// Network of a trusted proxy, such as 10.20.0.7/32. The client's address is read from
    /// `Forwarded` or `X-Forwarded-For` of such a proxy, and of no other peer. Repeatable.
    #[arg(
        long,
        env = "MUSTER_TRUSTED_PROXY",
        value_delimiter = ',',
        value_name = "NETWORK"
    )]
    pub trusted_proxy: Vec<IpNet>,
}

impl PublicArgs {
    /// Reads the certificate, if the options name one.
    ///
    /// # Errors
    /// When a file cannot be read, or the key belongs to another certificate.
    pub(crate) fn certificate(&self) -> anyhow::Result<Option<Arc<Certificate>>> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        files
            .map(|(chain, key)| Certificate::load(chain, key))
            .transpose()
    }

    /// Refuses unusable options before the start changes the database.
    ///
    /// # Errors
    /// As for the certificate and for the address.
    pub(crate) fn check_early(&self, address: SocketAddr) -> anyhow::Result<()> {
        self.certificate()?;
        // A listener passed by the service manager has another address, checked when it is taken.
        match std::env::var_os("LISTEN_FDS") {
            Some(_) => Ok(()),
            None => self.check(address),
        }
    }

    /// Refuses plain http on an address beyond loopback.
    ///
    /// # Errors
    /// When the address is beyond loopback, without TLS and without a proxy.
    pub(crate) fn check(&self, address: SocketAddr) -> anyhow::Result<()> {
        let secure = self.tls_cert.is_some() || self.behind_tls_proxy;
        ensure!(
            secure || address.ip().to_canonical().is_loopback(),
            "API and console would be served by plain http on {address}, beyond loopback: write \
             --tls-cert FILE --tls-key FILE for https, or --behind-tls-proxy where a proxy with TLS \
             is before the listener"
        );
        Ok(())
    }

    /// The scheme of the listener's own address.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.tls_cert {
            Some(_) => "https",
            None => "http",
        }
    }

    /// The front of the routes.
    pub(crate) fn front(&self) -> Front {
        Front {
            proxies: self.trusted_proxy.clone(),
            secure: self.tls_cert.is_some() || self.behind_tls_proxy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_loopback_unless_a_proxy_has_the_tls() {
        let plain = PublicArgs {
            tls_cert: None,
            tls_key: None,
            behind_tls_proxy: false,
            trusted_proxy: Vec::new(),
        };
        let proxied = PublicArgs {
            behind_tls_proxy: true,
            ..plain.clone()
        };
        let certified = PublicArgs {
            tls_cert: Some("cert.pem".into()),
            ..plain.clone()
        };
        for address in ["127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
            plain.check(address.parse().unwrap()).unwrap();
        }
        for address in ["0.0.0.0:8080", "[::]:8080", "192.0.2.7:8080"] {
            let address = address.parse().unwrap();
            proxied.check(address).unwrap();
            certified.check(address).unwrap();
            let error = plain.check(address).unwrap_err().to_string();
            assert!(
                error.contains("--tls-cert") && error.contains("--behind-tls-proxy"),
                "{error}"
            );
        }
        assert!(!plain.front().secure && proxied.front().secure);
    }
}
