//! Content and signature of webhook messages: CloudEvents 1.0 in structured JSON mode, signed as
//! Standard Webhooks require. Pure functions.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use muster_api::events::Event;
use muster_api::webhooks::WebhookSpec;
use muster_core::event_kinds;
use serde_json::{Value, json};
use uuid::Uuid;

/// Prefix of the type of every event, naming the producer.
const WHOSE: &str = "muster.";
/// Type of the message for testing a webhook.
pub const PING: &str = "webhook.ping";
/// Largest body with the event's document, in bytes. A larger body is sent without the document.
const LARGEST: usize = 256 << 10;
const SECRET: &str = "whsec_";
/// Length of a secret in bytes, as Standard Webhooks require.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Most secrets of a webhook. Two secrets are valid during a rotation.
const SECRETS: usize = 2;

/// A message to a webhook, identical in every attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub id: Uuid,
    pub body: Vec<u8>,
}

impl Message {
    /// Builds the message of an event.
    pub fn event(event: &Event) -> Self {
        let whole = document(event, &event.detail);
        let body = match whole.len() {
            ..=LARGEST => whole,
            _ => document(
                event,
                &json!({ "left_out": "too large for a delivery; read GET /v1/events" }),
            ),
        };
        Self { id: event.id, body }
    }

    /// Builds the message for testing a webhook.
    pub fn ping(id: Uuid, webhook: &str, at: Timestamp) -> Self {
        let body = json!({
            "specversion": "1.0", "id": id, "source": "/v1/webhooks", "type": format!("{WHOSE}{PING}"), "time": at,
            "datacontenttype": "application/json", "data": { "webhook": webhook },
        });
        Self {
            id,
            body: body.to_string().into_bytes(),
        }
    }

    /// Returns the headers of one attempt: the id, the time, and a signature with each secret.
    pub fn headers(&self, secrets: &[hmac::Key], now: Timestamp) -> HeaderMap {
        let second = now.as_second();
        let signed = [format!("{}.{second}.", self.id).as_bytes(), &self.body].concat();
        let signatures: Vec<String> = secrets
            .iter()
            .map(|secret| format!("v1,{}", STANDARD.encode(hmac::sign(secret, &signed))))
            .collect();
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: String| {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        };
        set(header::CONTENT_TYPE, "application/cloudevents+json".into());
        set(HeaderName::from_static("webhook-id"), self.id.to_string());
        set(
            HeaderName::from_static("webhook-timestamp"),
            second.to_string(),
        );
        set(
            HeaderName::from_static("webhook-signature"),
            signatures.join(" "),
        );
        headers
    }
}

fn document(event: &Event, detail: &Value) -> Vec<u8> {
    let subject = match (event.node, event.operation, event.object) {
        (Some(node), _, _) => Some(format!("nodes/{node}")),
        (None, Some(operation), _) => Some(format!("operations/{operation}")),
        (None, None, Some(object)) => Some(format!("objects/{object}")),
        (None, None, None) => None,
    };
    let mut document = json!({
        "specversion": "1.0", "id": event.id, "source": "/v1/events", "type": format!("{WHOSE}{}", event.kind),
        "time": event.at, "datacontenttype": "application/json",
        // The `sequence` extension of CloudEvents: a text in the same sort order as the numbers.
        "sequence": format!("{:020}", event.seq),
        "data": Event { detail: detail.clone(), ..event.clone() },
    });
    if let Some(subject) = subject {
        document["subject"] = subject.into();
    }
    document.to_string().into_bytes()
}

/// Parses the keys of a declared secret: one key, or two keys during a rotation.
///
/// # Errors
///
/// The problem of the text. The secret is left out of the message.
pub fn secrets(text: &str) -> Result<Vec<hmac::Key>, String> {
    let words: Vec<&str> = text.split(' ').collect();
    if words.len() > SECRETS {
        return Err(format!("At most {SECRETS} secrets, separated by a space."));
    }
    let wrong = || {
        format!(
            "{SECRET} and {} to {} bytes in base64",
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        )
    };
    let key = |word: &&str| {
        let bytes = word
            .strip_prefix(SECRET)
            .and_then(|rest| STANDARD.decode(rest).ok())
            .ok_or_else(wrong)?;
        let fits = SECRET_BYTES.contains(&bytes.len());
        fits.then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
            .ok_or_else(wrong)
    };
    words.iter().map(key).collect()
}

/// Returns whether a text is a valid topic pattern for event types.
fn is_topic(text: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
    };
    let begin = text.strip_suffix(".*").unwrap_or(text);
    text == "*" || (text.len() <= 100 && begin.split('.').all(word))
}

/// The reason that a text is no topic; `None` for a topic.
pub fn topic_fault(text: &str) -> Option<String> {
    if let Some(present) = event_kinds::present(text) {
        return Some(format!("{text} is named {present} now."));
    }
    (!is_topic(text)).then(|| {
        format!("{text:?} is not a topic. Use a kind such as node.advanced, a prefix such as node.*, or *.")
    })
}

