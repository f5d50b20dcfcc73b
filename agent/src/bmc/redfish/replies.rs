//! The meaning of an answer: status, headers and body of a reply (DSP0266 sections 7 and 8). The
//! decision is by status and message id, never by a sentence.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{DATE, ETAG, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use crate::bmc::error::{BmcError, shortened};

/// Maximum wait that a BMC can ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Message that names the seconds of the wait as its argument (DMTF's Base registry).
const TEMPORARILY: &str = "ServiceTemporarilyUnavailable";
/// Message of an iDRAC that still starts, sent with status 400 (quadsproject/badfish issue 129).
const NOT_READY: &str = "SWC0700";
/// Message of the Base registry for any error (error.json of sushy-tools 2.2).
const GENERAL: &str = "GeneralError";

/// An answer as received.
#[derive(Debug)]
pub(super) struct Reply {
    /// Method and path of the request.
    pub(super) what: String,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Vec<u8>,
    /// Path of the task, or of the task monitor, for work in progress.
    pub(super) task: Option<String>,
}

/// A successful answer, or a refused precondition.
#[derive(Debug)]
pub(super) struct Answer {
    /// The parsed body, an object, or `Null` for an empty body.
    pub(super) body: Value,
    pub(super) etag: Option<String>,
    /// The BMC changed nothing because of the precondition (RFC 6585 section 3, RFC 9110 section
    /// 15.5.13). The text quotes the BMC.
    pub(super) refused: Option<String>,
    pub(super) task: Option<String>,
    /// Status 202: the work is still in progress.
    pub(super) under_way: bool,
}

impl Reply {
    /// Returns the target of a redirect.
    pub(super) fn location(&self) -> Option<&str> {
        let to = self.headers.get(LOCATION)?.to_str().ok()?;
        self.status.is_redirection().then_some(to)
    }

    /// Returns whether the BMC does not have the resource (any more).
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.status, StatusCode::NOT_FOUND | StatusCode::GONE)
    }

    /// Returns the request and the message of the BMC.
    pub(super) fn quote(&self) -> String {
        format!("{}: {}", self.what, said(self.status, &self.bytes))
    }

    /// Maps the status to a result.
    pub(super) fn judge(self) -> Result<Answer, BmcError> {
        let said = self.quote();
        match self.status {
            StatusCode::CONFLICT
            | StatusCode::LOCKED
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE => Err(self.busy(said)),
            StatusCode::BAD_REQUEST if self.names(NOT_READY) => Err(self.busy(said)),
            status if status.is_success() => self.read(),
            StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED => Ok(Answer {
                body: Value::Null,
                etag: None,
                refused: Some(said),
                task: None,
                under_way: false,
            }),
            StatusCode::FORBIDDEN => Err(BmcError::Forbidden { what: said }),
            StatusCode::NOT_IMPLEMENTED => Err(BmcError::Unsupported { what: said }),
            status if status.is_client_error() => Err(BmcError::Unsupported { what: said }),
            _ => Err(BmcError::Garbage { what: said }),
        }
    }

    fn busy(&self, said: String) -> BmcError {
        BmcError::Busy {
            said,
            retry_after: self.retry_after().map(|wait| wait.min(LONGEST_WAIT)),
        }
    }

    fn read(self) -> Result<Answer, BmcError> {
        let garbage = |why: &str| BmcError::Garbage {
            what: format!("{} brought {why}", self.what),
        };
        let body = match self.bytes.trim_ascii() {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes)
                .map_err(|error| garbage(&format!("no JSON: {error}")))?,
        };
        if !(body.is_object() || body.is_null()) {
            return Err(garbage("no JSON object"));
        }
        Ok(Answer {
            body,
            etag: text(&self.headers, ETAG).map(str::to_owned),
            refused: None,
            under_way: self.status == StatusCode::ACCEPTED,
            task: self.task,
        })
    }

    /// Returns whether the answer has a message with this name, in any registry.
    fn names(&self, name: &str) -> bool {
        let error: Value = serde_json::from_slice(&self.bytes).unwrap_or_default();
        find_message(&error, name).is_some()
    }

    /// Returns the wait that the BMC asks for: the header in seconds or as a date by the clock of
    /// the BMC, or the argument of the message.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = match text(&self.headers, RETRY_AFTER) {
            Some(after) => after
                .parse()
                .ok()
                .or_else(|| seconds_between(text(&self.headers, DATE)?, after)),
            None => {
                let error: Value = serde_json::from_slice(&self.bytes).unwrap_or_default();
                let message = find_message(&error, TEMPORARILY)?;
                message["MessageArgs"][0].as_str()?.trim().parse().ok()
            }
        };
        seconds.map(Duration::from_secs)
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Returns the seconds between two dates of headers, zero when the second date is earlier.
fn seconds_between(now: &str, then: &str) -> Option<u64> {
    let read = |date: &str| DateTimeParser::new().parse_timestamp(date).ok();
    let (now, then): (Timestamp, Timestamp) = (read(now)?, read(then)?);
    Some(u64::try_from(then.duration_since(now).as_secs()).unwrap_or_default())
}

fn find_message<'a>(error: &'a Value, name: &str) -> Option<&'a Value> {
    let extended = &error["error"]["@Message.ExtendedInfo"];
    let messages = extended
        .as_array()
        .map_or(std::slice::from_ref(extended), Vec::as_slice);
    messages.iter().find(|message| {
        message["MessageId"]
            .as_str()
            .and_then(|id| id.rsplit('.').next())
            == Some(name)
    })
}

