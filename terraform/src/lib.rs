//! The Terraform provider: the public API as resources and data sources. The schemas come from the
//! API's own description (`docs/openapi.json`), so provider and API cannot differ. The provider has
//! no knowledge beyond the API's responses, and keeps no state of its own.

mod contract; // The API's description as types
mod diagnostics; // Errors of the API, at their place in the configuration
mod dispatch; // Routes from calls of the protocol to functions
mod kinds; // The table of all resources and data sources
mod messages; // The protocol's messages
mod plugin; // Start of the process by Terraform, and mutual authentication
mod provider; // The protocol's calls
mod remote; // The API's calls
mod schema; // Types as the protocol's schemas
mod value; // Conversion between Terraform's values and the API's values

use std::process::ExitCode;

/// Serves Terraform until Terraform asks the process to end.
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
