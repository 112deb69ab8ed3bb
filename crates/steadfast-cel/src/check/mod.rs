//! Type check of an expression before an evaluation.
//!
//! The checker rejects a subset of what a real API server rejects: unknown fields, undeclared names, and operators and
//! common functions with known types that have no definition. Types that the checker does not know are accepted.

mod functions;
mod kind;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use kind::Kind;

use crate::ast::{Comprehension, ComprehensionKind, Expr, ExprKind, Link, Literal, Operator};
use crate::types::Type;

/// Names that start the full names of types and namespaces.
const QUALIFIERS: [&str; 3] = ["google", "kubernetes", "net"];

/// Type error in an expression.
#[derive(Clone, PartialEq, Eq)]
pub struct TypeError {
    /// Byte offset in the text of the expression.
    pub at: usize,
    /// Description in the words of the implementation in Go.
    pub message: String,
}

impl TypeError {
    fn new(at: usize, message: String) -> Self {
        Self { at, message }
    }

    fn overload(at: usize, function: &str, kinds: &[&Kind]) -> Self {
        let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        Self::new(at, format!("found no matching overload for '{function}' applied to '({})'", kinds.join(", ")))
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TypeError {}

debug_as_message!(TypeError);

/// Result of a check: the type, or the first error.
type Checked = Result<Kind, TypeError>;

/// Returns the type of `expr` with variables of these types.
///
/// # Errors
///
/// Returns the first error.
pub(crate) fn check(expr: &Expr, variables: &BTreeMap<&str, Kind>) -> Checked {
    Checker { variables, locals: Vec::new(), allows_mixed_lists: false }.kind(expr)
}

struct Checker<'e> {
    variables: &'e BTreeMap<&'e str, Kind>,
    /// Variables of macros, innermost last.
    locals: Vec<(&'e str, Kind)>,
    /// True within the arguments of `format`, where items of a list literal may differ in type.
    allows_mixed_lists: bool,
}

/// Offset at which the implementation in Go reports an expression.
fn position(expr: &Expr) -> usize {
    let at = expr.at as usize;
    match &expr.kind {
        // The point in front of the field.
        ExprKind::Select { .. } => at.saturating_sub(1),
        // The parenthesis behind the name. Names with a namespace do not matter here.
        ExprKind::Call { name, .. } => at + name.len(),
        ExprKind::Has { .. } => at + "has".len(),
        _ => at,
    }
}

impl<'e> Checker<'e> {
    fn kind(&mut self, expr: &'e Expr) -> Checked {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(literal_kind(literal)),
            ExprKind::Name(name) => self.name(expr, name),
            ExprKind::Select { of, field, optional } => self.select(expr, of, field, *optional),
            ExprKind::Has { of, field } => self.select(expr, of, field, false).map(|_| Kind::BOOL),
            ExprKind::Index { of, index, optional } => self.index(expr, of, index, *optional),
            ExprKind::Call { target, name, arguments } => self.call(expr, target.as_deref(), name, arguments),
            ExprKind::List(items) => self.list(items.iter().map(|item| (&item.value, item.optional))),
            ExprKind::Map(entries) => {
                let mut kinds: Option<(Kind, Kind)> = None;
                for entry in entries {
                    let (key, value) = (self.kind(&entry.key)?, self.kind(&entry.value)?);
                    // The type of an optional entry is the type inside the optional. The entry counts as `dyn`, which
                    // accepts too much rather than too little.
                    let value = if entry.optional { Kind::Any } else { value };
                    kinds = Some(match kinds {
                        None => (key, value),
                        Some((one, other)) => (common(one, &key), common(other, &value)),
                    });
                }
                let (key, value) = kinds.unwrap_or((Kind::Any, Kind::Any));
                Ok(Kind::Map(Arc::new(key), Arc::new(value)))
            }
            ExprKind::Message { .. } => Ok(Kind::Any),
            // `dyn` operands stay unchecked until the evaluation.
            ExprKind::Not(of) => match self.kind(of)? {
                Kind::Any | Kind::BOOL => Ok(Kind::BOOL),
                other => Err(TypeError::overload(position(expr), "!_", &[&other])),
            },
            ExprKind::Negate(of) => match self.kind(of)? {
                number @ (Kind::Any | Kind::Plain(Type::Int | Type::Double | Type::Duration)) => Ok(number),
                other => Err(TypeError::overload(position(expr), "-_", &[&other])),
            },
            ExprKind::Chain { first, rest } => self.chain(first, rest),
            ExprKind::And(operands) | ExprKind::Or(operands) => {
                for operand in operands {
                    self.expect_bool(operand)?;
                }
                Ok(Kind::BOOL)
            }
            ExprKind::Conditional { condition, yes, no } => {
                let (condition, yes, no) = (self.kind(condition)?, self.kind(yes)?, self.kind(no)?);
                // cel-go unifies the branches of a conditional. Branches of different known types are an error even if
                // one is never taken.
                if !condition.fits(&Kind::BOOL) || !yes.fits(&no) {
                    return Err(TypeError::overload(position(expr), "_?_:_", &[&condition, &yes, &no]));
                }
                Ok(common(yes, &no))
            }
            ExprKind::Comprehension(of) => self.comprehension(expr, of),
            // The environment of rules has no bindings.
            ExprKind::Bind { .. } => Err(undeclared(position(expr).saturating_sub("cel.".len()), "cel")),
            ExprKind::OptionalMap { of, name, body, flat } => {
                let inner = match self.kind(of)? {
                    Kind::Optional(inner) => Kind::clone(&inner),
                    _ => Kind::Any,
                };
                let body = self.with(&[(name, inner)], body)?;
                Ok(if *flat { body } else { Kind::optional(body) })
            }
        }
    }

    fn with(&mut self, locals: &[(&'e str, Kind)], body: &'e Expr) -> Checked {
        let before = self.locals.len();
        self.locals.extend_from_slice(locals);
        let kind = self.kind(body);
        self.locals.truncate(before);
        kind
    }

    fn name(&self, expr: &Expr, name: &str) -> Checked {
        if let Some((_, kind)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return Ok(kind.clone());
        }
        if let Some(kind) = self.variables.get(name) {
            return Ok(kind.clone());
        }
        match Type::named(name) {
            Some(_) => Ok(Kind::Plain(Type::Type)),
            // A qualifier starts a dotted type name such as `net.IP`, which the parser represents as a selection.
            None if QUALIFIERS.contains(&name) => Ok(Kind::Any),
            None => Err(undeclared(position(expr), name)),
        }
    }

    fn select(&mut self, expr: &Expr, of: &'e Expr, field: &str, optional: bool) -> Checked {
        let of = self.kind(of)?;
        let found = field_kind(&of, field);
        // cel-go reports optional selections at the operator, and plain selections in front of the field.
        let at = if optional { expr.at as usize } else { position(expr) };
        match found {
            // An optional of an optional collapses: `a.?b.?c` is one optional.
            Ok(kind) => Ok(if optional && !matches!(kind, Kind::Optional(_)) { Kind::optional(kind) } else { kind }),
            Err(message) => Err(TypeError::new(at, message)),
        }
    }

    fn index(&mut self, expr: &Expr, of: &'e Expr, index: &'e Expr, optional: bool) -> Checked {
        let (of, index) = (self.kind(of)?, self.kind(index)?);
        let is_number = matches!(index, Kind::Any | Kind::Plain(Type::Int | Type::Uint | Type::Double));
        let kind = match &of {
            Kind::List(items) if is_number => Kind::clone(items),
            // Numeric keys match across types, as the runtime compares them by value.
            Kind::Map(key, value) if key.fits(&index) || is_number => Kind::clone(value),
            Kind::Any | Kind::Object(_) | Kind::Optional(_) | Kind::Plain(Type::Null) => return Ok(Kind::Any),
            _ => return Err(TypeError::overload(position(expr), "_[_]", &[&of, &index])),
        };
        Ok(if optional { Kind::optional(kind) } else { kind })
    }

    fn call(&mut self, expr: &Expr, target: Option<&'e Expr>, name: &str, arguments: &'e [Expr]) -> Checked {
        let target = target.map(|target| self.kind(target)).transpose()?;
        let before = self.allows_mixed_lists;
        // cel-go types the argument list of `format` as `list(dyn)`, so that strings and numbers may mix.
        self.allows_mixed_lists = before || (name == "format" && target.is_some());
        let arguments = arguments.iter().map(|argument| self.kind(argument)).collect::<Result<Vec<_>, _>>()?;
        self.allows_mixed_lists = before;
        functions::call(name, target.as_ref(), &arguments).ok_or_else(|| {
            let kinds: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let kinds = kinds.join(", ");
            let applied = match &target {
                Some(target) => format!("{target}.({kinds})"),
                None => format!("({kinds})"),
            };
            let message = format!("found no matching overload for '{name}' applied to '{applied}'");
            TypeError::new(position(expr), message)
        })
    }

    /// Items of a list literal must be of one type.
    fn list(&mut self, items: impl Iterator<Item = (&'e Expr, bool)>) -> Checked {
        let mut kind = Kind::Any;
        for (item, is_optional) in items {
            let found = self.kind(item)?;
            // The item's own type is inside the optional and is left unchecked.
            if is_optional {
                continue;
            }
            if kind.fits(&found) {
                kind = common_or_other(kind, found);
            } else if self.allows_mixed_lists {
                return Ok(Kind::list(Kind::Any));
            } else {
                return Err(expected(item, &kind, &found));
            }
        }
        Ok(Kind::list(kind))
    }

    fn expect_bool(&mut self, expr: &'e Expr) -> Result<(), TypeError> {
        match self.kind(expr)? {
            Kind::Any | Kind::BOOL => Ok(()),
            other => Err(expected(expr, &Kind::BOOL, &other)),
        }
    }

    fn chain(&mut self, first: &'e Expr, rest: &'e [Link]) -> Checked {
        let mut kind = self.kind(first)?;
        for Link { operator, at, right } in rest {
            let right = self.kind(right)?;
            let Some(result) = binary(*operator, &kind, &right) else {
                return Err(TypeError::overload(*at as usize, operator.name(), &[&kind, &right]));
            };
            kind = result;
        }
        Ok(kind)
    }

    fn comprehension(&mut self, expr: &Expr, of: &'e Comprehension) -> Checked {
        let range = self.kind(&of.range)?;
        let (key, value) = match &range {
            Kind::Any => (Kind::Any, Kind::Any),
            Kind::List(items) if of.second.is_some() => (Kind::INT, Kind::clone(items)),
            Kind::List(items) => (Kind::clone(items), Kind::Any),
            Kind::Map(key, value) => (Kind::clone(key), Kind::clone(value)),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(TypeError::new(position(&of.range), message));
            }
        };
        let mut locals = vec![(of.name.as_str(), key.clone())];
        locals.extend(of.second.as_deref().map(|name| (name, value)));
        if let Some(condition) = &of.condition {
            let found = self.with(&locals, condition)?;
            if !found.fits(&Kind::BOOL) {
                // The implementation in Go makes a conditional of the macro.
                let (at, list) = (expr.at as usize + "filter".len(), Kind::list(key));
                return Err(TypeError::overload(at, "_?_:_", &[&found, &list, &list]));
            }
        }
        let body = of.body.as_ref().map(|body| Ok((body, self.with(&locals, body)?))).transpose()?;
        match (of.kind, body) {
            (ComprehensionKind::ExistsOne, Some((_, found))) if !found.fits(&Kind::BOOL) => {
                let at = expr.at as usize + "exists_one".len();
                Err(TypeError::overload(at, "_?_:_", &[&found, &Kind::INT, &Kind::INT]))
            }
            (ComprehensionKind::All | ComprehensionKind::Exists, Some((body, found))) if !found.fits(&Kind::BOOL) => {
                Err(expected(body, &Kind::BOOL, &found))
            }
            (ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne, _) => Ok(Kind::BOOL),
            (ComprehensionKind::List, Some((_, body))) => Ok(Kind::list(body)),
            // `filter` without a body keeps the items of the range.
            (ComprehensionKind::List, None) => Ok(Kind::list(key)),
            (ComprehensionKind::Map, Some((_, body))) => Ok(Kind::Map(Arc::new(key), Arc::new(body))),
            // The types of entries of `transformMapEntry` depend on values.
            _ => Ok(Kind::Any),
        }
    }
}

fn undeclared(at: usize, name: &str) -> TypeError {
    TypeError::new(at, format!("undeclared reference to '{name}' (in container '')"))
}

fn expected(expr: &Expr, expected: &Kind, found: &Kind) -> TypeError {
    TypeError::new(position(expr), format!("expected type '{expected}' but found '{found}'"))
}

/// Returns the type of a field, or an error message.
fn field_kind(of: &Kind, field: &str) -> Result<Kind, String> {
    match of {
        Kind::Any | Kind::Plain(Type::Null) => Ok(Kind::Any),
        Kind::Object(fields) => fields.get(field).cloned().ok_or_else(|| format!("undefined field '{field}'")),
        Kind::Map(_, value) => Ok(Kind::clone(value)),
        // Selection through an optional results in an optional, as the evaluator does.
        Kind::Optional(inner) => field_kind(inner, field).map(Kind::optional),
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

fn literal_kind(literal: &Literal) -> Kind {
    Kind::Plain(match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
        Literal::Type(_) => Type::Type,
    })
}

/// Returns the type of values of two types: any if they differ.
fn common(one: Kind, other: &Kind) -> Kind {
    // Without a common type the result is `dyn`, instead of an error at this place. Later operators decide.
    if one == *other { one } else { Kind::Any }
}

/// Returns the type of list items: the first known type.
fn common_or_other(one: Kind, other: Kind) -> Kind {
    if one.is_any() { other } else { one }
}

/// Returns the result type of an operator; `None` if the operator has no definition for the types.
fn binary(operator: Operator, left: &Kind, right: &Kind) -> Option<Kind> {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let (one, other) = match (left, right) {
        // Equality is defined for all types, but cel-go requires operands of one type parameter.
        _ if matches!(operator, Operator::Equal | Operator::NotEqual) => return left.fits(right).then_some(Kind::BOOL),
        (_, Kind::List(items)) if operator == Operator::In => return left.fits(items).then_some(Kind::BOOL),
        (_, Kind::Map(key, _)) if operator == Operator::In => return left.fits(key).then_some(Kind::BOOL),
        (_, Kind::Any) if operator == Operator::In => return Some(Kind::BOOL),
        _ if operator == Operator::In => return None,
        (Kind::List(one), Kind::List(other)) if operator == Operator::Add => {
            return one.fits(other).then(|| Kind::list(common(Kind::clone(one), other)));
        }
        // An operator with a `dyn` operand resolves at run time. Comparisons result in a bool in any case.
        (Kind::Any, _) | (_, Kind::Any) => {
            let is_order = matches!(
                operator,
                Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
            );
            return Some(if is_order { Kind::BOOL } else { Kind::Any });
        }
        (Kind::Plain(one), Kind::Plain(other)) => (*one, *other),
        _ => return None,
    };
    let is_number = |named| matches!(named, Int | Uint | Double);
    Some(Kind::Plain(match (operator, one, other) {
        (Operator::Add, Duration, Timestamp) | (Operator::Add | Operator::Subtract, Timestamp, Duration) => Timestamp,
        (Operator::Subtract, Timestamp, Timestamp) | (Operator::Add | Operator::Subtract, Duration, Duration) => {
            Duration
        }
        (Operator::Add, String | Bytes, _) if one == other => one,
        // CEL defines no modulo for doubles.
        (Operator::Modulo, Double, Double) => return None,
        (Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo, ..) => {
            // Arithmetic never mixes number types, unlike comparison below: cel-go enables cross-type comparison only.
            if one != other || !is_number(one) {
                return None;
            }
            one
        }
        _ if is_number(one) && is_number(other) => Bool,
        _ if one == other && matches!(one, Bool | String | Bytes | Timestamp | Duration) => Bool,
        _ => return None,
    }))
}
