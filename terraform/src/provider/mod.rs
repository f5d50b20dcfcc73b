//! The protocol's calls. Each call reads Terraform's values, queries the API, and returns values
//! and diagnostics.

mod apply; // Creating, changing and destroying
mod effects; // Effects of a plan on machines
mod plan; // Planned changes of an apply
mod read; // Refresh, import and data sources
mod state; // Conversion between an object and a resource's attributes

use std::sync::{Arc, OnceLock};

use muster_api::client::Client;
use muster_core::values::Secret;
use tokio::sync::watch;
use tonic::Status;

use crate::diagnostics::error;
use crate::kinds::{self, KINDS, Kind};
use crate::messages::{
    Configure, Configured, Diagnostics, SchemaAnswer, ServerCapabilities, StopAnswer,
    ValidateProviderAnswer,
};
use crate::remote::Remote;
use crate::schema;
use crate::value::{Attributes, decode, text};

const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Oldest Terraform version to keep write-only attributes out of its files.
const OLDEST_TERRAFORM: (u32, u32) = (1, 11);

/// The provider with a configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    remote: Arc<OnceLock<Remote>>,
    stop: Arc<watch::Sender<bool>>,
    /// Objects planned so far. Terraform plans resource by resource, and the server needs related
    /// objects together.
    planned: Arc<effects::Planned>,
}

impl Default for Provider {
    fn default() -> Self {
        Self {
            remote: Arc::default(),
            stop: Arc::new(watch::channel(false).0),
            planned: Arc::default(),
        }
    }
}

impl Provider {
    pub(crate) async fn schema(self) -> Result<SchemaAnswer, Status> {
        let resources = KINDS
            .iter()
            .map(|kind| (format!("muster_{}", kind.word), schema::resource(kind)));
        let sources = kinds::sources()
            .into_iter()
            .map(|(name, source)| (name, schema::source(source)));
        Ok(SchemaAnswer {
            provider: Some(schema::provider()),
            resource_schemas: resources.collect(),
            data_source_schemas: sources.collect(),
            server_capabilities: Some(ServerCapabilities {
                plan_destroy: true,
                get_provider_schema_optional: true,
            }),
        })
    }

    pub(crate) async fn validate_provider(self) -> Result<ValidateProviderAnswer, Status> {
        Ok(ValidateProviderAnswer::default())
    }

    /// Accepts every configuration. The schema rejects errors detectable without the server, and
    /// the server reports the rest.
    pub(crate) async fn validate(self, _: Configured) -> Result<Diagnostics, Status> {
        Ok(Diagnostics::default())
    }

    pub(crate) async fn configure(self, call: Configure) -> Result<Diagnostics, Status> {
        let config = decode(call.config.as_ref())?.unwrap_or_default();
        let refused = match too_old(&call.terraform_version) {
            true => Err(format!(
                "Terraform {} keeps secrets in its files; use 1.11 or later.",
                call.terraform_version
            )),
            false => client(&config),
        };
        let diagnostics = match refused {
            Ok(client) => {
                // Terraform configures a provider once. A second configuration would be ignored.
                self.remote.get_or_init(|| Remote {
                    client,
                    stop: self.stop.subscribe(),
                });
                Vec::new()
            }
            Err(why) => vec![error("The provider is not configured", why)],
        };
        Ok(Diagnostics { diagnostics })
    }

    pub(crate) async fn stop(self) -> Result<StopAnswer, Status> {
        self.stop.send_replace(true);
        Ok(StopAnswer::default())
    }

    fn remote(&self) -> Result<&Remote, Status> {
        self.remote
            .get()
            .ok_or_else(|| Status::failed_precondition("the provider is not configured"))
    }
}

fn kind(type_name: &str) -> Result<&'static Kind, Status> {
    kinds::resource(type_name)
        .ok_or_else(|| Status::not_found(format!("there is no resource {type_name:?}")))
}

/// Returns whether the Terraform version stores write-only attributes in its state. An unreadable
/// version counts as newer.
fn too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < OLDEST_TERRAFORM,
        _ => false,
    }
}

/// Returns a client for the server. URL and token come from the configuration, else from the
/// environment, else from the defaults, as in the CLI.
fn client(config: &Attributes) -> Result<Client, String> {
    let chosen = |attribute: &str, variable: &str| {
        let configured = text(config, attribute).to_owned();
        Some(configured)
            .filter(|text| !text.is_empty())
            .or_else(|| std::env::var(variable).ok())
            .filter(|t| !t.is_empty())
    };
    let url = chosen("url", "MUSTER_URL").unwrap_or_else(|| DEFAULT_URL.to_owned());
    let token = match (
        chosen("token", "MUSTER_TOKEN"),
        chosen("token_file", "MUSTER_TOKEN_FILE"),
    ) {
        (Some(token), _) => Some(Secret::new(token)),
        (None, Some(path)) => {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            Some(Secret::new(text.trim()))
        }
        (None, None) => None,
    };
    let client = match chosen("ca", "MUSTER_CA") {
        Some(path) => {
            let pem = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
            Client::trusting(&url, token, &pem)
        }
        None => Client::new(&url, token),
    };
    client.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terraform_that_would_store_secrets_is_refused() {
        assert!(too_old("1.10.5") && too_old("0.15.0"));
        assert!(
            !too_old("1.11.0") && !too_old("1.12.0-beta1") && !too_old("2.0.0") && !too_old("dev")
        );
    }
}
