//! A typed client for the contract. One call is one request, unless the documentation of the call
//! says otherwise.

mod access;
mod approvals; // Approvals by a second person, and waivers
mod blobs; // Blobs by digest
mod claims;
mod disruption; // The disruption budget
mod error;
mod fleet; // Calls about the fleet as a whole
mod nodes; // Actions of nodes, and their parts, facts and history
mod objects;
mod operations; // Operations and events
mod pairs; // Pairs of a pool's nodes
mod revisions; // Revisions of a pool
mod rollouts; // Rollouts
mod webhooks;

use std::time::Duration;

use http::Method;
use muster_core::values::Secret;
use reqwest::{Certificate, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

pub use self::error::ClientError;
pub use self::objects::Precondition;

/// Longer than the longest long poll (55 s).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed before the server closes them after 60 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Maximum size of a response body, in bytes.
const BODY_LIMIT: usize = 64 << 20;

/// A connection to one server as one caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: reqwest::Url,
    token: Option<Secret>,
}

impl Client {
    /// Returns a client for the server at `base_url` (`http://host:port`). Redirects are not
    /// followed.
    ///
    /// # Errors
    /// [`ClientError::Usage`] when the address is not an http(s) URL.
    pub fn new(base_url: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        Self::build(base_url, token, Vec::new())
    }

    /// Returns a client that trusts the certificate authorities in `pem`, besides those of this
    /// machine.
    ///
    /// # Errors
    /// [`ClientError::Usage`] when the text has no readable certificate, or the address is not an
    /// http(s) URL.
    pub fn trusting(
        base_url: &str,
        token: Option<Secret>,
        pem: &[u8],
    ) -> Result<Self, ClientError> {
        let usage = |why: String| ClientError::Usage(format!("certificates of the server: {why}"));
        let authorities =
            Certificate::from_pem_bundle(pem).map_err(|error| usage(error.to_string()))?;
        if authorities.is_empty() {
            return Err(usage("write at least one certificate in PEM".into()));
        }
        Self::build(base_url, token, authorities)
    }

    fn build(
        base_url: &str,
        token: Option<Secret>,
        authorities: Vec<Certificate>,
    ) -> Result<Self, ClientError> {
        let usage = |why: String| ClientError::Usage(format!("server address {base_url:?}: {why}"));
        let base = reqwest::Url::parse(base_url).map_err(|error| usage(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(usage("not an http or https address".into()));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_certs_merge(authorities)
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| usage(error.to_string()))?;
        Ok(Self { http, base, token })
    }

    /// Builds a request. Path segments are escaped here, so a name given by a user cannot change
    /// the path.
    fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(segments);
        }
        let posts = method == Method::POST;
        let mut request = self
            .http
            .request(method, url)
            .header("x-request-id", Uuid::now_v7().to_string());
        if posts {
            request = request.header("idempotency-key", Uuid::now_v7().to_string());
        }
        match &self.token {
            Some(token) => request.bearer_auth(token.reveal()),
            None => request,
        }
    }

    /// Returns the version of the server, from the server's OpenAPI document.
    ///
    /// # Errors
    /// When the server gives no answer, or an answer of another form.
    pub async fn server_version(&self) -> Result<String, ClientError> {
        #[derive(serde::Deserialize)]
        struct Document {
            info: Info,
        }
        #[derive(serde::Deserialize)]
        struct Info {
            version: String,
        }
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("openapi.json");
        }
        let document: Document = self.fetch(self.http.get(url)).await?;
        Ok(document.info.version)
    }

    /// Sends the request and parses the response as `T`.
    async fn fetch<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let body = read_body(check_status(request.send().await?).await?).await?;
        serde_json::from_slice(&body).map_err(ClientError::Unreadable)
    }

    /// Sends the request and returns the raw bytes of the response.
    async fn fetch_bytes(&self, request: RequestBuilder) -> Result<Vec<u8>, ClientError> {
        read_body(check_status(request.send().await?).await?).await
    }

    /// Sends a request whose response has no body.
    async fn perform(&self, request: RequestBuilder) -> Result<(), ClientError> {
        check_status(request.send().await?).await?;
        Ok(())
    }

    /// `GET` of any path below `/v1`, for callers with only the name of a kind.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get_value(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Value, ClientError> {
        self.fetch(self.request(Method::GET, segments).query(query))
            .await
    }

    /// `PUT` of any path below `/v1`, for callers with only the name of a kind.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put_value(
        &self,
        segments: &[&str],
        body: &Value,
        precondition: Precondition,
    ) -> Result<Value, ClientError> {
        self.put_value_with(segments, &[], body, precondition).await
    }

    /// [`Client::put_value`] with parameters, such as `dry_run`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put_value_with(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
        body: &Value,
        precondition: Precondition,
    ) -> Result<Value, ClientError> {
        self.fetch(
            precondition
                .apply(self.request(Method::PUT, segments))
                .query(query)
                .json(body),
        )
        .await
    }

    /// A JSON merge patch (RFC 7396) of any path below `/v1`, for callers with only the name of a
    /// kind.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn patch_value(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
        patch: &Value,
        precondition: Precondition,
    ) -> Result<Value, ClientError> {
        let request = precondition
            .apply(self.request(Method::PATCH, segments))
            .query(query)
            .json(patch);
        self.fetch(request.header("content-type", "application/merge-patch+json"))
            .await
    }

    /// `POST` to any path below `/v1`, for callers with only the name of a kind.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post_value(&self, segments: &[&str], body: &Value) -> Result<Value, ClientError> {
        self.fetch(self.request(Method::POST, segments).json(body))
            .await
    }

    /// `DELETE` of any path below `/v1`. Returns `None` for a response without a body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_value(
        &self,
        segments: &[&str],
        generation: i64,
    ) -> Result<Option<Value>, ClientError> {
        self.delete_value_with(segments, &[], generation).await
    }

    /// [`Client::delete_value`] with parameters, such as `dry_run`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_value_with(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
        generation: i64,
    ) -> Result<Option<Value>, ClientError> {
        let request =
            Precondition::Generation(generation).apply(self.request(Method::DELETE, segments));
        let request = request.query(query);
        let body = read_body(check_status(request.send().await?).await?).await?;
        match body.is_empty() {
            true => Ok(None),
            false => serde_json::from_slice(&body)
                .map(Some)
                .map_err(ClientError::Unreadable),
        }
    }
}

/// Returns a successful response, or the problem described in an error response.
async fn check_status(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = read_body(response).await?;
    match serde_json::from_slice(&body) {
        Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
        Err(_) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned();
            Err(ClientError::Unexpected {
                status: status.as_u16(),
                body: text,
            })
        }
    }
}

/// Reads a response body up to [`BODY_LIMIT`] bytes.
async fn read_body(mut response: Response) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > BODY_LIMIT {
            return Err(ClientError::Unexpected {
                status: response.status().as_u16(),
                body: "the answer is larger than 64 MiB".into(),
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
