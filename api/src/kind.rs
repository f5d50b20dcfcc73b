//! Kinds: how they are called in paths and documents, and which spec and status belong to each.

use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

/// A spec that names its kind. Implemented by the spec, so that `client.get::<RackSpec>("r1")` needs no more words.
pub trait Kind:
    Serialize + DeserializeOwned + ToSchema + Clone + std::fmt::Debug + Send + Sync + 'static
{
    /// The word in documents and events: `hardware_profile`.
    const KIND: &'static str;
    /// The word in paths: `hardware_profiles`.
    const COLLECTION: &'static str;
    /// The name of the object's schema: `HardwareProfile`.
    const SCHEMA: &'static str;
    /// What the server observed or chose.
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

/// Every kind that has a collection of its own, with the collection; the CLI and a test walk it.
pub const COLLECTIONS: [(&str, &str); 15] = [
    ("site", "sites"),
    ("rack", "racks"),
    ("subnet", "subnets"),
    ("hardware_profile", "hardware_profiles"),
    ("network_profile", "network_profiles"),
    ("credential", "credentials"),
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

/// The collection of a kind, given as `rack`, `racks`, `hardware-profile` or `hardware_profiles`.
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
