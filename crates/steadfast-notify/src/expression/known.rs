//! What expressions may call, and what is handed to them.

/// The kinds of values that can be known before there is an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Number,
    Text,
    Bytes,
    List,
    Map,
    Null,
    /// It depends on the object.
    Any,
}

impl Kind {
    /// As people say it.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Bytes => "bytes",
            Self::List => "a list",
            Self::Map => "a map",
            Self::Null => "null",
            Self::Any => "anything",
        }
    }

    /// Whether a value of this kind may be one of `other`.
    pub(super) fn may_be(self, other: Self) -> bool {
        self == other || self == Self::Any || other == Self::Any
    }
}

/// What rules are evaluated over.
pub(super) const NAMES: [&str; 4] = ["old", "new", "object", "event"];

/// Names of CEL's own, which stand for types.
pub(super) const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"];

/// What `event` has.
pub(super) const EVENT: [(&str, Kind); 10] = [
    ("id", Kind::Text),
    ("type", Kind::Text),
    ("initial", Kind::Bool),
    ("cluster", Kind::Text),
    ("resource", Kind::Text),
    ("namespace", Kind::Text),
    ("name", Kind::Text),
    ("uid", Kind::Text),
    ("certainty", Kind::Text),
    ("reason", Kind::Text),
];

/// What can be called, and what comes of it.
pub(super) const FUNCTIONS: [(&str, Kind); 41] = [
    ("bool", Kind::Bool),
    ("bytes", Kind::Bytes),
    ("changed", Kind::Bool),
    ("charAt", Kind::Text),
    ("contains", Kind::Bool),
    ("double", Kind::Number),
    ("dyn", Kind::Any),
    ("endsWith", Kind::Bool),
    ("format", Kind::Text),
    ("hasValue", Kind::Bool),
    ("indexOf", Kind::Number),
    ("int", Kind::Number),
    ("join", Kind::Text),
    ("lastIndexOf", Kind::Number),
    ("lowerAscii", Kind::Text),
    ("matches", Kind::Bool),
    ("none", Kind::Any),
    ("of", Kind::Any),
    ("ofNonZeroValue", Kind::Any),
    ("optFlatMap", Kind::Any),
    ("optMap", Kind::Any),
    ("or", Kind::Any),
    ("orValue", Kind::Any),
    ("quote", Kind::Text),
    ("replace", Kind::Text),
    ("reverse", Kind::Text),
    ("size", Kind::Number),
    ("split", Kind::List),
    ("startsWith", Kind::Bool),
    ("string", Kind::Text),
    ("substring", Kind::Text),
    ("trim", Kind::Text),
    ("type", Kind::Any),
    ("uint", Kind::Number),
    ("upperAscii", Kind::Text),
    ("value", Kind::Any),
    ("optional.of", Kind::Any),
    ("optional.none", Kind::Any),
    ("optional.ofNonZeroValue", Kind::Any),
    ("strings.quote", Kind::Text),
    ("@not_strictly_false", Kind::Any),
];
