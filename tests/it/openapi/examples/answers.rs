//! Answers of a server, compared with the stored examples of the description.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Answers, id, name, operations, reads, successes, world};
use crate::openapi::schema::faults;
use crate::support::server::{Caller, Server};

/// Sends every GET and keeps the answers. Panics on a refusal or an empty list.
async fn read(admin: &Caller, answers: &mut Answers, named: &[(&str, String)]) {
    let mut empty = Vec::new();
    for (operation, path) in reads(&answers.description, named) {
        let reply = admin.get(&path).await;
        let items = reply.body["items"].as_array();
        match reply.status == 200 && items.is_none_or(|items| !items.is_empty()) {
            true => answers.keep(&operation, &reply),
            false => empty.push(format!("{path}: {}", reply.text)),
        }
    }
    assert!(empty.is_empty(), "nothing is shown: {empty:#?}");
}

/// Replaces values that differ between runs: ids are numbered in order of appearance; secrets,
/// hashes, page tokens and certificates get a fixed text.
fn settled(value: &mut Value, known: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (name.as_str(), member.as_str()) {
                    ("secret", Some(_)) => *member = json!("mst_…, shown this once"),
                    ("token", Some(_)) => *member = json!("msa_…, shown this once"),
                    ("hash" | "secret_hash", Some(text)) => *member = json!("0".repeat(text.len())),
                    ("next_page_token", Some(_)) => *member = json!("as the server made it"),
                    ("authority", Some(_)) => {
                        *member =
                            json!("-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n")
                    }
                    _ => settled(member, known),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settled(item, known)),
        Value::String(text) => *text = with_settled_ids(text, known),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn with_settled_ids(text: &str, known: &mut Vec<String>) -> String {
    let mut settled = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let found = rest.get(..36).filter(|id| id.parse::<Uuid>().is_ok());
        let step = match found {
            Some(id) => {
                let number = known.iter().position(|one| one == id).unwrap_or_else(|| {
                    known.push(id.to_owned());
                    known.len() - 1
                });
                settled.push_str(&format!("0197b0f2-9a3c-7000-8000-{number:012}"));
                36
            }
            None => {
                let one = rest.chars().next().unwrap();
                settled.push(one);
                one.len_utf8()
            }
        };
        rest = &rest[step..];
    }
    settled
}

/// Collects the paths of all members of a value, at any depth.
fn members(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    for item in value.as_array().into_iter().flatten() {
        members(item, at, found);
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        // The members of an event's detail depend on the event, and are not
        // compared.
        if name != "detail" {
            members(member, &at, found);
        }
        found.insert(at);
    }
}

/// `UPDATE_EXAMPLES=1 cargo nextest run -p muster-tests -E 'test(every_answer_is_shown)'` writes
/// the answers again. Run the test of the description with `UPDATE_OPENAPI=1` afterwards.
#[tokio::test]
async fn every_answer_is_shown_as_a_server_gave_it() {
    let mut answers = Answers::new();
    let mut world = world::build(Server::start().await).await;
    let named = world::act(&mut world, &mut answers).await;
    read(&world.admin.clone(), &mut answers, &named).await;
    let Answers {
        description,
        by_name,
    } = answers;
    let mut known = Vec::new();
    let given: Map<String, Value> = by_name
        .into_iter()
        .map(|(name, mut body)| {
            settled(&mut body, &mut known);
            (name, body)
        })
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src/http/answers.json");
    if std::env::var_os("UPDATE_EXAMPLES").is_some() {
        std::fs::write(&path, format!("{:#}\n", Value::Object(given.clone()))).unwrap();
    }
    let stored: Map<String, Value> =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut wanted = BTreeSet::new();
    let mut wrong = Vec::new();
    for (_, _, operation) in operations(&description) {
        for (status, content) in successes(operation) {
            let name = name(operation, content);
            let (Some(shown), Some(answered)) = (stored.get(&name), given.get(&name)) else {
                wrong.push(format!(
                    "{} {status}: no answer of {name}: give one in world.rs, then UPDATE_EXAMPLES",
                    id(operation)
                ));
                continue;
            };
            for body in [shown, answered] {
                let faults = faults(&description, &content["schema"], body);
                wrong.extend(faults.iter().map(|fault| format!("{name}{fault}")));
            }
            let [mut here, mut there] = [BTreeSet::new(), BTreeSet::new()];
            members(shown, "", &mut here);
            members(answered, "", &mut there);
            let differs: Vec<_> = here.symmetric_difference(&there).collect();
            if !differs.is_empty() {
                wrong.push(format!(
                    "{name} is shown otherwise than it is answered: {differs:?}; UPDATE_EXAMPLES"
                ));
            }
            wanted.insert(name);
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        stored.keys().cloned().collect::<BTreeSet<_>>(),
        wanted,
        "an example of what is not answered"
    );
}
