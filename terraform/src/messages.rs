//! The messages of Terraform's plugin protocol 6 used by the provider, with the protocol's field
//! numbers. Unread fields are omitted, because protobuf skips unknown fields.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// A value in msgpack, or (only in stored states) in JSON.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DynamicValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) msgpack: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) json: Vec<u8>,
}

/// A step into a value.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Selector {
    #[prost(string, tag = "1")]
    AttributeName(String),
    #[prost(string, tag = "2")]
    ElementKeyString(String),
    #[prost(int64, tag = "3")]
    ElementKeyInt(i64),
}

/// The protocol's message around a [`Selector`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PathStep {
    #[prost(oneof = "Selector", tags = "1, 2, 3")]
    pub(crate) selector: Option<Selector>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributePath {
    #[prost(message, repeated, tag = "1")]
    pub(crate) steps: Vec<PathStep>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Diagnostic {
    /// 1 is an error, 2 a warning.
    #[prost(int32, tag = "1")]
    pub(crate) severity: i32,
    #[prost(string, tag = "2")]
    pub(crate) summary: String,
    #[prost(string, tag = "3")]
    pub(crate) detail: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) attribute: Option<AttributePath>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawState {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) json: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// A cty type as JSON. Empty if `nested_type` contains the type.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) r#type: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(crate) description: String,
    #[prost(bool, tag = "4")]
    pub(crate) required: bool,
    #[prost(bool, tag = "5")]
    pub(crate) optional: bool,
    #[prost(bool, tag = "6")]
    pub(crate) computed: bool,
    #[prost(bool, tag = "7")]
    pub(crate) sensitive: bool,
    #[prost(message, optional, tag = "10")]
    pub(crate) nested_type: Option<Object>,
    #[prost(bool, tag = "11")]
    pub(crate) write_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Object {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<Attribute>,
    /// 1 is a single object, 2 a list, 4 a map.
    #[prost(int32, tag = "3")]
    pub(crate) nesting: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Block {
    #[prost(message, repeated, tag = "2")]
    pub(crate) attributes: Vec<Attribute>,
    #[prost(string, tag = "4")]
    pub(crate) description: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Schema {
    #[prost(int64, tag = "1")]
    pub(crate) version: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) block: Option<Block>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerCapabilities {
    #[prost(bool, tag = "1")]
    pub(crate) plan_destroy: bool,
    #[prost(bool, tag = "2")]
    pub(crate) get_provider_schema_optional: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SchemaAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) provider: Option<Schema>,
    #[prost(map = "string, message", tag = "2")]
    pub(crate) resource_schemas: HashMap<String, Schema>,
    #[prost(map = "string, message", tag = "3")]
    pub(crate) data_source_schemas: HashMap<String, Schema>,
    #[prost(message, optional, tag = "6")]
    pub(crate) server_capabilities: Option<ServerCapabilities>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValidateProviderAnswer {
    #[prost(message, repeated, tag = "2")]
    pub(crate) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Configure {
    #[prost(string, tag = "1")]
    pub(crate) terraform_version: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<DynamicValue>,
}

/// An answer with diagnostics only.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Diagnostics {
    #[prost(message, repeated, tag = "1")]
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Type and configuration of a resource or data source, to validate or to read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Configured {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<DynamicValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Upgrade {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) raw_state: Option<RawState>,
}

/// A value with diagnostics: an upgraded state, or a data source's state.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StateAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) state: Option<DynamicValue>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Read {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_state: Option<DynamicValue>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) private: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) new_state: Option<DynamicValue>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) diagnostics: Vec<Diagnostic>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) private: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Plan {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) prior_state: Option<DynamicValue>,
    #[prost(message, optional, tag = "3")]
    pub(crate) proposed_new_state: Option<DynamicValue>,
    #[prost(message, optional, tag = "4")]
    pub(crate) config: Option<DynamicValue>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) prior_private: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PlanAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) planned_state: Option<DynamicValue>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) requires_replace: Vec<AttributePath>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) planned_private: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Apply {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) prior_state: Option<DynamicValue>,
    #[prost(message, optional, tag = "3")]
    pub(crate) planned_state: Option<DynamicValue>,
    #[prost(message, optional, tag = "4")]
    pub(crate) config: Option<DynamicValue>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) planned_private: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ApplyAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) new_state: Option<DynamicValue>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) private: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Import {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(string, tag = "2")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Imported {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) state: Option<DynamicValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ImportAnswer {
    #[prost(message, repeated, tag = "1")]
    pub(crate) imported_resources: Vec<Imported>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StopAnswer {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
}
