//! Needs of routes: a verb, and the place at which the caller must hold the verb. A handler of the
//! API states its need in its description, as [`EXTENSION`]; a page states the need beside its
//! route. A route without a need is refused to every caller. `tests/it/access/expected.rs` repeats
//! the needs of all routes.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use muster_api::access::VERBS;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;

/// The member of an OpenAPI operation with the need:
/// `{ "verb": "claim.release", "place": "claim={claim}" }`.
pub const EXTENSION: &str = "x-muster-access";

/// The verb for an unknown action. The handler then reports the action.
const UNKNOWN_ACTION: &str = "fleet.read";

/// The need of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// A verb of [`VERBS`], or `node.{action}` with the name of a path parameter.
    verb: String,
    pub place: Reach,
}

/// The place at which the verb must be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Over the whole fleet: `fleet`.
    Fleet,
    /// In any scope: `any`. The handler checks each object, or the result has no place. A list
    /// contains only objects in the reader's scope.
    Any,
    /// At the object's place: `claim={id}` names the kind, and the path parameter with the object's
    /// name or id.
    At { kind: String, parameter: String },
}

impl Need {
    /// Builds a need. `None` for a place of another form.
    pub fn new(verb: &str, place: &str) -> Option<Self> {
        Some(Self {
            verb: verb.to_owned(),
            place: place.parse().ok()?,
        })
    }

    /// Returns whether the verb exists, and the path has the parameters of verb and place.
    fn fits(&self, path: &str) -> bool {
        let has = |parameter: &str| path.contains(&format!("{{{parameter}}}"));
        let verb = match self.verb.split_once('{') {
            Some((_, parameter)) => has(parameter.trim_end_matches('}')),
            None => VERBS.iter().any(|(known, _)| *known == self.verb),
        };
        let place = match &self.place {
            Reach::Fleet | Reach::Any => true,
            Reach::At { parameter, .. } => has(parameter),
        };
        verb && place
    }

    /// Returns the verb, with path parameters replaced by their values.
    pub fn verb(&self, parameters: &[(String, String)]) -> String {
        let Some((action, name)) = self
            .verb
            .strip_suffix('}')
            .and_then(|verb| verb.split_once('{'))
        else {
            return self.verb.clone();
        };
        let given = parameters.iter().find(|(known, _)| known == name);
        let verb = given.map(|(_, value)| format!("{action}{value}"));
        verb.filter(|verb| VERBS.iter().any(|(known, _)| known == verb))
            .unwrap_or_else(|| UNKNOWN_ACTION.to_owned())
    }
}

impl FromStr for Reach {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "fleet" => Ok(Self::Fleet),
            "any" => Ok(Self::Any),
            at => {
                let (kind, parameter) = at.split_once("={").ok_or(())?;
                Ok(Self::At {
                    kind: kind.to_owned(),
                    parameter: parameter.strip_suffix('}').ok_or(())?.to_owned(),
                })
            }
        }
    }
}

/// The needs of all described routes, by path and method.
#[derive(Clone, Debug)]
pub struct Needs(Arc<HashMap<String, HashMap<Method, Need>>>);

impl Needs {
    /// Reads the needs from an OpenAPI document. An operation without a readable need is left out,
    /// and thereby refused to every caller.
    pub fn read(document: &OpenApi) -> Self {
        let by_method = |path: &str, item: &PathItem| -> HashMap<Method, Need> {
            let operations = [
                (Method::GET, &item.get),
                (Method::HEAD, &item.head),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            operations
                .into_iter()
                .filter_map(|(method, operation)| {
                    let stated = operation.as_ref()?.extensions.as_ref()?.get(EXTENSION)?;
                    let (verb, place) = (stated["verb"].as_str()?, stated["place"].as_str()?);
                    let need = Need::new(verb, place).filter(|need| need.fits(path))?;
                    Some((method, need))
                })
                .collect()
        };
        let paths = document.paths.paths.iter();
        Self(Arc::new(
            paths
                .map(|(path, item)| (path.clone(), by_method(path, item)))
                .collect(),
        ))
    }

    fn find(&self, method: &Method, path: &str) -> Option<&Need> {
        let methods = self.0.get(path)?;
        let read = || (*method == Method::HEAD).then(|| methods.get(&Method::GET));
        methods.get(method).or_else(|| read().flatten())
    }
}

/// Attaches the need of the matched route to a request.
pub async fn attach(State(needs): State<Needs>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let need = path.and_then(|path| needs.find(request.method(), path.as_str()));
    if let Some(need) = need.cloned() {
        request.extensions_mut().insert(need);
    }
    next.run(request).await
}

/// Returns the layer with the need of a route missing from the OpenAPI document.
///
/// # Panics
/// When the place has another form; every start of the server builds all layers.
pub fn need(verb: &str, place: &str) -> Extension<Need> {
    Extension(Need::new(verb, place).expect("the place is fleet, any or kind={parameter}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_need_is_found_by_path_and_method() {
        let stated =
            |verb, place| json!({ "responses": {}, EXTENSION: { "verb": verb, "place": place } });
        let document = json!({ "openapi": "3.1.0", "info": { "title": "", "version": "" }, "paths": { "/v1/claims/{claim}": {
            "get": stated("fleet.read", "claim={claim}"),
            "delete": stated("claim.release", "here"),
            "put": stated("claim.release", "claim={id}"),
            "post": stated("claim.shred", "fleet"),
        } } });
        let needs = Needs::read(&serde_json::from_value(document).unwrap());
        let read = Need::new("fleet.read", "claim={claim}").unwrap();
        let find = |method| needs.find(&method, "/v1/claims/{claim}");
        assert_eq!(find(Method::GET), Some(&read));
        assert_eq!(find(Method::HEAD), Some(&read));
        assert_eq!(find(Method::PATCH), None);
        for unreadable in [Method::DELETE, Method::PUT, Method::POST] {
            assert_eq!(
                find(unreadable),
                None,
                "place, parameter or verb is unknown"
            );
        }
    }

    #[test]
    fn the_verb_of_an_action_is_in_the_path() {
        let need = Need::new("node.{action}", "node={node}").unwrap();
        let verb = |action: &str| need.verb(&[("action".to_owned(), action.to_owned())]);
        assert_eq!(verb("quarantine"), "node.quarantine");
        assert_eq!(verb("explode"), UNKNOWN_ACTION);
        assert_eq!(need.verb(&[]), UNKNOWN_ACTION);
    }
}
