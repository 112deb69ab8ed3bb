//! Types that the checker knows before an evaluation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::types::Type;

/// Type of an expression, as far as it is known before an evaluation. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub enum StaticType {
    /// Any type: a value without a schema, or a result that the checker does not know.
    Any,
    /// Type without parameters.
    Plain(Type),
    /// List with the type of its items.
    List(Arc<StaticType>),
    /// Map with the types of its keys and values.
    Map(Arc<StaticType>, Arc<StaticType>),
    /// Object with the types of its fields.
    Object(Arc<BTreeMap<String, StaticType>>),
    /// Optional value with the type of the value.
    Optional(Arc<StaticType>),
    /// The type itself as a value.
    TypeOf(Arc<StaticType>),
}

impl StaticType {
    /// `bool`
    pub const BOOL: Self = Self::Plain(Type::Bool);
    /// `int`
    pub const INT: Self = Self::Plain(Type::Int);
    /// `string`
    pub const STRING: Self = Self::Plain(Type::String);
    /// Type of a wrong expression, which fits everywhere.
    pub(super) const ERROR: Self = Self::Plain(Type::Invalid);

    /// Creates a list type.
    pub fn list(items: Self) -> Self {
        Self::List(Arc::new(items))
    }

    /// Creates an optional type.
    pub fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Creates the type of maps with strings as keys.
    pub fn map_of(values: Self) -> Self {
        Self::Map(Arc::new(Self::STRING), Arc::new(values))
    }

    /// Returns the type of an expression that consists of a type name. The expression `int` has the type `type(int)`.
    pub(super) fn type_of(cel_type: Type) -> Self {
        Self::TypeOf(Arc::new(match cel_type {
            Type::List => Self::list(Self::Any),
            Type::Map => Self::Map(Arc::new(Self::Any), Arc::new(Self::Any)),
            Type::Optional => Self::optional(Self::Any),
            Type::Type => Self::TypeOf(Arc::new(Self::Any)),
            cel_type => Self::Plain(cel_type),
        }))
    }

    /// Returns whether a value of one type is accepted as the other. True if one of the types is `dyn` or the error
    /// type.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any | Self::Plain(Type::Invalid), _)
            | (_, Self::Any | Self::Plain(Type::Invalid))
            | (Self::TypeOf(_), Self::TypeOf(_)) => true,
            (Self::Plain(Type::Null), other) | (other, Self::Plain(Type::Null)) => other.is_nullable(),
            (Self::Plain(one), Self::Plain(other)) => one == other,
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one.fits(other),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.fits(other_key) && value.fits(other_value)
            }
            // Types of objects are compared by their fields here, and by their names in cel-go.
            (Self::Object(one), Self::Object(other)) => one == other,
            _ => false,
        }
    }

    /// Returns whether `null` is accepted as a value of the type.
    fn is_nullable(&self) -> bool {
        const NON_NULLABLE: [Type; 6] = [Type::Bool, Type::Int, Type::Uint, Type::Double, Type::String, Type::Bytes];
        match self {
            Self::Plain(cel_type) => !NON_NULLABLE.contains(cel_type),
            Self::Any | Self::Object(_) | Self::Optional(_) => true,
            Self::List(_) | Self::Map(..) | Self::TypeOf(_) => false,
        }
    }

    /// Returns whether the type equals the other type, except for parts that are `dyn` here.
    pub(super) fn is_more_general(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::List(one), Self::List(other))
            | (Self::Optional(one), Self::Optional(other))
            | (Self::TypeOf(one), Self::TypeOf(other)) => one.is_more_general(other),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.is_more_general(other_key) && value.is_more_general(other_value)
            }
            _ => self == other,
        }
    }

    /// Returns whether items of both types may be in one literal. Unlike in [`fits`](Self::fits), an item of type `dyn`
    /// only fits other items of type `dyn`. A `dyn` within a type still fits every type, because it may be the item type
    /// of an empty list, as in `[[], [1]]`.
    pub(super) fn can_share_literal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any | Self::Plain(_), _) | (_, Self::Any | Self::Plain(_)) => self == other,
            _ => self.fits(other),
        }
    }
}

impl fmt::Display for StaticType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("dyn"),
            Self::Plain(Type::Invalid) => f.write_str("!error!"),
            Self::Plain(Type::Null) => f.write_str("null"),
            Self::Plain(Type::Timestamp) => f.write_str("timestamp"),
            Self::Plain(Type::Duration) => f.write_str("duration"),
            Self::Plain(cel_type) => f.write_str(cel_type.name()),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::TypeOf(inner) => write!(f, "type({inner})"),
        }
    }
}
