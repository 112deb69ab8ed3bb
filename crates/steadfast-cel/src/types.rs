//! Types of values.

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `null_type`
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `list`
    List,
    /// `map`
    Map,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// `google.protobuf.Duration`
    Duration,
    /// `type`
    Type,
    /// `optional_type`
    Optional,
    /// `kubernetes.Quantity`
    Quantity,
    /// `kubernetes.URL`
    Url,
    /// `net.IP`
    Ip,
    /// `net.CIDR`
    Cidr,
    /// `kubernetes.Semver`
    Semver,
    /// `kubernetes.NamedFormat`
    Format,
    /// Type of invalid values. Expressions never see the type.
    Invalid,
}

impl Type {
    /// All types that an identifier denotes.
    const NAMED_BY_IDENTIFIER: [Self; 11] = [
        Self::Null,
        Self::Bool,
        Self::Int,
        Self::Uint,
        Self::Double,
        Self::String,
        Self::Bytes,
        Self::List,
        Self::Map,
        Self::Type,
        Self::Optional,
    ];

    /// Returns the name in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Map => "map",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::Type => "type",
            Self::Optional => "optional_type",
            Self::Quantity => "kubernetes.Quantity",
            Self::Url => "kubernetes.URL",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Semver => "kubernetes.Semver",
            Self::Format => "kubernetes.NamedFormat",
            Self::Invalid => "error",
        }
    }

    /// Returns the type that a plain name denotes.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED_BY_IDENTIFIER.into_iter().find(|cel_type| cel_type.name() == name)
    }
}
