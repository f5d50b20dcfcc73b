//! Outgoing calls to addresses written by people. Names are resolved here, every resolved address
//! is checked against the policy, and only checked addresses are connected to. Redirects and
//! proxies are disabled. A call ends by its deadline, and the body of an answer has a limit.

pub mod later; // The `Retry-After` header
pub mod policy; // Addresses allowed for calls

use std::collections::HashMap;
use std::error::Error as StdError;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use http::HeaderMap;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Url};

use self::later::Later;
use self::policy::{Policy, Refused, Scheme, literal};

/// Time limit of one call, from name resolution to the end of the answer.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Number of bytes read from an answer so that the connection can be reused. The bytes are
/// discarded.
const ANSWER: usize = 16 << 10;
/// The longest text of a failure, in characters.
const FAILURE: usize = 200;

/// The source of name resolution.
#[derive(Clone, Debug)]
pub enum Names {
    /// The resolver of this machine.
    System,
    /// Fixed names, for tests.
    Fixed(HashMap<String, Vec<IpAddr>>),
}

/// The outgoing calls of a replica.
#[derive(Debug)]
pub struct Outbound {
    policy: Policy,
    names: Names,
    deadline: Duration,
    /// Certificate authorities trusted besides those of this machine.
    authorities: Vec<Certificate>,
    /// Built on the first call, because most servers make no outgoing calls.
    https: OnceLock<reqwest::Client>,
    http: OnceLock<reqwest::Client>,
}

impl Outbound {
    /// Returns a caller with a policy and a deadline.
    pub fn new(policy: Policy, names: Names, deadline: Duration) -> Self {
        Self {
            policy,
            names,
            deadline,
            authorities: Vec::new(),
            https: OnceLock::new(),
            http: OnceLock::new(),
        }
    }

    /// Adds trusted certificate authorities in PEM format, besides those of this machine.
    ///
    /// # Errors
    /// When the text contains no certificate, or an unreadable one.
    pub fn trusting(self, pem: &[u8]) -> anyhow::Result<Self> {
        let authorities = Certificate::from_pem_bundle(pem).context("certificates in PEM")?;
        ensure!(!authorities.is_empty(), "it holds no certificate in PEM");
        Ok(Self {
            authorities,
            ..self
        })
    }

    /// Checks a URL before a call: the scheme, and the address if the host is an address.
    ///
    /// # Errors
    /// The reason why the URL will never be called.
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let scheme = scheme(url)?;
        if scheme == Scheme::Http && self.policy.allowed.is_empty() {
            return Err(
                "http is spoken only into networks that --webhook-allow names; there are none."
                    .into(),
            );
        }
        match url.host_str().and_then(literal) {
            Some(address) => self
                .policy
                .check(address, scheme)
                .map_err(|refused| refused.to_string()),
            None => Ok(()),
        }
    }

    /// Sends a POST request and returns the status of the answer. At most 16 KiB of the answer are
    /// read, and all of it is discarded.
    ///
    /// # Errors
    /// A sentence with the reason for a missing answer. The URL and text from the other side are
    /// left out.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answered, String> {
        let (answered, _) = self.call(url, headers, body, ANSWER).await?;
        Ok(answered)
    }

    /// Sends a POST request and returns the status and the body of the answer.
    ///
    /// # Errors
    /// As [`Self::post`], and for a body longer than `longest` bytes.
    pub async fn read(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
        longest: usize,
    ) -> Result<(u16, Vec<u8>), String> {
        let (answered, body) = self.call(url, headers, body, longest).await?;
        if body.len() > longest {
            return Err(format!("the answer is longer than {longest} bytes"));
        }
        Ok((answered.status, body))
    }

    /// Sends a POST request, and reads the answer until the body is longer than `longest` bytes.
    async fn call(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
        longest: usize,
    ) -> Result<(Answered, Vec<u8>), String> {
        self.check(url)?;
        let client = self.client(scheme(url)?)?;
        let call = async {
            let mut answer = client
                .post(url.clone())
                .headers(headers)
                .body(body)
                .send()
                .await?;
            let answered = Answered {
                status: answer.status().as_u16(),
                later: Later::of(answer.headers()),
            };
            let mut read = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                read.extend_from_slice(&chunk);
                if read.len() > longest {
                    break;
                }
            }
            Ok::<_, reqwest::Error>((answered, read))
        };
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answered) => answered.map_err(|error| told(&error)),
            Err(_) => Err(format!(
                "no whole answer within {} ms",
                self.deadline.as_millis()
            )),
        }
    }

    fn client(&self, scheme: Scheme) -> Result<reqwest::Client, String> {
        let held = match scheme {
            Scheme::Https => &self.https,
            Scheme::Http => &self.http,
        };
        if let Some(client) = held.get() {
            return Ok(client.clone());
        }
        let resolver = Resolver {
            policy: self.policy.clone(),
            names: self.names.clone(),
            scheme,
        };
        let client = reqwest::Client::builder()
            .https_only(scheme == Scheme::Https)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(1)
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(resolver))
            .tls_certs_merge(self.authorities.iter().cloned())
            .build()
            .map_err(|error| told(&error))?;
        Ok(held.get_or_init(|| client).clone())
    }
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub status: u16,
    /// The time of the next call requested by the receiver, if any.
    pub later: Option<Later>,
}

fn scheme(url: &Url) -> Result<Scheme, String> {
    match url.scheme() {
        "https" => Ok(Scheme::Https),
        "http" => Ok(Scheme::Http),
        other => Err(format!("{other} is neither https nor http")),
    }
}

