//! Links of the description, from each write to an existing operation.

use std::collections::BTreeSet;

use super::{id, operations};

/// Returns the names of the parameters of a path.
fn needed(route: &str) -> BTreeSet<&str> {
    route
        .split('{')
        .skip(1)
        .map(|rest| rest.split('}').next().unwrap())
        .collect()
}

/// Follows the links from each write to the object made or changed, or to the begun operation. A
/// removal needs no link, and neither does `make_plan`, because a plan writes no object.
#[test]
fn every_write_leads_to_what_it_makes() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut followed = 0;
    for (path, method, operation) in operations(&description) {
        let removes = method == "delete" && operation["responses"].get("204").is_some();
        if matches!(method, "get" | "head") || removes || id(operation) == "make_plan" {
            continue;
        }
        let responses = operation["responses"].as_object().unwrap();
        let linked = responses
            .iter()
            .filter(|(_, response)| response["links"].is_object());
        assert!(
            linked.clone().next().is_some(),
            "{}: where does it lead? say so in links.rs",
            id(operation)
        );
        for (status, response) in linked {
            for (link, to) in response["links"].as_object().unwrap() {
                let target = to["operationId"].as_str().unwrap();
                let (route, _, _) = operations(&description)
                    .find(|(_, _, known)| id(known) == target)
                    .unwrap_or_else(|| {
                        panic!(
                            "{}: {link} leads to {target}, which there is not",
                            id(operation)
                        )
                    });
                let parameters = to["parameters"].as_object().unwrap();
                assert_eq!(
                    parameters
                        .keys()
                        .map(String::as_str)
                        .collect::<BTreeSet<_>>(),
                    needed(route),
                    "{}: {link}",
                    id(operation)
                );
                for from in parameters.values().map(|from| from.as_str().unwrap()) {
                    if let Some(pointer) = from.strip_prefix("$response.body#") {
                        let shown =
                            response["content"]["application/json"]["examples"]["answer"]["$ref"]
                                .as_str();
                        let shown = shown
                            .unwrap_or_else(|| panic!("{} {status} shows nothing", id(operation)));
                        let body = &description.pointer(&shown[1..]).unwrap()["value"];
                        assert!(
                            body.pointer(pointer).is_some(),
                            "{} {status}: no {pointer} in {body}",
                            id(operation)
                        );
                    } else {
                        let name = from.strip_prefix("$request.path.").unwrap();
                        assert!(
                            path.contains(&format!("{{{name}}}")),
                            "{}: {from}",
                            id(operation)
                        );
                    }
                    followed += 1;
                }
            }
        }
    }
    assert!(followed > 50, "{followed} links");
}
