//! The Terraform provider: the public API as resources and data sources. Their schemas come from the API's own description
//! (`docs/openapi.json`), so the two cannot differ. It must not know anything that the API does not say, and keeps no state of its own.

mod contract; // The API's description as types
mod diagnostics; // What the API refused, where in the configuration
mod dispatch; // Which call of the protocol goes where
mod kinds; // The table: every resource and data source
mod messages; // The protocol's messages
mod plugin; // How Terraform starts and trusts this process
mod provider; // The protocol's calls
mod remote; // The API's calls
mod schema; // Types as the protocol's schemas
mod value; // Terraform's values and the API's

use std::process::ExitCode;

/// Serves Terraform until it says that it is done.
pub fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("another TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    let served = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(plugin::serve(provider::Provider::default())));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