/// A resolver for connections that returns only addresses allowed by the policy.
struct Resolver {
    policy: Policy,
    names: Names,
    scheme: Scheme,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, names, scheme) = (self.policy.clone(), self.names.clone(), self.scheme);
        Box::pin(async move {
            let found: Vec<IpAddr> = match names {
                Names::Fixed(names) => names.get(name.as_str()).cloned().unwrap_or_default(),
                Names::System => tokio::net::lookup_host((name.as_str(), 0))
                    .await?
                    .map(|address| address.ip())
                    .collect(),
            };
            // A single forbidden address fails the whole name, because the HTTP client chooses
            // which address to connect to.
            for address in &found {
                policy.check(*address, scheme)?;
            }
            if found.is_empty() {
                return Err("the name has no address".into());
            }
            // The client uses the port of the URL.
            let addresses: Addrs =
                Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Describes a failed call by the innermost cause, on one line.
fn told(error: &reqwest::Error) -> String {
    let mut cause: &dyn StdError = error;
    while let Some(inner) = cause.source() {
        cause = inner;
        if cause.is::<Refused>() {
            break;
        }
    }
    let what = match (error.is_timeout(), error.is_connect()) {
        (true, _) => "timed out",
        (false, true) => "no connection",
        (false, false) => "no answer",
    };
    // Messages of reqwest contain the URL, which may be secret to readers of the failure. Messages of
    // TLS contain names in the certificate, which are text of the other side.
    let why = match find_tls(cause) {
        Some(error) => format!(": {}", describe_tls(error)),
        None if cause.is::<reqwest::Error>() => String::new(),
        None => format!(": {cause}"),
    };
    let text: String = format!("{what}{why}")
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    text.chars().take(FAILURE).collect()
}

/// Returns the TLS error, alone or within I/O errors.
fn find_tls<'a>(mut cause: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    while let Some(inner) = cause
        .downcast_ref::<std::io::Error>()
        .and_then(|error| error.get_ref())
    {
        cause = inner;
    }
    cause.downcast_ref()
}

fn describe_tls(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Wrong;
    match error {
        rustls::Error::InvalidCertificate(Wrong::UnknownIssuer) => {
            "the issuer of the certificate is unknown"
        }
        rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "the certificate has expired"
        }
        rustls::Error::InvalidCertificate(
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
        ) => "the certificate is for another name",
        rustls::Error::InvalidCertificate(_) => "the certificate is not valid",
        _ => "the TLS handshake failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(allowed: &[&str], names: &[(&str, &[&str])]) -> Outbound {
        let address = |text: &&str| text.parse().unwrap();
        let names = names
            .iter()
            .map(|(name, list)| ((*name).to_owned(), list.iter().map(address).collect()))
            .collect();
        let policy = Policy {
            allowed: allowed
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
        };
        Outbound::new(policy, Names::Fixed(names), Duration::from_secs(5))
    }

    async fn post(outbound: &Outbound, url: &str) -> Result<u16, String> {
        let answered = outbound
            .post(&Url::parse(url).unwrap(), HeaderMap::new(), b"{}".to_vec())
            .await;
        answered.map(|answered| answered.status)
    }

    #[tokio::test]
    async fn a_name_is_called_only_when_every_address_of_it_may_be() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let names: [(&str, &[&str]); 3] = [
            ("here.test", &["127.0.0.1"]),
            ("both.test", &["127.0.0.1", "169.254.169.254"]),
            ("metadata.test", &["169.254.169.254"]),
        ];
        let outbound = outbound(&["127.0.0.1/32"], &names);
        for name in ["both.test", "metadata.test"] {
            let refused = post(&outbound, &format!("http://{name}:{port}/"))
                .await
                .unwrap_err();
            assert!(
                refused.contains("169.254.169.254 is not called"),
                "{refused}"
            );
        }
        let none = post(&outbound, &format!("http://unknown.test:{port}/"))
            .await
            .unwrap_err();
        assert!(none.contains("no address"), "{none}");
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = tokio::io::AsyncReadExt::read(&mut stream, &mut request)
                .await
                .unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 204 No Content\r\n\r\n")
                .await
                .unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        };
        let url = format!("http://here.test:{port}/a");
        let (status, request) = tokio::join!(post(&outbound, &url), answer);
        assert_eq!(status, Ok(204));
        assert!(request.starts_with("POST /a HTTP/1.1\r\n"), "{request}");
    }

    #[tokio::test]
    async fn what_is_refused_is_told_before_anything_is_sent() {
        let closed = outbound(&[], &[]);
        for url in [
            "https://127.0.0.1/",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.1]/",
            "http://1.1.1.1/",
        ] {
            assert!(closed.check(&Url::parse(url).unwrap()).is_err(), "{url}");
            assert!(post(&closed, url).await.is_err(), "{url}");
        }
        assert!(
            closed
                .check(&Url::parse("https://example.org/x").unwrap())
                .is_ok()
        );
        assert!(
            closed
                .check(&Url::parse("ftp://example.org/x").unwrap())
                .is_err()
        );
        let open = outbound(&["10.0.0.0/8"], &[]);
        assert!(open.check(&Url::parse("http://10.1.2.3/").unwrap()).is_ok());
        assert!(
            open.check(&Url::parse("http://192.168.0.1/").unwrap())
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_failure_names_its_cause_and_never_the_address_that_was_called() {
        let outbound = outbound(&["127.0.0.1/32"], &[]);
        // After the drop no listener accepts connections on the port.
        let port = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let refused = post(
            &outbound,
            &format!("http://127.0.0.1:{port}/a-token-in-the-path"),
        )
        .await
        .unwrap_err();
        assert!(
            refused.starts_with("no connection: ") && !refused.contains("token"),
            "{refused}"
        );
    }
}
