//! Variables and functions of expressions, and the kinds of their values.

/// Kind of a value, as far as known before evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

impl Kind {
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
pub(super) const EVENT_FIELDS: [(&str, Kind); 11] = [
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
    ("cause", Kind::Text),
];

/// Functions, and the kinds of their results.
pub(super) const FUNCTIONS: [(&str, Kind); 46] = [
    ("bool", Kind::Bool),
    ("bytes", Kind::Bytes),
    ("changed", Kind::Bool),
    ("charAt", Kind::Text),
    ("contains", Kind::Bool),
    ("double", Kind::Number),
    ("duration", Kind::Duration),
    ("dyn", Kind::Any),
    ("endsWith", Kind::Bool),
    ("format", Kind::Text),
    ("getDate", Kind::Number),
    ("getDayOfMonth", Kind::Number),
    ("getDayOfWeek", Kind::Number),
    ("getDayOfYear", Kind::Number),
    ("getFullYear", Kind::Number),
    ("getHours", Kind::Number),
    ("getMilliseconds", Kind::Number),
    ("getMinutes", Kind::Number),
    ("getMonth", Kind::Number),
    ("getSeconds", Kind::Number),
    ("hasValue", Kind::Bool),
    ("indexOf", Kind::Number),
    ("int", Kind::Number),
    ("join", Kind::Text),
    ("lastIndexOf", Kind::Number),
    ("lowerAscii", Kind::Text),
    ("matches", Kind::Bool),
    ("optional.none", Kind::Any),
    ("optional.of", Kind::Any),
    ("optional.ofNonZeroValue", Kind::Any),
    ("or", Kind::Any),
    ("orValue", Kind::Any),
    ("replace", Kind::Text),
    ("reverse", Kind::Text),
    ("size", Kind::Number),
    ("split", Kind::List),
    ("startsWith", Kind::Bool),
    ("string", Kind::Text),
    ("strings.quote", Kind::Text),
    ("substring", Kind::Text),
    ("timestamp", Kind::Time),
    ("trim", Kind::Text),
    ("type", Kind::Any),
    ("uint", Kind::Number),
    ("upperAscii", Kind::Text),
    ("value", Kind::Any),
];
