//! Converts types to the protocol's schemas.

use serde_json::{Value as Json, json};

use crate::contract::{self, Member, Type};
use crate::kinds::{Kind, NOTHING, Source, Until};
use crate::messages::{Attribute, Block, Object, Schema};

/// The writer of an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Required,
    Optional,
    Server,
    /// Sent to the provider and stored in no plan and no state.
    WriteOnly,
}

/// Returns the schema of the provider's own configuration.
pub(crate) fn provider() -> Schema {
    schema(
        "Bare-metal fleets, from powered-off machines to cluster nodes.",
        vec![
            plain(
                "url",
                "The server's address; `MUSTER_URL` otherwise, or http://127.0.0.1:8080.",
                Type::Text,
                Writer::Optional,
            ),
            Attribute {
                sensitive: true,
                ..plain(
                    "token",
                    "Better in `MUSTER_TOKEN`, which ends up in no file.",
                    Type::Text,
                    Writer::Optional,
                )
            },
            plain(
                "token_file",
                "A file that holds a token and nothing else; `MUSTER_TOKEN_FILE` otherwise.",
                Type::Text,
                Writer::Optional,
            ),
            plain(
                "ca",
                "A file with certificate authorities (PEM) of the server, besides those of this machine; `MUSTER_CA` otherwise.",
                Type::Text,
                Writer::Optional,
            ),
        ],
    )
}

/// Returns the schema of a resource: the members of the object, and the attributes for Terraform
/// only.
pub(crate) fn resource(kind: &Kind) -> Schema {
    let mut attributes: Vec<Attribute> = kind
        .shape()
        .members()
        .iter()
        .filter(|member| kind.labelled() || !is_label(member))
        .map(of_object)
        .collect();
    if kind.takes_secret() {
        let about = "The secret itself. It is sent and stored nowhere: change `secret_version` when it changes.";
        attributes.push(Attribute {
            sensitive: true,
            ..plain("secret", about, Type::Text, Writer::WriteOnly)
        });
        let about = "Any text; another one sends `secret` again. Kept as an annotation.";
        attributes.push(plain("secret_version", about, Type::Text, Writer::Optional));
    }
    if kind.word == "token" {
        let about = "Where the token is written when it is made, readable by nobody else. It is stored nowhere else.";
        attributes.push(plain("secret_file", about, Type::Text, Writer::WriteOnly));
    }
    if kind.word == "claim" {
        let about = "Destroying the claim erases the node's disks without the time in which that can be undone.";
        attributes.push(plain("erase_now", about, Type::Bool, Writer::Optional));
    }
    if let Some(wait) = kind.wait {
        if let Until::State { .. } = wait.until {
            let about = format!(
                "The node's state that an apply waits for; `{NOTHING}`, which is nothing, by default."
            );
            attributes.push(plain("wait_for", &about, Type::Text, Writer::WriteOnly));
        }
        let about = "Whether what the last apply waited for has happened. While it has not, another apply goes on waiting.";
        attributes.push(plain("ready", about, Type::Bool, Writer::Server));
    }
    let about = "How long `create`, `update` and `delete` may take, such as `90s`, `30m` or `2h`.";
    attributes.push(plain(
        "timeouts",
        about,
        Type::Map(Box::new(Type::Text)),
        Writer::WriteOnly,
    ));
    schema("", attributes)
}

fn is_label(member: &Member) -> bool {
    matches!(member.name.as_str(), "labels" | "annotations")
}

fn of_object(member: &Member) -> Attribute {
    let writer = match member.name.as_str() {
        "name" => Writer::Required,
        "labels" | "annotations" => Writer::Optional,
        "spec" if member.of.members().iter().any(|member| member.required) => Writer::Required,
        "spec" => Writer::Optional,
        _ => Writer::Server,
    };
    attribute(member, writer)
}

/// Returns the schema of a data source: the arguments and the members of the answer.
pub(crate) fn source(source: Source) -> Schema {
    let key = |name: &str, about: &str| plain(name, about, Type::Text, Writer::Required);
    let (mut attributes, answered) = match source {
        Source::One(_) => (vec![key("name", "Its name or id.")], answer(source)),
        Source::Many(_) => {
            let about = "Such as `state=available AND label.row=a`; all of them without it.";
            (
                vec![plain("filter", about, Type::Text, Writer::Optional)],
                answer(source),
            )
        }
        Source::NodeFacts | Source::GateRuns => {
            (vec![key("node", "The node's name or id.")], answer(source))
        }
        Source::Operation => (vec![key("id", "The operation's id.")], answer(source)),
    };
    let named = attributes[0].name.clone();
    let answered = answered
        .members()
        .iter()
        .filter(|member| member.name != named);
    attributes.extend(answered.map(|member| attribute(member, Writer::Server)));
    schema("", attributes)
}

/// Returns the type of a data source's answer.
pub(crate) fn answer(source: Source) -> Type {
    let list = |of| {
        Type::Object(vec![Member::new(
            "items",
            "All that fit.",
            Type::List(Box::new(of)),
        )])
    };
    match source {
        Source::One(kind) => kind.shape().clone(),
        Source::Many(kind) => list(kind.shape().clone()),
        Source::NodeFacts => contract::schema("NodeFacts"),
        Source::GateRuns => list(contract::schema("GateRun")),
        Source::Operation => contract::schema("Operation"),
    }
}

fn schema(description: &str, attributes: Vec<Attribute>) -> Schema {
    Schema {
        version: 0,
        block: Some(Block {
            attributes,
            description: description.into(),
        }),
    }
}

fn plain(name: &str, about: &str, of: Type, writer: Writer) -> Attribute {
    attribute(&Member::new(name, about, of), writer)
}

fn attribute(member: &Member, writer: Writer) -> Attribute {
    let nested = match &member.of {
        Type::Object(members) if !members.is_empty() => Some((members.as_slice(), 1)),
        Type::List(of) if !of.members().is_empty() => Some((of.members(), 2)),
        Type::Map(of) if !of.members().is_empty() => Some((of.members(), 4)),
        _ => None,
    };
    let inner = |inner: &Member| match (writer, inner.required) {
        (Writer::Server, _) => attribute(inner, Writer::Server),
        (_, true) => attribute(inner, Writer::Required),
        (_, false) => attribute(inner, Writer::Optional),
    };
    Attribute {
        name: member.name.clone(),
        r#type: if nested.is_some() {
            Vec::new()
        } else {
            cty(&member.of).to_string().into_bytes()
        },
        description: member.about.clone(),
        required: writer == Writer::Required,
        optional: matches!(writer, Writer::Optional | Writer::WriteOnly),
        computed: writer == Writer::Server,
        sensitive: false,
        nested_type: nested.map(|(members, nesting)| Object {
            attributes: members.iter().map(inner).collect(),
            nesting,
        }),
        write_only: writer == Writer::WriteOnly,
    }
}

/// Returns a type in Terraform's own notation.
fn cty(of: &Type) -> Json {
    match of {
        Type::Bool => json!("bool"),
        Type::Number => json!("number"),
        Type::Text | Type::NumberOrText | Type::Json => json!("string"),
        Type::List(of) => json!(["list", cty(of)]),
        Type::Map(of) => json!(["map", cty(of)]),
        Type::Object(members) => {
            let members = members
                .iter()
                .map(|member| (member.name.clone(), cty(&member.of)));
            json!(["object", members.collect::<serde_json::Map<_, _>>()])
        }
    }
}
