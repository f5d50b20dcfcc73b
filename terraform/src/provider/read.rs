//! Refresh, import and data sources: reads from the server without changes.

use muster_api::client::ClientError;
use rmpv::Value;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use tonic::Status;

use super::{Provider, state};
use crate::diagnostics::{error, refusal};
use crate::kinds::{self, Kind, NOTHING, Source, Until};
use crate::messages::{
    Configured, Import, ImportAnswer, Imported, Read, ReadAnswer, StateAnswer, Upgrade,
};
use crate::remote::Remote;
use crate::schema;
use crate::value::state_of;
use crate::value::{Attributes, conform, decode, encode, from_json, get, text};

impl Provider {
    /// Converts a stored state to the current schema. Another version of the provider may have
    /// stored the state.
    pub(crate) async fn upgrade(self, call: Upgrade) -> Result<StateAnswer, Status> {
        let kind = super::kind(&call.type_name)?;
        let raw = call.raw_state.unwrap_or_default();
        let stored = crate::messages::DynamicValue {
            msgpack: Vec::new(),
            json: raw.json,
        };
        let upgraded = decode(Some(&stored))?.map(|mut stored| {
            let block = schema::resource(kind).block.unwrap_or_default();
            let mut attribute = |name: &str| {
                let value = stored.remove(name).unwrap_or(Value::Nil);
                kind.shape()
                    .member(name)
                    .map_or(value.clone(), |member| conform(&member.of, value))
            };
            block
                .attributes
                .iter()
                .map(|known| (known.name.clone(), attribute(&known.name)))
                .collect::<Attributes>()
        });
        Ok(StateAnswer {
            state: encode(upgraded),
            diagnostics: Vec::new(),
        })
    }

    pub(crate) async fn read(self, call: Read) -> Result<ReadAnswer, Status> {
        let kind = super::kind(&call.type_name)?;
        let known = decode(call.current_state.as_ref())?.unwrap_or_default();
        let remote = self.remote()?;
        let found = remote
            .patiently(deadline(kind), &[], || {
                remote.find(kind, text(&known, "id"))
            })
            .await;
        let (new_state, diagnostics) = match found {
            Ok(object) => (
                object
                    .filter(is_there)
                    .map(|object| refreshed(kind, &known, &object)),
                Vec::new(),
            ),
            Err(refused) => {
                let doing = format!("The {} {} cannot be read", kind.word, text(&known, "name"));
                (Some(known), refusal(Some(kind), &doing, &refused))
            }
        };
        Ok(ReadAnswer {
            new_state: encode(new_state),
            diagnostics,
            private: call.private,
        })
    }

    pub(crate) async fn import(self, call: Import) -> Result<ImportAnswer, Status> {
        let kind = super::kind(&call.type_name)?;
        let remote = self.remote()?;
        let doing = format!("The {} {} was not imported", kind.word, call.id);
        Ok(match remote.find(kind, &call.id).await {
            Ok(Some(object)) if is_there(&object) => {
                let state = encode(Some(state::state(kind, &Attributes::new(), &object, true)));
                let imported = Imported {
                    type_name: call.type_name,
                    state,
                };
                ImportAnswer {
                    imported_resources: vec![imported],
                    diagnostics: Vec::new(),
                }
            }
            Ok(_) => {
                let diagnostics = vec![error(doing, "There is none with this name or id.")];
                ImportAnswer {
                    diagnostics,
                    ..ImportAnswer::default()
                }
            }
            Err(refused) => ImportAnswer {
                diagnostics: refusal(None, &doing, &refused),
                ..ImportAnswer::default()
            },
        })
    }

    pub(crate) async fn read_data(self, call: Configured) -> Result<StateAnswer, Status> {
        let missing = || Status::not_found(format!("there is no data source {:?}", call.type_name));
        let source = kinds::source(&call.type_name).ok_or_else(missing)?;
        let config = decode(call.config.as_ref())?.unwrap_or_default();
        let answered = answer(self.remote()?, source, &config).await;
        let doing = format!("{} cannot be read", call.type_name);
        let json = match answered {
            Ok(Some(json)) => json,
            Ok(None) => {
                let diagnostics = vec![error(doing, "There is none with this name or id.")];
                return Ok(StateAnswer {
                    state: None,
                    diagnostics,
                });
            }
            Err(refused) => {
                return Ok(StateAnswer {
                    state: None,
                    diagnostics: refusal(None, &doing, &refused),
                });
            }
        };
        let shape = schema::answer(source);
        let mut shown: Attributes = shape
            .members()
            .iter()
            .map(|m| (m.name.clone(), from_json(&m.of, &json[m.name.as_str()])))
            .collect();
        // The arguments keep the words of the configuration, so an object queried by id stays
        // queried by id.
        shown.extend(config.into_iter().filter(|(_, value)| !value.is_nil()));
        if let Source::Many(_) = source {
            shown.entry("filter".into()).or_insert(Value::Nil);
        }
        Ok(StateAnswer {
            state: encode(Some(shown)),
            diagnostics: Vec::new(),
        })
    }
}

fn deadline(kind: &Kind) -> Instant {
    Instant::now() + kind.patience.min(std::time::Duration::from_secs(60))
}

/// Returns whether an object exists for Terraform. A claim in release belongs to no owner,
/// regardless of the person or program releasing the claim.
fn is_there(object: &Json) -> bool {
    !matches!(state_of(object, "/status/state"), "releasing" | "released")
}

/// Returns the refreshed attributes. An object may have become ready after the end of the apply.
fn refreshed(kind: &Kind, known: &Attributes, object: &Json) -> Attributes {
    let arrived = kind
        .wait
        .is_some_and(|wait| matches!(wait.until, Until::Ready) && wait.reached(object, NOTHING));
    let ready = get(known, "ready").as_bool().unwrap_or(true) || arrived;
    state::state(kind, known, object, ready)
}

async fn answer(
    remote: &Remote,
    source: Source,
    config: &Attributes,
) -> Result<Option<Json>, ClientError> {
    let client = &remote.client;
    match source {
        Source::One(kind) => remote.find(kind, text(config, "name")).await,
        Source::Many(kind) => Ok(Some(
            json!({ "items": remote.list(kind, text(config, "filter")).await? }),
        )),
        Source::NodeFacts => client
            .get_value(&["nodes", text(config, "node"), "facts"], &[])
            .await
            .map(Some),
        Source::GateRuns => client
            .get_value(&["nodes", text(config, "node"), "gate-runs"], &[])
            .await
            .map(Some),
        Source::Operation => client
            .get_value(&["operations", text(config, "id")], &[])
            .await
            .map(Some),
    }
}
