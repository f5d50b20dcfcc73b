//! Reads JSON as a type, and accepts only an object for a struct. Plain `serde_json` also reads a
//! struct from an array of values, and a variant without content from `{"variant": null}`. The
//! value would be right, but the stored JSON would have another shape.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use super::mistake::Mistake;

const ARRAY_FOR_OBJECT: &str = "an array is given, and an object is expected";

/// A JSON value to read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strict<'value>(pub(super) &'value Value);

impl<'de> IntoDeserializer<'de, Mistake> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The name of a member or of a variant.
#[derive(Clone, Copy, Debug)]
struct Name<'value>(&'value str);

impl<'de> IntoDeserializer<'de, Mistake> for Name<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_enum(Variant {
            name: self.0,
            content: None,
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn visit_items<'de, V: Visitor<'de>>(items: &'de [Value], visitor: V) -> Result<V::Value, Mistake> {
    let mut access = SeqDeserializer::new(items.iter().map(Strict));
    let value = visitor.visit_seq(&mut access)?;
    access.end().map(|()| value)
}

fn visit_members<'de, V: Visitor<'de>>(
    members: &'de Map<String, Value>,
    visitor: V,
) -> Result<V::Value, Mistake> {
    let members = members
        .iter()
        .map(|(name, member)| (Name(name), Strict(member)));
    let mut access = MapDeserializer::new(members);
    let value = visitor.visit_map(&mut access)?;
    access.end().map(|()| value)
}

/// Returns whether serde is reading an enum with the variant named by a member (`#[serde(tag =
/// "…")]`). serde also reads such an enum from an array beginning with the variant's name. The text
/// of `expected` is the only available hint.
fn is_tagged(expected: &dyn Expected) -> bool {
    expected.to_string().starts_with("internally tagged enum")
}

/// Visits the members of a struct. Anything but an object is rejected.
fn visit_object<'de, V: Visitor<'de>>(value: &'de Value, visitor: V) -> Result<V::Value, Mistake> {
    match value {
        Value::Object(members) => visit_members(members, visitor),
        Value::Array(_) => Err(Mistake::custom(ARRAY_FOR_OBJECT)),
        scalar => Ok(scalar.deserialize_map(visitor)?),
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Array(_) if is_tagged(&visitor) => Err(Mistake::custom(ARRAY_FOR_OBJECT)),
            Value::Array(items) => visit_items(items, visitor),
            Value::Object(members) => visit_members(members, visitor),
            scalar => Ok(scalar.deserialize_any(visitor)?),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visit_object(self.0, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let variant = match self.0 {
            Value::String(name) => Variant {
                name,
                content: None,
            },
            Value::Object(members) => match members.iter().next() {
                Some((name, content)) if members.len() == 1 => Variant {
                    name,
                    content: Some(content),
                },
                _ => {
                    let expected = &"an object with one member";
                    return Err(Mistake::invalid_value(Unexpected::Map, expected));
                }
            },
            Value::Array(_) => {
                let expected = &"a text or an object with one member";
                return Err(Mistake::invalid_type(Unexpected::Seq, expected));
            }
            scalar => return Ok(scalar.deserialize_enum("", &[], visitor)?),
        };
        visitor.visit_enum(variant)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

/// A variant of an enum: the name alone, or the name with content.
struct Variant<'value> {
    name: &'value str,
    content: Option<&'value Value>,
}

impl<'value> Variant<'value> {
    fn content(&self, expected: &'static str) -> Result<&'value Value, Mistake> {
        let missing = || Mistake::invalid_type(Unexpected::UnitVariant, &expected);
        self.content.ok_or_else(missing)
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Mistake> {
        let name = seed.deserialize(Name(self.name))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(Mistake::custom(format!(
                "an object is given, and the text {:?} is expected",
                self.name
            ))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Mistake> {
        seed.deserialize(Strict(self.content("a variant with a value")?))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mistake> {
        Strict(self.content("a variant with a list")?).deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visit_object(self.content("a variant with members")?, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        #[serde(default)]
        units: u32,
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
    struct Text(String);

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Plain,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        Plain,
        One(Inner),
        Two(u8, Text),
        Named { at: Inner },
    }

    fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, String> {
        T::deserialize(Strict(value)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_struct_is_read_from_an_object_alone() {
        assert_eq!(read(&json!({ "units": 3 })), Ok(Inner { units: 3 }));
        for wrong in [json!([3]), json!([])] {
            assert_eq!(read::<Inner>(&wrong).unwrap_err(), ARRAY_FOR_OBJECT);
            assert_eq!(read::<Option<Inner>>(&wrong).unwrap_err(), ARRAY_FOR_OBJECT);
            let nested = json!([{ "units": 1 }, wrong]);
            assert_eq!(read::<Vec<Inner>>(&nested).unwrap_err(), ARRAY_FOR_OBJECT);
        }
        for wrong in [json!(null), json!("x"), json!(3), json!(true)] {
            assert!(read::<Inner>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_enum_is_read_from_the_shape_that_it_is_written_in() {
        for (value, choice) in [
            (json!("plain"), Choice::Plain),
            (
                json!({ "one": { "units": 1 } }),
                Choice::One(Inner { units: 1 }),
            ),
            (json!({ "two": [1, "x"] }), Choice::Two(1, Text("x".into()))),
            (
                json!({ "named": { "at": {} } }),
                Choice::Named {
                    at: Inner { units: 0 },
                },
            ),
        ] {
            assert_eq!(read(&value), Ok(choice), "{value}");
        }
        for wrong in [
            json!({ "plain": null }),
            json!({ "plain": {} }),
            json!("one"),
            json!({ "one": [1] }),
            json!({ "two": { "0": 1, "1": "x" } }),
            json!({ "two": [1, "x", 2] }),
            json!({ "named": [{}] }),
            json!({ "named": { "at": [] } }),
            json!({ "plain": null, "one": {} }),
            json!({}),
            json!(["plain"]),
            json!(null),
            json!(1),
        ] {
            assert!(read::<Choice>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_enum_whose_variant_is_a_member_is_read_from_an_object_alone() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        enum Tagged {
            Inner(Inner),
            None,
        }
        let inner = json!({ "kind": "inner", "units": 1 });
        assert_eq!(read(&inner), Ok(Tagged::Inner(Inner { units: 1 })));
        assert_eq!(read(&json!({ "kind": "none" })), Ok(Tagged::None));
        for wrong in [json!(["inner", 1]), json!(["none"]), json!([])] {
            assert_eq!(read::<Tagged>(&wrong).unwrap_err(), ARRAY_FOR_OBJECT);
            assert!(read::<Vec<Tagged>>(&json!([wrong])).is_err());
        }
    }

    #[test]
    fn lists_pairs_and_maps_stay_what_they_are() {
        assert_eq!(read(&json!([1, 2])), Ok(vec![1, 2]));
        assert_eq!(read(&json!([1, "x"])), Ok((1, Text("x".into()))));
        assert!(read::<(u8, u8)>(&json!([1, 2, 3])).is_err());
        let map = BTreeMap::from([(Word::Plain, Some(1.5))]);
        assert_eq!(read(&json!({ "plain": 1.5 })), Ok(map));
        let map = BTreeMap::from([(Text("x".into()), 1)]);
        assert_eq!(read(&json!({ "x": 1 })), Ok(map));
        let map = BTreeMap::from([(Some("x".to_owned()), 1)]);
        assert_eq!(read(&json!({ "x": 1 })), Ok(map));
        assert!(read::<BTreeMap<String, u8>>(&json!([["a", 1]])).is_err());
        assert!(read::<Vec<u8>>(&json!({})).is_err());
        let any = json!({ "a": [1, { "b": null }] });
        assert_eq!(read::<Value>(&any), Ok(any.clone()));
        assert_eq!(
            read(&json!("10.0.0.1")),
            Ok(std::net::Ipv4Addr::new(10, 0, 0, 1))
        );
    }
}
