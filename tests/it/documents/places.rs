//! Where a document has objects: in its example, and where its schema lets it have more.

use std::fmt;

use serde_json::{Map, Value, json};

/// Schemas refer to each other: no document is looked into deeper than this.
const DEEPEST: usize = 10;

/// A document with something else in the place of one object.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    pub(super) pointer: String,
    pub(super) document: Value,
}

impl Mutant {
    fn new(document: &Value, pointer: &str, instead: Value) -> Self {
        let mut document = document.clone();
        *document.pointer_mut(pointer).unwrap() = instead;
        let pointer = pointer.to_owned();
        Self { pointer, document }
    }

    /// Whether an array stands in the object's place, which no schema allows.
    pub(super) fn is_array(&self) -> bool {
        self.document
            .pointer(&self.pointer)
            .is_some_and(Value::is_array)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.pointer, self.document)
    }
}

/// A name as a segment of a pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The pointers to every object in a value.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(at.to_owned());
            for (name, member) in members {
                objects(member, &format!("{at}/{}", escape(name)), found);
            }
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                objects(item, &format!("{at}/{position}"), found);
            }
        }
        _ => {}
    }
}

/// Each object of an example replaced by an array of its values, and by other things that are no object.
pub(super) fn of_example(example: &Value) -> Vec<Mutant> {
    let mut found = Vec::new();
    objects(example, "", &mut found);
    let mutants = found.iter().flat_map(|pointer| {
        let object = example.pointer(pointer).and_then(Value::as_object).unwrap();
        let values: Vec<Value> = object.values().cloned().collect();
        let instead = [
            values.into(),
            json!([]),
            json!([{}]),
            json!(null),
            json!("text"),
        ];
        instead.map(|instead| Mutant::new(example, pointer, instead))
    });
    mutants.collect()
}

/// Each object that a schema knows and the example lacks, as an empty array.
pub(super) fn of_schema(description: &Value, schema: &Value, example: &Value) -> Vec<Mutant> {
    let mut walk = Walk {
        description,
        example,
        found: Vec::new(),
    };
    walk.visit(schema, &[]);
    walk.found
}

/// A step from an object to what it holds.
#[derive(Clone, Debug)]
enum Step {
    Member(String),
    /// The one member of an object that is one of several variants.
    Variant(String),
    Item,
}

struct Walk<'schemas> {
    description: &'schemas Value,
    example: &'schemas Value,
    found: Vec<Mutant>,
}

impl<'schemas> Walk<'schemas> {
    fn resolve(&self, schema: &'schemas Value) -> &'schemas Value {
        match schema["$ref"].as_str() {
            Some(to) => self.resolve(self.description.pointer(&to[1..]).unwrap()),
            None => schema,
        }
    }

    fn visit(&mut self, schema: &'schemas Value, steps: &[Step]) {
        let schema = self.resolve(schema);
        if steps.len() > DEEPEST {
            return;
        }
        let deeper = |step: Step| [steps, &[step]].concat();
        for part in ["oneOf", "allOf", "anyOf"] {
            let choices = schema[part].as_array().into_iter().flatten();
            let choices: Vec<&Value> = choices.map(|choice| self.resolve(choice)).collect();
            let objects = choices
                .iter()
                .filter(|choice| choice["properties"].is_object());
            let variants = part == "oneOf" && objects.count() > 1;
            for choice in choices {
                match (variants, choice["properties"].as_object()) {
                    (true, Some(members)) if members.len() == 1 => {
                        for (name, member) in members {
                            self.visit(member, &deeper(Step::Variant(name.clone())));
                        }
                    }
                    _ => self.visit(choice, steps),
                }
            }
        }
        if schema["items"].is_object() {
            self.visit(&schema["items"], &deeper(Step::Item));
        }
        if let Some(members) = schema["properties"].as_object() {
            self.record(steps);
            for (name, member) in members {
                self.visit(member, &deeper(Step::Member(name.clone())));
            }
        }
    }

    /// Keeps the place, with all that the document lacks around it.
    fn record(&mut self, steps: &[Step]) {
        let mut document = self.example.clone();
        let mut pointer = String::new();
        for step in steps {
            let here = document.pointer_mut(&pointer).unwrap();
            let name = match step {
                Step::Item => {
                    if here.get(0).is_none() {
                        *here = json!([{}]);
                    }
                    "0".to_owned()
                }
                Step::Member(name) | Step::Variant(name) => {
                    let keeps = matches!(step, Step::Member(_)) || here.get(name).is_some();
                    if !here.is_object() || !keeps {
                        *here = Map::new().into();
                    }
                    let members = here.as_object_mut().unwrap();
                    members.entry(name.clone()).or_insert_with(|| json!({}));
                    escape(name)
                }
            };
            pointer = format!("{pointer}/{name}");
        }
        let known = self.found.iter().any(|mutant| mutant.pointer == pointer);
        if !known {
            self.found.push(Mutant::new(&document, &pointer, json!([])));
        }
    }
}

#[test]
fn every_object_of_an_example_and_of_a_schema_is_found() {
    let example = json!({ "spec": { "a/b": [{ "c": 1 }] } });
    let mutants = of_example(&example);
    let pointers: Vec<&str> = mutants
        .iter()
        .step_by(5)
        .map(|one| one.pointer.as_str())
        .collect();
    assert_eq!(pointers, ["", "/spec", "/spec/a~1b/0"]);
    assert_eq!(mutants[10].document, json!({ "spec": { "a/b": [[1]] } }));

    let description = json!({ "schemas": { "Inner": { "properties": { "x": {}, "again": { "$ref": "#/schemas/Inner" } } } } });
    let schema = json!({ "properties": {
        "spec": { "properties": {
            "maybe": { "oneOf": [{ "type": "null" }, { "$ref": "#/schemas/Inner" }] },
            "ways": { "oneOf": [
                { "properties": { "one": { "$ref": "#/schemas/Inner" } } },
                { "properties": { "two": { "properties": {} } } },
            ] },
        } },
    } });
    let found = of_schema(
        &description,
        &schema,
        &json!({ "spec": { "ways": { "one": { "x": 1 } } } }),
    );
    let document = |pointer: &str| {
        let one = found.iter().find(|mutant| mutant.pointer == pointer);
        one.map(|mutant| mutant.document["spec"].clone())
    };
    let one = json!({ "one": { "x": 1 } });
    assert_eq!(
        document("/spec/maybe"),
        Some(json!({ "ways": one, "maybe": [] }))
    );
    let again = json!({ "ways": one, "maybe": { "again": [] } });
    assert_eq!(document("/spec/maybe/again"), Some(again));
    assert_eq!(
        document("/spec/ways/two"),
        Some(json!({ "ways": { "two": [] } }))
    );
    assert_eq!(
        document("/spec/ways/one"),
        Some(json!({ "ways": { "one": [] } }))
    );
}
