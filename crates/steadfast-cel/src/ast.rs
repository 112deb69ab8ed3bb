//! Syntax tree of an expression.

use std::sync::Arc;

/// Node of the syntax tree.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Byte offset of the node in the text. An operation has the offset of its first operator. A call, or a selection
    /// of a field, has the offset of the name. Other nodes have the offset of their first byte.
    pub offset: u32,
    /// Content.
    pub kind: ExprKind,
}

/// Content of a node.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Constant.
    Literal(Literal),
    /// Variable, or the name of a type.
    Name(String),
    /// `of.field`, or `of.?field` if `optional`.
    Select {
        /// Operand.
        of: Box<Expr>,
        /// Name of the field.
        field: String,
        /// True if an absent field results in an empty optional.
        optional: bool,
    },
    /// `has(of.field)`.
    Has {
        /// Operand.
        of: Box<Expr>,
        /// Name of the field.
        field: String,
    },
    /// `of[index]`, or `of[?index]` if `optional`.
    Index {
        /// Operand.
        of: Box<Expr>,
        /// Key of a map, or index of a list item.
        index: Box<Expr>,
        /// True if an absent item results in an empty optional.
        optional: bool,
    },
    /// `name(arguments)` or `target.name(arguments)`. Functions of the namespaces `optional` and `strings` have no
    /// target and a full name: `optional.of`.
    Call {
        /// Receiver of a member call.
        target: Option<Box<Expr>>,
        /// Name of the function.
        name: String,
        /// Arguments without the target.
        arguments: Vec<Expr>,
    },
    /// `[a, ?b]`.
    List(Vec<ListItem>),
    /// `{a: b, ?c: d}`.
    Map(Vec<MapEntry>),
    /// `Name{field: value}`. No message types exist: evaluation fails.
    Message {
        /// Name of the type.
        name: String,
    },
    /// `!a`.
    Not(Box<Expr>),
    /// `-a`.
    Negate(Box<Expr>),
    /// Operands of binary operators with equal precedence, evaluated from the left. A long chain is one level deep.
    Binary {
        /// Leftmost operand.
        first: Box<Expr>,
        /// Operators with their right operands; at least one.
        rest: Vec<BinaryOperation>,
    },
    /// `a && b && c`; at least two operands.
    And(Vec<Expr>),
    /// `a || b || c`; at least two operands.
    Or(Vec<Expr>),
    /// `condition ? yes : no`.
    Conditional {
        /// Condition.
        condition: Box<Expr>,
        /// Value if the condition is true.
        yes: Box<Expr>,
        /// Value if the condition is false.
        no: Box<Expr>,
    },
    /// A macro over the items of a list or the keys of a map.
    Comprehension(Box<Comprehension>),
    /// `cel.bind(name, value, body)`.
    Bind {
        /// Name of the variable.
        name: String,
        /// Value of the variable.
        value: Box<Expr>,
        /// Expression that may use the variable.
        body: Box<Expr>,
    },
    /// `of.optMap(name, body)`, or `of.optFlatMap(name, body)` if `flat`.
    OptionalMap {
        /// Optional value.
        of: Box<Expr>,
        /// Name of the variable.
        name: String,
        /// Expression over the variable.
        body: Box<Expr>,
        /// True if the body itself results in an optional value.
        flat: bool,
    },
}

/// Constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Signed integer.
    Int(i64),
    /// Unsigned integer, as `1u`.
    Uint(u64),
    /// Floating point number.
    Double(f64),
    /// String.
    String(Arc<str>),
    /// Bytes, as `b'…'`.
    Bytes(Arc<[u8]>),
    /// Name of a type that is not a plain identifier: `google.protobuf.Timestamp`.
    Type(crate::types::Type),
}

/// Item of a list literal.
#[derive(Clone, Debug)]
pub struct ListItem {
    /// True if the value is an optional. An empty optional adds no item.
    pub optional: bool,
    /// Value.
    pub value: Expr,
}

/// Entry of a map literal.
#[derive(Clone, Debug)]
pub struct MapEntry {
    /// True if the value is an optional. An empty optional adds no entry.
    pub optional: bool,
    /// Key.
    pub key: Expr,
    /// Value.
    pub value: Expr,
}

/// Operator and right operand in an [`ExprKind::Binary`].
#[derive(Clone, Debug)]
pub struct BinaryOperation {
    /// Operator.
    pub operator: Operator,
    /// Byte offset of the operator in the text.
    pub offset: u32,
    /// Right operand.
    pub right: Expr,
}

/// Binary operator other than `&&` and `||`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `in`
    In,
}

impl Operator {
    /// Returns the name in error messages, as other implementations of CEL write operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessOrEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterOrEqual => "_>=_",
            Self::In => "@in",
        }
    }
}

/// Macro over the items of a list or the keys of a map.
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// Macro of the comprehension.
    pub kind: ComprehensionKind,
    /// List or map.
    pub range: Expr,
    /// Name of the variable for the item of a list or the key of a map. In macros with two variables, the variable for
    /// the index or the key.
    pub name: String,
    /// Name of the second variable, for the item or the value; `None` in macros with one variable.
    pub second: Option<String>,
    /// Condition of `filter`, of `map` with three arguments, and of the `transform…` macros.
    pub condition: Option<Expr>,
    /// Predicate of `all`, `exists` and `exists_one`, key of `sortBy`, or the new item. `None` for `filter`.
    pub body: Option<Expr>,
}

/// Kind of a [`Comprehension`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComprehensionKind {
    /// True if the predicate is true for all items.
    All,
    /// True if the predicate is true for at least one item.
    Exists,
    /// True if the predicate is true for exactly one item.
    ExistsOne,
    /// `filter`, `map` and `transformList`: a list of items.
    List,
    /// `transformMap`: a map with the keys of the range.
    Map,
    /// `transformMapEntry`: a map of computed entries.
    Entries,
    /// `sortBy`: the items in the order of computed keys.
    SortBy,
}

impl Expr {
    pub(crate) fn new(offset: usize, kind: ExprKind) -> Self {
        // The parser limits the length of a text to far less than 4 GiB.
        Self { offset: offset as u32, kind }
    }

    /// Calls `visit` for each direct operand of the node.
    pub fn for_each_child<'e>(&'e self, mut visit: impl FnMut(&'e Expr)) {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Name(_) | ExprKind::Message { .. } => {}
            ExprKind::Select { of, .. } | ExprKind::Has { of, .. } | ExprKind::Not(of) | ExprKind::Negate(of) => {
                visit(of);
            }
            ExprKind::Index { of, index, .. } => {
                visit(of);
                visit(index);
            }
            ExprKind::Call { target, arguments, .. } => target.as_deref().into_iter().chain(arguments).for_each(visit),
            ExprKind::List(items) => items.iter().for_each(|item| visit(&item.value)),
            ExprKind::Map(entries) => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            ExprKind::Binary { first, rest } => {
                visit(first);
                for operation in rest {
                    visit(&operation.right);
                }
            }
            ExprKind::And(operands) | ExprKind::Or(operands) => operands.iter().for_each(visit),
            ExprKind::Conditional { condition, yes, no } => {
                visit(condition);
                visit(yes);
                visit(no);
            }
            ExprKind::Comprehension(of) => {
                visit(&of.range);
                of.condition.iter().chain(&of.body).for_each(visit);
            }
            ExprKind::Bind { value, body, .. } => {
                visit(value);
                visit(body);
            }
            ExprKind::OptionalMap { of, body, .. } => {
                visit(of);
                visit(body);
            }
        }
    }
}
