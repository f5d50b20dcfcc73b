//! The description of the contract, generated from the handlers and checked in as docs/openapi.json.

use muster_api::claims::ClaimSpec;
use muster_api::nodes::NodeSpec;
use muster_api::problem::Problem;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::declared::describe;

/// The document before any path is added to it.
pub fn base() -> OpenApi {
    let mut components = Components::new();
    let mut schemas = vec![("Problem".to_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    // Their handlers are not generic, their objects are: named here, where the derive cannot.
    schemas.extend(describe::schemas::<NodeSpec>());
    schemas.extend(describe::schemas::<ClaimSpec>());
    components.schemas.extend(schemas);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token: mst_…")).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let info = InfoBuilder::new()
        .title("Muster")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Bare-metal fleet provisioning for GPU clusters."))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]))
        .build()
}
