//! Values of expressions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::error::CelErrorKind;
use crate::key::Key;
use crate::kubernetes::Extension;
use crate::text::Text;
use crate::time::{CelDuration, CelTimestamp};
use crate::types::Type;

/// Value of an expression. Cheap to clone: large parts are borrowed or shared.
#[derive(Clone, Debug)]
pub enum CelValue<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Signed integer. JSON numbers without a fraction or exponent are of this type if they fit.
    Int(i64),
    /// Unsigned integer. JSON numbers without a fraction or exponent are of this type if only this type fits.
    Uint(u64),
    /// Floating point number.
    Double(f64),
    /// String.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// List.
    List(CelList<'a>),
    /// Map.
    Map(CelMap<'a>),
    /// Timestamp.
    Timestamp(CelTimestamp),
    /// Duration.
    Duration(CelDuration),
    /// Type of a value.
    Type(Type),
    /// Value that may be absent.
    Optional(Option<Arc<CelValue<'a>>>),
    /// Value of a type of Kubernetes: a quantity, URL, address, network, semantic version or named format.
    Extension(Extension),
    /// Value that does not fit its schema. Reading the value is an error with this reason.
    Invalid(&'static str),
}

/// List: part of a JSON value, or computed.
#[derive(Clone, Debug)]
pub struct CelList<'a> {
    items: Items<'a>,
    identity: ItemIdentity,
}

/// Criterion by which two items of two lists are the same, for equality and concatenation of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemIdentity {
    /// The positions of the items: an ordinary list.
    Position,
    /// The values of the items: a list that is a set.
    Value,
    /// The values of these fields of the items: a list that is a map.
    Fields(Arc<[String]>),
}

#[derive(Clone, Debug)]
enum Items<'a> {
    Json(&'a [Json], NullFields),
    Computed(Arc<Vec<CelValue<'a>>>),
}

/// Map: part of a JSON value, or computed.
#[derive(Clone, Debug)]
pub struct CelMap<'a>(Fields<'a>);

#[derive(Clone, Debug)]
enum Fields<'a> {
    Json(&'a serde_json::Map<String, Json>, NullFields),
    Computed(Arc<BTreeMap<Key<'a>, CelValue<'a>>>),
}

/// Treatment of the null fields of a JSON object: as present or as absent fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NullFields {
    Present,
    Absent,
}

impl<'a> From<&'a Json> for CelValue<'a> {
    fn from(json: &'a Json) -> Self {
        Self::from_json(json, NullFields::Present)
    }
}

impl From<String> for CelValue<'_> {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl<'a> From<Vec<CelValue<'a>>> for CelValue<'a> {
    fn from(items: Vec<CelValue<'a>>) -> Self {
        Self::List(CelList::from_items(Items::Computed(Arc::new(items))))
    }
}

impl<'a> CelValue<'a> {
    /// Creates a value from JSON in which null fields count as absent, at every depth.
    ///
    /// A null field is absent for `has`, optional selection, indexes, `in`, `size` and iteration. A plain selection of
    /// the field results in null. Conversion back to JSON keeps the fields.
    pub fn without_nulls(json: &'a Json) -> Self {
        Self::from_json(json, NullFields::Absent)
    }

    fn from_json(json: &'a Json, nulls: NullFields) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            // Kubernetes decodes numbers without fraction and exponent as `int64`, and `1.0` as a double.
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::Uint(number),
                (None, None) => Self::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(CelList::from_items(Items::Json(items, nulls))),
            Json::Object(fields) => Self::Map(CelMap(Fields::Json(fields, nulls))),
        }
    }

    /// Creates a map with names as keys.
    pub fn object(fields: impl IntoIterator<Item = (Text<'a>, Self)>) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (Key::String(name), value));
        Self::map(fields.collect())
    }

    /// Creates a list that is a set: equality ignores the order, and concatenation is union.
    pub fn set(items: Vec<Self>) -> Self {
        Self::List(CelList { items: Items::Computed(Arc::new(items)), identity: ItemIdentity::Value })
    }

    /// Creates a list of objects that the fields `keys` identify. Equality ignores the order, and concatenation
    /// replaces objects of the left list by those of the right list.
    pub fn keyed(items: Vec<Self>, keys: &[String]) -> Self {
        Self::List(CelList { items: Items::Computed(Arc::new(items)), identity: ItemIdentity::Fields(keys.into()) })
    }

    /// Parses a timestamp in RFC 3339. Returns `None` for other text.
    pub fn timestamp(text: &str) -> Option<Self> {
        CelTimestamp::parse(text).map(Self::Timestamp)
    }

    /// Parses a duration such as `1h30m`. Returns `None` for other text.
    pub fn duration(text: &str) -> Option<Self> {
        CelDuration::parse(text).map(Self::Duration)
    }

    /// Creates a present optional value.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn map(fields: BTreeMap<Key<'a>, Self>) -> Self {
        Self::Map(CelMap(Fields::Computed(Arc::new(fields))))
    }

    /// Returns the type of the value.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::List,
            Self::Map(_) => Type::Map,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::Type(_) => Type::Type,
            Self::Optional(_) => Type::Optional,
            Self::Extension(extension) => extension.type_of(),
            Self::Invalid(_) => Type::Invalid,
        }
    }

    /// Returns the value unless it is invalid.
    pub(crate) fn into_valid(self) -> Result<Self, CelErrorKind> {
        match self {
            // Schema mismatches surface here, at the first read. An unread invalid field must not fail a rule.
            Self::Invalid(reason) => Err(CelErrorKind::Unavailable(reason.to_owned())),
            value => Ok(value),
        }
    }

    /// Returns whether `optional.ofNonZeroValue` treats the value as absent.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.len() == 0,
            Self::Map(map) => map.is_empty(),
            Self::Timestamp(_) | Self::Type(_) | Self::Extension(_) | Self::Invalid(_) => false,
            Self::Duration(duration) => duration.length.is_zero(),
            Self::Optional(value) => value.is_none(),
        }
    }

    /// Returns the value as a key of a map. Returns `None` for values that cannot be keys, including all doubles.
    pub(crate) fn key(&self) -> Option<Key<'a>> {
        Some(match self {
            Self::Bool(value) => Key::Bool(*value),
            Self::Int(value) => Key::Int(*value),
            Self::Uint(value) => Key::Uint(*value),
            Self::String(text) => Key::String(text.clone()),
            // Lookups accept whole doubles: their callers convert these to integers first. Literals of maps must reject
            // doubles.
            _ => return None,
        })
    }
}

