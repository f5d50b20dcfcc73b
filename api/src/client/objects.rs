//! The calls common to all kinds: `client.get::<RackSpec>("r1")`.

use http::Method;
use reqwest::RequestBuilder;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Client, ClientError};
use crate::kind::Kind;
use crate::object::{Draft, Object, Page};

/// The largest page size accepted by the server.
const PAGE: &str = "1000";

/// The condition for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Creates or replaces, without a check.
    None,
    /// Creates only. The server rejects the write with 412 when the name is taken.
    Absent,
    /// Replaces exactly this generation. The server rejects the write with 412 after a concurrent
    /// change.
    Generation(i64),
}

impl Precondition {
    pub(super) fn apply(self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::None => request,
            Self::Absent => request.header("if-none-match", "*"),
            Self::Generation(generation) => request.header("if-match", format!("\"{generation}\"")),
        }
    }
}

impl Client {
    /// Returns one object by name or id.
    ///
    /// # Errors
    /// 404 for an unknown object; see [`ClientError`].
    pub async fn get<K: Kind>(&self, name: &str) -> Result<Object<K, K::Status>, ClientError> {
        self.fetch(self.request(Method::GET, &[K::COLLECTION, name]))
            .await
    }

    /// Returns one object by name or id, with the spec as raw JSON. Useful because an older version
    /// may have stored an invalid spec.
    ///
    /// # Errors
    /// 404 for an unknown object; see [`ClientError`].
    pub async fn get_with_any_spec<K: Kind>(
        &self,
        name: &str,
    ) -> Result<Object<Value, K::Status>, ClientError> {
        self.fetch(self.request(Method::GET, &[K::COLLECTION, name]))
            .await
    }

    /// Returns one page: `limit`, `page_token`, `filter`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list<K: Kind>(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Page<Object<K, K::Status>>, ClientError> {
        self.fetch(self.request(Method::GET, &[K::COLLECTION]).query(query))
            .await
    }

    /// Returns a complete list for a path, page by page: one request per 1000 items.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn whole<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Page<T>, ClientError> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let page = self
                .request(Method::GET, segments)
                .query(&[("limit", PAGE)])
                .query(query);
            let page: Page<T> = self
                .fetch(page.query(&[("page_token", token.as_deref())]))
                .await?;
            items.extend(page.items);
            match page.next_page_token {
                Some(next) => token = Some(next),
                None => {
                    return Ok(Page {
                        items,
                        next_page_token: None,
                    });
                }
            }
        }
    }

    /// Returns all objects matching the filter, page by page: one request per 1000 objects.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_all<K: Kind>(
        &self,
        filter: Option<&str>,
    ) -> Result<Vec<Object<K, K::Status>>, ClientError> {
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE)];
            query.extend(filter.map(|filter| ("filter", filter)));
            query.extend(token.as_deref().map(|token| ("page_token", token)));
            let page = self.list::<K>(&query).await?;
            all.extend(page.items);
            match page.next_page_token {
                Some(next) => token = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Creates or replaces an object.
    ///
    /// # Errors
    /// 400 and 422 with pointers, 409 for a conflict, 412 for a failed precondition; see
    /// [`ClientError`].
    pub async fn put<K: Kind>(
        &self,
        name: &str,
        draft: &Draft<K>,
        precondition: Precondition,
    ) -> Result<Object<K, K::Status>, ClientError> {
        self.fetch(
            precondition
                .apply(self.request(Method::PUT, &[K::COLLECTION, name]))
                .json(draft),
        )
        .await
    }

    /// Applies a JSON merge patch (RFC 7396) to `{labels, annotations, spec}`.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn patch<K: Kind>(
        &self,
        name: &str,
        patch: &Value,
        precondition: Precondition,
    ) -> Result<Object<K, K::Status>, ClientError> {
        let request = precondition
            .apply(self.request(Method::PATCH, &[K::COLLECTION, name]))
            .json(patch);
        self.fetch(request.header("content-type", "application/merge-patch+json"))
            .await
    }

    /// Deletes exactly this generation. Claims are released by [`Client::delete_claim`].
    ///
    /// # Errors
    /// 409 `in_use` while another object refers to this object, 412 after a concurrent change; see
    /// [`ClientError`].
    pub async fn delete<K: Kind>(&self, name: &str, generation: i64) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &[K::COLLECTION, name]);
        self.perform(Precondition::Generation(generation).apply(request))
            .await
    }
}
