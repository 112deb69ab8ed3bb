//! Types that the checker knows before an evaluation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::types::Type;

/// Type of an expression, as far as it is known before an evaluation. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Any type: a value without a schema, or a result that the checker does not know.
    Any,
    /// Type without parameters.
    Plain(Type),
    /// List with the type of its items.
    List(Arc<Kind>),
    /// Map with the types of its keys and values.
    Map(Arc<Kind>, Arc<Kind>),
    /// Object with the types of its fields.
    Object(Arc<BTreeMap<String, Kind>>),
    /// Optional value with the type of the value.
    Optional(Arc<Kind>),
}

impl Kind {
    /// `bool`
    pub const BOOL: Self = Self::Plain(Type::Bool);
    /// `int`
    pub const INT: Self = Self::Plain(Type::Int);
    /// `string`
    pub const STRING: Self = Self::Plain(Type::String);

    /// Creates a list type.
    pub fn list(items: Self) -> Self {
        Self::List(Arc::new(items))
    }

    /// Creates an optional type.
    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Creates the type of maps with strings as keys.
    pub fn map_of(values: Self) -> Self {
        Self::Map(Arc::new(Self::STRING), Arc::new(values))
    }

    /// Returns whether values of both types may be of one type. True if in doubt.
    pub(super) fn fits(&self, other: &Self) -> bool {
        const SCALARS: [Type; 6] = [Type::Bool, Type::Int, Type::Uint, Type::Double, Type::String, Type::Bytes];
        match (self, other) {
            // A declared object and a computed map are the same type at run time.
            (Self::Any, _)
            | (_, Self::Any)
            | (Self::Object(_), Self::Object(_) | Self::Map(..))
            | (Self::Map(..), Self::Object(_)) => true,
            // Only scalar types never have a null value.
            (Self::Plain(Type::Null), other) | (other, Self::Plain(Type::Null)) => {
                !matches!(other, Self::Plain(named) if SCALARS.contains(named))
            }
            (Self::Plain(one), Self::Plain(other)) => one == other,
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one.fits(other),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.fits(other_key) && value.fits(other_value)
            }
            _ => false,
        }
    }

    pub(super) fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("dyn"),
            Self::Plain(Type::Null) => f.write_str("null"),
            Self::Plain(Type::Timestamp) => f.write_str("timestamp"),
            Self::Plain(Type::Duration) => f.write_str("duration"),
            Self::Plain(named) => f.write_str(named.name()),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
        }
    }
}