impl<'a> From<Key<'a>> for CelValue<'a> {
    fn from(key: Key<'a>) -> Self {
        match key {
            Key::Bool(value) => Self::Bool(value),
            Key::Int(value) => Self::Int(value),
            Key::Uint(value) => Self::Uint(value),
            Key::String(text) => Self::String(text),
        }
    }
}

impl<'a> CelList<'a> {
    fn from_items(items: Items<'a>) -> Self {
        Self { items, identity: ItemIdentity::Position }
    }

    /// Creates a list of the same kind with other items.
    pub(crate) fn with_items(&self, items: Vec<CelValue<'a>>) -> Self {
        Self { items: Items::Computed(Arc::new(items)), identity: self.identity.clone() }
    }

    pub(crate) fn identity(&self) -> &ItemIdentity {
        &self.identity
    }

    /// Returns the number of items.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs `is_empty`")]
    pub fn len(&self) -> usize {
        // Null items count, even if null fields count as absent: the positions of other items depend on them.
        match &self.items {
            Items::Json(items, _) => items.len(),
            Items::Computed(items) => items.len(),
        }
    }

    /// Returns the item at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<CelValue<'a>> {
        match &self.items {
            Items::Json(items, nulls) => items.get(index).map(|item| CelValue::from_json(item, *nulls)),
            Items::Computed(items) => items.get(index).cloned(),
        }
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl Iterator<Item = CelValue<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> CelMap<'a> {
    /// Returns the number of entries. If null fields count as absent, the time is proportional to the number of fields.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Fields::Json(fields, NullFields::Present) => fields.len(),
            // The count is not cached: a map is created for each access, and most maps are never measured.
            Fields::Json(fields, NullFields::Absent) => fields.values().filter(|value| !value.is_null()).count(),
            Fields::Computed(fields) => fields.len(),
        }
    }

    /// Returns an upper bound of the number of entries in constant time.
    pub(crate) fn max_len(&self) -> usize {
        match &self.0 {
            Fields::Json(fields, _) => fields.len(),
            Fields::Computed(fields) => fields.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a name.
    pub fn field(&self, name: &str) -> Option<CelValue<'a>> {
        match &self.0 {
            Fields::Json(fields, nulls) => {
                let field = fields.get(name)?;
                // The mode for nulls is inherited, so that nested objects treat null fields the same way.
                (*nulls == NullFields::Present || !field.is_null()).then(|| CelValue::from_json(field, *nulls))
            }
            Fields::Computed(fields) => fields.get(&Key::String(Text::Shared(name.into()))).cloned(),
        }
    }

    /// Returns whether a field of a JSON object is null, even if null fields count as absent.
    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.json().is_some_and(|fields| fields.get(name).is_some_and(Json::is_null))
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &Key<'a>) -> Option<CelValue<'a>> {
        match (&self.0, key) {
            (Fields::Json(..), Key::String(name)) => self.field(name),
            // JSON objects have strings as keys only.
            (Fields::Json(..), _) => None,
            (Fields::Computed(fields), key) => fields.get(key).cloned(),
        }
    }

    /// Returns the entries in the order of their keys. Computed maps copy their entries.
    pub(crate) fn entries(&self) -> Box<dyn Iterator<Item = (Key<'a>, CelValue<'a>)> + 'a> {
        match &self.0 {
            Fields::Json(fields, nulls) => {
                let nulls = *nulls;
                let present = fields.iter().filter(move |(_, value)| nulls == NullFields::Present || !value.is_null());
                Box::new(
                    present.map(move |(name, value)| {
                        (Key::String(Text::Borrowed(name)), CelValue::from_json(value, nulls))
                    }),
                )
            }
            Fields::Computed(fields) => {
                // The copy frees the iterator from the borrow of `self`. Keys and values are shared, so that a copy is
                // cheap.
                let entries: Vec<_> = fields.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                Box::new(entries.into_iter())
            }
        }
    }

    /// Returns the JSON object of the map, with its null fields.
    pub(crate) fn json(&self) -> Option<&'a serde_json::Map<String, Json>> {
        match &self.0 {
            Fields::Json(fields, _) => Some(fields),
            Fields::Computed(_) => None,
        }
    }
}
