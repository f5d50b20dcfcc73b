//! Redfish answers: resources with ETags, and errors in the format of DSP0266 section 8.6 with
//! messages from the Base registry.

use http::{StatusCode, header};
use muster_core::values::Digest;
use serde_json::{Value, json};

/// An answer before serialization to HTTP.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
}

impl Reply {
    /// A 200 answer with a resource and its ETag.
    pub(crate) fn resource(body: Value) -> Self {
        let headers = vec![(header::ETAG.as_str(), etag(&body))];
        Self {
            status: StatusCode::OK,
            headers,
            body: Some(body),
        }
    }

    /// A 204 answer: the write succeeded and there is no body.
    pub(crate) fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            headers: Vec::new(),
            body: None,
        }
    }

    /// A 201 answer for a new resource at `location`.
    pub(crate) fn created(location: &str, body: Value) -> Self {
        let headers = vec![(header::LOCATION.as_str(), location.to_owned())];
        Self {
            status: StatusCode::CREATED,
            headers,
            body: Some(body),
        }
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The ETag of a resource in its current state: a weak tag from a hash of the body.
pub(crate) fn etag(body: &Value) -> String {
    format!(
        "W/\"{}\"",
        &Digest::of(body.to_string().as_bytes()).hex()[..16]
    )
}

/// An error answer: HTTP status, message id in the Base registry, message text, and resolution.
pub(crate) fn error(status: StatusCode, id: &str, message: &str, resolution: &str) -> Reply {
    let message_id = format!("Base.1.13.{id}");
    let severity = if status.is_server_error() {
        "Critical"
    } else {
        "Warning"
    };
    let body = json!({"error": {
        "code": message_id,
        "message": message,
        "@Message.ExtendedInfo": [{
            "@odata.type": "#Message.v1_1_2.Message",
            "MessageId": message_id,
            "Message": message,
            "MessageArgs": [],
            "Severity": severity,
            "Resolution": resolution,
        }],
    }});
    Reply {
        status,
        headers: Vec::new(),
        body: Some(body),
    }
}

/// A 404 answer: the resource does not exist.
pub(crate) fn not_found(path: &str) -> Reply {
    let message = format!("The resource at the URI {path} was not found.");
    error(
        StatusCode::NOT_FOUND,
        "ResourceMissingAtURI",
        &message,
        "Use a URI that the service lists.",
    )
}

/// A 400 answer: the value of a property or parameter is outside its allowed list.
pub(crate) fn not_in_list(property: &str, value: &Value) -> Reply {
    let message = format!(
        "The value {value} for the property {property} is not in the list of acceptable values."
    );
    error(
        StatusCode::BAD_REQUEST,
        "PropertyValueNotInList",
        &message,
        "Choose a value from the allowable values.",
    )
}

/// A 400 answer: the property is read-only.
pub(crate) fn not_writable(property: &str) -> Reply {
    let message =
        format!("The property {property} is a read only property and cannot be assigned a value.");
    error(
        StatusCode::BAD_REQUEST,
        "PropertyNotWritable",
        &message,
        "Remove the property from the request body.",
    )
}

/// A 400 answer: a required property is missing.
pub(crate) fn missing(property: &str) -> Reply {
    let message = format!(
        "The property {property} is a required property and must be included in the request."
    );
    error(
        StatusCode::BAD_REQUEST,
        "PropertyMissing",
        &message,
        "Include the property.",
    )
}

/// A 405 answer: the resource does not support the method; `allow` lists the supported methods.
pub(crate) fn not_allowed(allow: &'static str) -> Reply {
    let text = "The HTTP method is not allowed on this resource.";
    error(
        StatusCode::METHOD_NOT_ALLOWED,
        "OperationNotAllowed",
        text,
        "Use a method of the Allow header.",
    )
    .with("allow", allow)
}

/// A 409 answer: the machine cannot perform the action in its present state.
pub(crate) fn conflict(message: &str) -> Reply {
    error(
        StatusCode::CONFLICT,
        "ActionNotSupported",
        message,
        "Read the resource and try again when its state allows.",
    )
}

/// A 500 answer: an operation inside the BMC failed.
pub(crate) fn internal(message: &str) -> Reply {
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalError",
        message,
        "Try again; reset the service if it stays.",
    )
}

/// A collection resource with members at `path/NAME`.
pub(crate) fn collection(path: &str, kind: &str, members: &[String]) -> Value {
    let links: Vec<Value> = members
        .iter()
        .map(|member| json!({"@odata.id": format!("{path}/{member}")}))
        .collect();
    json!({
        "@odata.id": path,
        "@odata.type": format!("#{kind}Collection.{kind}Collection"),
        "Name": format!("{kind} Collection"),
        "Members@odata.count": links.len(),
        "Members": links,
    })
}
