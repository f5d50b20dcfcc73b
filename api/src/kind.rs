//! Kinds of objects: the names used in paths and documents, and the spec and status types of each
//! kind.

use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

/// A spec type with the names of the kind. Implemented by the spec, so
/// `client.get::<RackSpec>("r1")` needs no further argument.
pub trait Kind:
    Serialize + DeserializeOwned + ToSchema + Clone + std::fmt::Debug + Send + Sync + 'static
{
    /// The name in documents and events: `hardware_profile`.
    const KIND: &'static str;
    /// The name in paths: `hardware_profiles`.
    const COLLECTION: &'static str;
    /// The name of the object's schema in the OpenAPI document: `HardwareProfile`.
    const SCHEMA: &'static str;
    /// State observed or chosen by the server.
    type Status: Serialize
        + DeserializeOwned
        + ToSchema
        + Clone
        + std::fmt::Debug
        + Default
        + Send
        + Sync
        + 'static;
}

/// Every kind with a collection of its own, as (kind, collection). A kind follows the kinds that it
/// refers to, because `muster apply` and plans write in this order. The CLI and a test iterate over
/// this list.
pub const COLLECTIONS: [(&str, &str); 18] = [
    ("maintenance_window", "maintenance_windows"),
    ("monitor", "monitors"),
    ("site", "sites"),
    ("rack", "racks"),
    ("subnet", "subnets"),
    ("hardware_profile", "hardware_profiles"),
    ("network_profile", "network_profiles"),
    ("credential", "credentials"),
    ("signing_key", "signing_keys"),
    ("image", "images"),
    ("stack", "stacks"),
    ("suite", "suites"),
    ("cluster", "clusters"),
    ("pool", "pools"),
    ("role_binding", "role_bindings"),
    ("webhook", "webhooks"),
    ("node", "nodes"),
    ("claim", "claims"),
];

/// Returns kind and collection for a word: `rack`, `racks`, `hardware-profile` or
/// `hardware_profiles`.
pub fn collection(word: &str) -> Option<(&'static str, &'static str)> {
    let word = word.replace('-', "_");
    COLLECTIONS
        .into_iter()
        .find(|(kind, collection)| *kind == word || *collection == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_either_word() {
        assert_eq!(
            collection("hardware-profile"),
            Some(("hardware_profile", "hardware_profiles"))
        );
        assert_eq!(collection("racks"), Some(("rack", "racks")));
        assert_eq!(collection("tower"), None);
    }
}
