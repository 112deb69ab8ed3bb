//! Variables and functions of expressions, and the kinds of their values.

/// Kind of a value, as far as known before evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Bool,
    Number,
    Text,
    Bytes,
    List,
    Map,
    Null,
    Time,
    Duration,
    /// Depends on the object.
    Any,
}

impl ValueType {
    /// Returns the kind in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::List => "a list",
            Self::Map => "a map",
            Self::Null => "null",
            Self::Time => "a time",
            Self::Duration => "a duration",
            Self::Any => "anything",
        }
    }

    /// Returns true if a value of this kind can be of kind `other`.
    pub(super) fn may_be(self, other: Self) -> bool {
        self == other || self == Self::Any || other == Self::Any
    }

    /// Returns true for times and durations.
    pub(super) fn is_time_or_duration(self) -> bool {
        matches!(self, Self::Time | Self::Duration)
    }

    /// Returns true if subtracting `other` can be a subtraction of times or durations.
    pub(super) fn may_subtract_times(self, other: Self) -> bool {
        matches!(
            (self.is_time_or_duration() || self == Self::Any, other.is_time_or_duration() || other == Self::Any),
            (true, true)
        ) && (self.is_time_or_duration() || other.is_time_or_duration())
    }

    /// Returns the kind of a sum. A sum with a time or a duration can be a time or a duration.
    pub(super) fn sum_kind(self) -> Self {
        if self.is_time_or_duration() { Self::Any } else { self }
    }
}

/// Variables of rules.
pub(super) const VARIABLE_NAMES: [&str; 5] = ["old", "new", "object", "event", "now"];

/// Fields of `event`.
pub(super) const EVENT_FIELDS: [(&str, ValueType); 11] = [
    ("id", ValueType::Text),
    ("type", ValueType::Text),
    ("initial", ValueType::Bool),
    ("cluster", ValueType::Text),
    ("resource", ValueType::Text),
    ("namespace", ValueType::Text),
    ("name", ValueType::Text),
    ("uid", ValueType::Text),
    ("certainty", ValueType::Text),
    ("reason", ValueType::Text),
    ("cause", ValueType::Text),
];

/// Functions, and the kinds of their results.
pub(super) const FUNCTIONS: [(&str, ValueType); 46] = [
    ("bool", ValueType::Bool),
    ("bytes", ValueType::Bytes),
    ("changed", ValueType::Bool),
    ("charAt", ValueType::Text),
    ("contains", ValueType::Bool),
    ("double", ValueType::Number),
    ("duration", ValueType::Duration),
    ("dyn", ValueType::Any),
    ("endsWith", ValueType::Bool),
    ("format", ValueType::Text),
    ("getDate", ValueType::Number),
    ("getDayOfMonth", ValueType::Number),
    ("getDayOfWeek", ValueType::Number),
    ("getDayOfYear", ValueType::Number),
    ("getFullYear", ValueType::Number),
    ("getHours", ValueType::Number),
    ("getMilliseconds", ValueType::Number),
    ("getMinutes", ValueType::Number),
    ("getMonth", ValueType::Number),
    ("getSeconds", ValueType::Number),
    ("hasValue", ValueType::Bool),
    ("indexOf", ValueType::Number),
    ("int", ValueType::Number),
    ("join", ValueType::Text),
    ("lastIndexOf", ValueType::Number),
    ("lowerAscii", ValueType::Text),
    ("matches", ValueType::Bool),
    ("optional.none", ValueType::Any),
    ("optional.of", ValueType::Any),
    ("optional.ofNonZeroValue", ValueType::Any),
    ("or", ValueType::Any),
    ("orValue", ValueType::Any),
    ("replace", ValueType::Text),
    ("reverse", ValueType::Text),
    ("size", ValueType::Number),
    ("split", ValueType::List),
    ("startsWith", ValueType::Bool),
    ("string", ValueType::Text),
    ("strings.quote", ValueType::Text),
    ("substring", ValueType::Text),
    ("timestamp", ValueType::Time),
    ("trim", ValueType::Text),
    ("type", ValueType::Any),
    ("uint", ValueType::Number),
    ("upperAscii", ValueType::Text),
    ("value", ValueType::Any),
];
