//! Nodes of a parsed path.

/// Node of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Nodes that follow each other: an action in braces, or an operand.
    List(Vec<Node>),
    /// Literal text.
    Text(String),
    /// Literal number without a fraction.
    Int(i64),
    /// Literal number with a fraction.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// `.name` or `['name']`.
    Field(String),
    /// `.*`
    Wildcard,
    /// `..`
    Recursive,
    /// `[0]`, `[-1]`, `[0:2]`, `[::2]` and `[*]`.
    Slice(Slice),
    /// `['a','b']` or `[0,2]`; one list of nodes for each alternative.
    Union(Vec<Vec<Node>>),
    /// `[?(left operator right)]`.
    Filter(Filter),
    /// `range`, `end`, or an unknown word.
    Word(String),
}

/// Bounds of a slice as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) step: Option<i64>,
    /// True if the brackets contain only a number: the slice is a single index. `[0:]` is not an index.
    pub(super) is_index: bool,
}

/// Filter of list items.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    pub(super) left: Vec<Node>,
    /// Operator as written, and its right operand; `None` for a test of existence.
    pub(super) comparison: Option<(String, Vec<Node>)>,
}