/// Returns whether a webhook subscribes to an event of this type in this site, or without a site.
pub fn wants(spec: &WebhookSpec, kind: &str, site: Option<&str>) -> bool {
    // During a rolling upgrade, a replica of the version before writes the former kinds.
    let kind = event_kinds::present(kind).unwrap_or(kind);
    let meant = |topic: &String| match topic.strip_suffix('*') {
        Some(begin) => kind.starts_with(begin),
        None => topic == kind,
    };
    spec.topics.iter().any(meant)
        && spec
            .site
            .as_deref()
            .is_none_or(|wanted| site == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(topics: &[&str], site: Option<&str>) -> WebhookSpec {
        let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
        WebhookSpec {
            url: "https://example.org/".into(),
            topics,
            site: site.map(str::to_owned),
            enabled: None,
            description: None,
            secret: None,
        }
    }

    /// Made by another implementation, from the secret and the body that the specification's own libraries are tested with.
    #[test]
    fn a_signature_is_the_one_that_others_make() {
        let id: Uuid = "0197b0f2-9a3c-7000-8000-000000000000".parse().unwrap();
        let message = Message {
            id,
            body: b"{\"test\": 2432232314}".to_vec(),
        };
        let keys = secrets(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        )
        .unwrap();
        let headers = message.headers(&keys, Timestamp::from_second(1_614_265_330).unwrap());
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(
            (text("webhook-id"), text("webhook-timestamp")),
            (id.to_string(), "1614265330".into())
        );
        let expected = "v1,2rqcySzSWosng0kxeoV9nAjR48iP0ic67wrX0dzaKzc= v1,Pnj49CuzctqhWvPci3oLAwaURc0k3Bb4Hm8CY1WpJPU=";
        assert_eq!(text("webhook-signature"), expected);
    }

    #[test]
    fn a_secret_is_long_enough_and_base64() {
        assert_eq!(
            secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
                .unwrap()
                .len(),
            1
        );
        let long = format!("whsec_{}", STANDARD.encode([1; 65]));
        let three = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"; 3].join(" ");
        for wrong in [
            "",
            "hunter2",
            "whsec_",
            "whsec_c2hvcnQ=",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            &long,
            &three,
        ] {
            let why = secrets(wrong).unwrap_err();
            assert!(wrong.len() <= SECRET.len() || !why.contains(wrong), "{why}");
        }
    }

    #[test]
    fn topics_are_names_or_beginnings() {
        for right in [
            "*",
            "node.advanced",
            "node.*",
            "audit.sealed",
            "job.lease_expired",
            "a.b.*",
        ] {
            assert!(is_topic(right), "{right}");
        }
        for wrong in [
            "", "**", "node*", ".*", "node.", "Node.x", "a b", "node.*.x", "*.x",
        ] {
            assert!(!is_topic(wrong), "{wrong}");
        }
        assert!(wants(&spec(&["node.*"], None), "node.advanced", None));
        assert!(
            !wants(&spec(&["node.*"], None), "nodes.advanced", None),
            "the dot counts"
        );
        assert!(wants(
            &spec(&["x", "claim.created"], None),
            "claim.created",
            Some("lab")
        ));
        assert!(!wants(
            &spec(&["claim.created"], None),
            "claim.created_too",
            None
        ));
        assert!(wants(
            &spec(&["*"], Some("lab")),
            "node.advanced",
            Some("lab")
        ));
        assert!(!wants(
            &spec(&["*"], Some("lab")),
            "node.advanced",
            Some("far")
        ));
        assert!(
            !wants(&spec(&["*"], Some("lab")), "audit.sealed", None),
            "what lies nowhere is of no site"
        );
    }

    #[test]
    fn an_event_too_large_is_sent_without_its_document() {
        let mut event = Event {
            seq: 42,
            id: Uuid::nil(),
            at: Timestamp::from_second(1).unwrap(),
            actor: "muster".into(),
            kind: "node.advanced".into(),
            node: Some(Uuid::nil()),
            object: None,
            operation: None,
            request_id: None,
            summary: "s".into(),
            detail: json!({ "to": "available" }),
        };
        let read =
            |event: &Event| serde_json::from_slice::<Value>(&Message::event(event).body).unwrap();
        let sent = read(&event);
        assert_eq!(sent["type"], "muster.node.advanced");
        assert_eq!(sent["subject"], format!("nodes/{}", Uuid::nil()));
        assert_eq!(
            (&sent["data"]["detail"]["to"], &sent["data"]["seq"]),
            (&json!("available"), &json!(42))
        );
        event.detail = json!("x".repeat(LARGEST));
        assert!(Message::event(&event).body.len() < 1024);
        assert!(read(&event)["data"]["detail"]["left_out"].is_string());
    }
}
