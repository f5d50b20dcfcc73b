//! Closed sets of words: enums stored, sent and shown as text.

/// A text outside the set of words. The database constraints make such a row impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a {1}")]
pub struct UnknownWord(pub String, pub &'static str);

/// Defines an enum with one word per variant, the same in the database, in JSON and on screen.
/// With the feature `sqlx` a query reads and binds the enum as text.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$variant_meta:meta])* $variant:ident = $word:tt),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word of the set.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the word as stored, sent and shown.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    other => Err($crate::words::UnknownWord(other.to_owned(), $what)),
                }
            }
        }

        $crate::stored_as_text!($name);
    };
}

/// Implements the traits of checked queries: the enum is a `text` column.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
#[macro_export]
macro_rules! stored_as_text {
    ($name:ident) => {
        impl $crate::words::sqlx::Type<$crate::words::sqlx::Postgres> for $name {
            fn type_info() -> $crate::words::sqlx::postgres::PgTypeInfo {
                <str as $crate::words::sqlx::Type<$crate::words::sqlx::Postgres>>::type_info()
            }

            fn compatible(ty: &$crate::words::sqlx::postgres::PgTypeInfo) -> bool {
                <str as $crate::words::sqlx::Type<$crate::words::sqlx::Postgres>>::compatible(ty)
            }
        }

        impl $crate::words::sqlx::postgres::PgHasArrayType for $name {
            fn array_type_info() -> $crate::words::sqlx::postgres::PgTypeInfo {
                <&str as $crate::words::sqlx::postgres::PgHasArrayType>::array_type_info()
            }
        }

        impl<'r> $crate::words::sqlx::Decode<'r, $crate::words::sqlx::Postgres> for $name {
            fn decode(
                value: $crate::words::sqlx::postgres::PgValueRef<'r>,
            ) -> Result<Self, $crate::words::sqlx::error::BoxDynError> {
                let text =
                    <&str as $crate::words::sqlx::Decode<$crate::words::sqlx::Postgres>>::decode(
                        value,
                    )?;
                Ok(text.parse()?)
            }
        }

        impl<'q> $crate::words::sqlx::Encode<'q, $crate::words::sqlx::Postgres> for $name {
            fn encode_by_ref(
                &self,
                buf: &mut $crate::words::sqlx::postgres::PgArgumentBuffer,
            ) -> Result<
                $crate::words::sqlx::encode::IsNull,
                $crate::words::sqlx::error::BoxDynError,
            > {
                <&str as $crate::words::sqlx::Encode<$crate::words::sqlx::Postgres>>::encode(
                    self.as_str(),
                    buf,
                )
            }
        }
    };
}

/// Leaves the database out: only the server stores words.
#[cfg(not(feature = "sqlx"))]
#[doc(hidden)]
#[macro_export]
macro_rules! stored_as_text {
    ($name:ident) => {};
}

#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use ::sqlx;