/// Returns the status and, if present, the message of a Redfish error (DSP0266 section 8.6). An iLO
/// sends the id of a message without the text. The id [`GENERAL`] tells less than the text beside.
pub(super) fn said(status: StatusCode, bytes: &[u8]) -> String {
    let error: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let extended = &error["error"]["@Message.ExtendedInfo"];
    let id = extended[0]["MessageId"].as_str();
    let message = extended[0]["Message"]
        .as_str()
        .or(extended["Message"].as_str())
        .or(id.filter(|id| id.rsplit('.').next() != Some(GENERAL)))
        .or(error["error"]["message"].as_str())
        .or(id);
    match message {
        Some(message) => format!("HTTP {}: {}", status.as_u16(), shortened(message)),
        None => format!("HTTP {}", status.as_u16()),
    }
}

/// Returns the target of a redirect without its query, safe for display.
pub(super) fn name_target(location: &str) -> String {
    let named = Url::parse(location).map_or_else(
        |_| {
            location
                .split(['?', '#'])
                .next()
                .unwrap_or_default()
                .to_owned()
        },
        |url| url.origin().ascii_serialization() + url.path(),
    );
    shortened(&named)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &str)], body: &Value) -> Reply {
        let headers = headers.iter().map(|(name, value)| {
            let value: HeaderValue = value.parse().unwrap();
            (HeaderName::from_static(name), value)
        });
        Reply {
            what: "GET /redfish/v1/Systems/1".into(),
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            bytes: body.to_string().into_bytes(),
            task: None,
        }
    }

    fn wait(headers: &[(&'static str, &str)], body: &Value) -> Option<u64> {
        match reply(503, headers, body).judge() {
            Err(BmcError::Busy { retry_after, .. }) => retry_after.map(|wait| wait.as_secs()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_wait_is_read_from_seconds_a_date_or_the_message() {
        let none = json!({});
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(wait(&[("retry-after", "30")], &none), Some(30));
        assert_eq!(wait(&[("retry-after", "86400")], &none), Some(600));
        let later = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(wait(&[date, later], &none), Some(30));
        let over = ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT");
        assert_eq!(wait(&[date, over], &none), Some(0));
        assert_eq!(wait(&[later], &none), None, "no clock of the BMC is known");
        assert_eq!(wait(&[("retry-after", "soon")], &none), None);
        assert_eq!(wait(&[], &none), None);
        // ironcore-dev/metal-operator issue 170: an iDRAC whose sources are not ready.
        let told = json!({"error": {"@Message.ExtendedInfo": [
            {"MessageId": "IDRAC.2.8.SYS518", "MessageArgs": []},
            {"MessageId": "Base.1.12.ServiceTemporarilyUnavailable", "MessageArgs": ["45"]}]}});
        assert_eq!(wait(&[], &told), Some(45));
        assert_eq!(wait(&[("retry-after", "7")], &told), Some(7));
    }

    #[test]
    fn a_bmc_that_starts_is_busy_whatever_its_status() {
        let starting = json!({"error": {"@Message.ExtendedInfo": [
            {"MessageId": "IDRAC.1.6.SWC0700", "Message": "iDRAC is not ready."}]}});
        let judged = reply(400, &[], &starting).judge();
        assert!(matches!(judged, Err(BmcError::Busy { .. })), "{judged:?}");
        let other = json!({"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.0.X"}]}});
        let judged = reply(400, &[], &other).judge().unwrap_err();
        assert!(
            matches!(&judged, BmcError::Unsupported { what } if what.ends_with("HTTP 400: Base.1.0.X")),
            "{judged}"
        );
    }

    /// Errors of an iLO and of sushy-tools.
    #[test]
    fn the_id_of_a_message_is_quoted_unless_a_text_tells_more() {
        let quoted = |id: &str, text: &str| {
            let error = json!({"error": {"message": text,
                "@Message.ExtendedInfo": [{"MessageId": id}]}});
            said(StatusCode::BAD_REQUEST, error.to_string().as_bytes())
        };
        assert_eq!(
            quoted("iLO.2.8.PropertyNotWritable", "See the messages."),
            "HTTP 400: iLO.2.8.PropertyNotWritable"
        );
        assert_eq!(
            quoted("Base.1.0.GeneralError", "Missing the target"),
            "HTTP 400: Missing the target"
        );
    }

    #[test]
    fn an_object_or_an_empty_body_is_an_answer_and_an_array_is_none() {
        assert!(
            reply(200, &[], &json!({}))
                .judge()
                .unwrap()
                .body
                .is_object()
        );
        for odd in [json!([]), json!([{"TaskState": "Completed"}]), json!("x")] {
            let judged = reply(200, &[], &odd).judge();
            assert!(matches!(judged, Err(BmcError::Garbage { .. })), "{odd}");
        }
        let mut empty = reply(204, &[], &json!({}));
        empty.bytes = Vec::new();
        assert!(empty.judge().unwrap().body.is_null());
    }

    #[test]
    fn a_target_is_named_without_its_query() {
        assert_eq!(
            name_target("https://192.0.2.1:8080/login?next=x"),
            "https://192.0.2.1:8080/login"
        );
        assert_eq!(name_target("/login\n"), "/login ");
        assert_eq!(name_target("/login?token=x"), "/login");
    }
}
