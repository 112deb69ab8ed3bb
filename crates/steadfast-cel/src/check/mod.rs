//! Type check of an expression before an evaluation.
//!
//! The checker follows the checker of cel-go in the environment of validation rules: names, fields, operators, and
//! functions with their receivers and arguments. A wrong operand fits everywhere, so that one check also finds the
//! errors that do not depend on the operand.

mod error;
mod kind;
mod literals;
mod overloads;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use error::TypeError;
pub use kind::Kind;

use self::error::reported_offset;
use self::overloads::{Resolution, resolve};
use crate::ast::{BinaryOperation, Comprehension, ComprehensionKind, Expr, ExprKind, ListItem, Literal, MapEntry};
use crate::types::Type;

/// Names that start the full names of types and namespaces.
const QUALIFIERS: [&str; 3] = ["google", "kubernetes", "net"];

/// Number of errors beyond which errors in the operand of a macro are reported once instead of twice.
const MAX_COPIED_ERRORS: usize = 200;

/// Returns the type of `expr` with variables of these types.
///
/// # Errors
///
/// Returns all errors, in the order of their positions.
pub(crate) fn check(expr: &Expr, variables: &BTreeMap<&str, Kind>) -> Result<Kind, Vec<TypeError>> {
    let mut checker = Checker {
        variables,
        locals: Vec::new(),
        is_within_format: false,
        errors: Vec::new(),
        mixed_type_errors: Vec::new(),
    };
    let kind = checker.kind(expr);
    let mut errors = checker.errors;
    if errors.is_empty() {
        // cel-go validates literals only if all types are right.
        literals::check(expr, &mut errors);
        errors.append(&mut checker.mixed_type_errors);
    }
    if errors.is_empty() {
        return Ok(kind);
    }
    errors.sort_by_key(|error| error.offset);
    Err(errors)
}

struct Checker<'e> {
    variables: &'e BTreeMap<&'e str, Kind>,
    /// Variables of macros, innermost last.
    locals: Vec<(&'e str, Kind)>,
    /// True within a call of `format`, where items of a literal may differ in type.
    is_within_format: bool,
    errors: Vec<TypeError>,
    /// Errors of literals with items of several types.
    mixed_type_errors: Vec<TypeError>,
}

impl<'e> Checker<'e> {
    /// Returns the type of `expr`, and records the errors within. The type of a wrong expression is [`Kind::ERROR`].
    fn kind(&mut self, expr: &'e Expr) -> Kind {
        match &expr.kind {
            ExprKind::Literal(literal) => literal_kind(literal),
            ExprKind::Name(name) => self.name(expr, name),
            ExprKind::Select { of: operand, field, optional } => self.select(expr, operand, field, *optional),
            ExprKind::Has { of: operand, field } => {
                self.select(expr, operand, field, false);
                Kind::BOOL
            }
            ExprKind::Index { of: operand, index, optional } => {
                let operands = [self.kind(operand), self.kind(index)];
                self.operator_kind(expr.offset as usize, if *optional { "_[?_]" } else { "_[_]" }, &operands)
            }
            ExprKind::Call { target, name, arguments } => self.call(expr, target.as_deref(), name, arguments),
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message { name } => {
                // No message types exist.
                self.report_undeclared(expr.offset as usize + name.len(), name);
                Kind::ERROR
            }
            ExprKind::Not(operand) => {
                let operand = self.kind(operand);
                self.operator_kind(expr.offset as usize, "!_", &[operand])
            }
            ExprKind::Negate(operand) => {
                let operand = self.kind(operand);
                self.operator_kind(expr.offset as usize, "-_", &[operand])
            }
            ExprKind::Binary { first, rest } => self.binary(first, rest),
            ExprKind::And(operands) | ExprKind::Or(operands) => {
                for operand in operands {
                    self.expect_bool(operand);
                }
                Kind::BOOL
            }
            ExprKind::Conditional { condition, yes, no } => {
                let operands = [self.kind(condition), self.kind(yes), self.kind(no)];
                self.operator_kind(expr.offset as usize, "_?_:_", &operands)
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            ExprKind::Bind { name, value, body } => {
                // The environment of rules lacks `cel.bind`, so the names in the call are unknown.
                let offset = expr.offset as usize;
                self.report_undeclared(offset.saturating_sub("cel.".len()), "cel");
                self.report_undeclared(offset + "bind".len(), "bind");
                self.report_undeclared(offset + "bind(".len(), name);
                self.kind(value);
                self.kind(body);
                Kind::ERROR
            }
            ExprKind::OptionalMap { of: operand, name, body, flat } => {
                self.optional_map(expr, operand, name, body, *flat)
            }
        }
    }

    fn with_locals(&mut self, locals: &[(&'e str, Kind)], body: &'e Expr) -> Kind {
        let outer_locals = self.locals.len();
        self.locals.extend_from_slice(locals);
        let kind = self.kind(body);
        self.locals.truncate(outer_locals);
        kind
    }

    fn report_undeclared(&mut self, offset: usize, name: &str) {
        self.errors.push(TypeError::new(offset, format!("undeclared reference to '{name}' (in container '')")));
    }

    /// Returns the result type of an operator. An operator without a definition for its operands is an error at
    /// `offset`.
    fn operator_kind(&mut self, offset: usize, name: &str, operands: &[Kind]) -> Kind {
        match resolve(name, None, operands) {
            Resolution::Found(kind) => kind,
            Resolution::NoOverload | Resolution::Undeclared => {
                self.errors.push(no_overload(offset, name, None, operands));
                Kind::ERROR
            }
        }
    }

    fn name(&mut self, expr: &Expr, name: &str) -> Kind {
        if let Some((_, kind)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return kind.clone();
        }
        if let Some(kind) = self.variables.get(name) {
            return kind.clone();
        }
        match Type::named(name) {
            Some(cel_type) => Kind::type_of(cel_type),
            // A qualifier starts a dotted type name such as `net.IP`, which the parser represents as a selection.
            None if QUALIFIERS.contains(&name) => Kind::Any,
            None => {
                self.report_undeclared(reported_offset(expr), name);
                Kind::ERROR
            }
        }
    }

    fn select(&mut self, expr: &Expr, operand: &'e Expr, field: &str, is_optional: bool) -> Kind {
        let operand = self.kind(operand);
        match field_kind(&operand, field) {
            // An optional of an optional collapses: `a.?b.?c` is one optional.
            Ok(kind) if is_optional && !matches!(kind, Kind::Optional(_)) => Kind::optional(kind),
            Ok(kind) => kind,
            Err(message) => {
                self.errors.push(TypeError::new(reported_offset(expr), message));
                let kind = if matches!(operand, Kind::Object(_)) { Kind::ERROR } else { Kind::Any };
                if is_optional || matches!(operand, Kind::Optional(_)) { Kind::optional(kind) } else { kind }
            }
        }
    }

    fn call(&mut self, expr: &Expr, target: Option<&'e Expr>, name: &str, arguments: &'e [Expr]) -> Kind {
        let was_within_format = self.is_within_format;
        self.is_within_format = was_within_format || (name == "format" && target.is_some());
        let target = target.map(|target| self.kind(target));
        let arguments: Vec<Kind> = arguments.iter().map(|argument| self.kind(argument)).collect();
        self.is_within_format = was_within_format;
        match resolve(name, target.as_ref(), &arguments) {
            Resolution::Found(kind) => return kind,
            Resolution::NoOverload => {
                self.errors.push(no_overload(reported_offset(expr), name, target.as_ref(), &arguments));
            }
            Resolution::Undeclared => self.report_undeclared_function(expr, name),
        }
        Kind::ERROR
    }

    /// Records the errors of an unknown function. Its namespace counts as an unknown variable.
    fn report_undeclared_function(&mut self, expr: &Expr, name: &str) {
        let offset = expr.offset as usize;
        match name.rsplit_once('.') {
            Some((namespace, member)) => {
                self.report_undeclared(offset.saturating_sub(namespace.len() + 1), namespace);
                self.report_undeclared(reported_offset(expr), member);
            }
            None => self.report_undeclared(reported_offset(expr), name),
        }
    }

    fn list(&mut self, items: &'e [ListItem]) -> Kind {
        let mut item_kind = LiteralItemKind::default();
        for item in items {
            let kind = self.entry_kind(&item.value, item.optional);
            item_kind.add(&item.value, kind);
        }
        Kind::list(self.finish_item_kind(item_kind))
    }

    fn map(&mut self, entries: &'e [MapEntry]) -> Kind {
        let (mut keys, mut values) = (LiteralItemKind::default(), LiteralItemKind::default());
        for MapEntry { optional, key, value } in entries {
            let kind = self.kind(key);
            keys.add(key, kind);
            let kind = self.entry_kind(value, *optional);
            values.add(value, kind);
        }
        Kind::Map(Arc::new(self.finish_item_kind(keys)), Arc::new(self.finish_item_kind(values)))
    }

    /// Returns the type of an item of a literal. An optional item must be an optional value.
    fn entry_kind(&mut self, value: &'e Expr, is_optional: bool) -> Kind {
        match self.kind(value) {
            Kind::Optional(inner) if is_optional => Kind::clone(&inner),
            Kind::Any => Kind::Any,
            kind if is_optional => {
                self.errors.push(type_mismatch(value, &Kind::optional(kind.clone()), &kind));
                kind
            }
            kind => kind,
        }
    }

    fn finish_item_kind(&mut self, item_kind: LiteralItemKind) -> Kind {
        if !self.is_within_format {
            self.mixed_type_errors.extend(item_kind.mixed_error);
        }
        item_kind.kind.unwrap_or(Kind::Any)
    }

    fn expect_bool(&mut self, expr: &'e Expr) {
        let kind = self.kind(expr);
        if !kind.fits(&Kind::BOOL) {
            self.errors.push(type_mismatch(expr, &Kind::BOOL, &kind));
        }
    }

    fn binary(&mut self, first: &'e Expr, rest: &'e [BinaryOperation]) -> Kind {
        let mut kind = self.kind(first);
        for BinaryOperation { operator, offset, right } in rest {
            let right = self.kind(right);
            kind = self.operator_kind(*offset as usize, operator.name(), &[kind, right]);
        }
        kind
    }

    fn optional_map(&mut self, expr: &Expr, operand: &'e Expr, name: &'e str, body: &'e Expr, is_flat: bool) -> Kind {
        let first_new_error = self.errors.len();
        let inner = match self.kind(operand) {
            Kind::Optional(inner) => Some(Kind::clone(&inner)),
            kind @ (Kind::Any | Kind::Plain(Type::Invalid)) => Some(kind),
            Kind::Plain(Type::Null) => Some(Kind::Any),
            other => {
                // The macro expands to calls of `hasValue` and `value`, and both calls are errors.
                for function in ["hasValue", "value"] {
                    self.errors.push(no_overload(reported_offset(expr), function, Some(&other), &[]));
                }
                None
            }
        };
        // cel-go expands the operand twice, and so reports its errors twice. The limit stops nested macros from
        // multiplying errors.
        if inner.is_some() && self.errors.len() < MAX_COPIED_ERRORS {
            self.errors.extend_from_within(first_new_error..);
        }
        let has_value = if inner.is_some() { Kind::BOOL } else { Kind::ERROR };
        let body = self.with_locals(&[(name, inner.unwrap_or(Kind::ERROR))], body);
        if !is_flat {
            return Kind::optional(body);
        }
        self.operator_kind(reported_offset(expr), "_?_:_", &[has_value, body, Kind::optional(Kind::Any)])
    }

    fn comprehension(&mut self, expr: &Expr, comprehension: &'e Comprehension) -> Kind {
        let range = self.kind(&comprehension.range);
        // The expansion of `sortBy` binds the range to a variable first.
        let range_offset = if comprehension.kind == ComprehensionKind::SortBy {
            reported_offset(expr)
        } else {
            reported_offset(&comprehension.range)
        };
        let (key, value) = match &range {
            Kind::Any | Kind::Plain(Type::Invalid) => (Kind::Any, Kind::Any),
            Kind::List(items) if comprehension.second.is_some() => (Kind::INT, Kind::clone(items)),
            Kind::List(items) => (Kind::clone(items), Kind::Any),
            Kind::Map(key, value) => (Kind::clone(key), Kind::clone(value)),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.errors.push(TypeError::new(range_offset, message));
                (Kind::ERROR, Kind::ERROR)
            }
        };
        let mut locals = vec![(comprehension.name.as_str(), key.clone())];
        locals.extend(comprehension.second.as_deref().map(|name| (name, value)));
        let condition = comprehension.condition.as_ref().map(|condition| self.with_locals(&locals, condition));
        let body = comprehension.body.as_ref().map(|body| (body, self.with_locals(&locals, body)));
        let result = match (comprehension.kind, body) {
            (ComprehensionKind::All | ComprehensionKind::Exists, Some((body, body_kind)))
                if !body_kind.fits(&Kind::BOOL) =>
            {
                self.errors.push(type_mismatch(body, &Kind::BOOL, &body_kind));
                Kind::BOOL
            }
            (ComprehensionKind::ExistsOne, Some((_, body_kind))) => {
                // The implementation in Go counts with a conditional.
                self.operator_kind(reported_offset(expr), "_?_:_", &[body_kind, Kind::INT, Kind::INT]);
                Kind::BOOL
            }
            (ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne, _) => Kind::BOOL,
            (ComprehensionKind::List, Some((_, body))) => Kind::list(body),
            // `filter` has no body: it keeps the items of the range.
            (ComprehensionKind::List, None) => Kind::list(key),
            (ComprehensionKind::Map, Some((_, body))) => Kind::Map(Arc::new(key), Arc::new(body)),
            (ComprehensionKind::Entries, Some((_, entry @ Kind::Map(..)))) => entry,
            (ComprehensionKind::Entries, Some((_, entry))) => {
                let map = Kind::Map(Arc::new(Kind::Any), Arc::new(Kind::Any));
                if !entry.fits(&map) {
                    self.errors.push(no_overload(reported_offset(expr), "cel.@mapInsert", None, &[map.clone(), entry]));
                }
                map
            }
            (ComprehensionKind::SortBy, Some((_, body))) => self.sorted(expr, range, &body),
            _ => Kind::Map(Arc::new(Kind::Any), Arc::new(Kind::Any)),
        };
        if let Some(condition) = condition {
            self.operator_kind(reported_offset(expr), "_?_:_", &[condition, result.clone(), result.clone()]);
        }
        result
    }

    /// Returns the type of a list that is sorted by keys. The keys must be comparable.
    fn sorted(&mut self, expr: &Expr, range: Kind, key: &Kind) -> Kind {
        let keys = Kind::list(key.clone());
        let is_list = matches!(range, Kind::List(_) | Kind::Any | Kind::Plain(Type::Invalid));
        if is_list && matches!(resolve("sort", Some(&keys), &[]), Resolution::Found(_)) {
            return range;
        }
        self.errors.push(no_overload(reported_offset(expr), "@sortByAssociatedKeys", Some(&range), &[keys]));
        Kind::ERROR
    }
}

/// Type of the items of a literal.
#[derive(Default)]
struct LiteralItemKind {
    /// Most general type of the items; `None` without items.
    kind: Option<Kind>,
    /// Type of the first item.
    first_kind: Option<Kind>,
    /// Error of the first item of another type.
    mixed_error: Option<TypeError>,
}

impl LiteralItemKind {
    fn add(&mut self, item: &Expr, kind: Kind) {
        let (Some(joined), Some(first)) = (&self.kind, &self.first_kind) else {
            (self.first_kind, self.kind) = (Some(kind.clone()), Some(kind));
            return;
        };
        if self.mixed_error.is_none() && !first.can_share_literal(&kind) {
            self.mixed_error = Some(type_mismatch(item, first, &kind));
        }
        if !joined.fits(&kind) {
            self.kind = Some(Kind::Any);
        } else if !joined.is_more_general(&kind) {
            self.kind = Some(kind);
        }
    }
}

fn no_overload(offset: usize, name: &str, target: Option<&Kind>, arguments: &[Kind]) -> TypeError {
    let kinds: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let kinds = kinds.join(", ");
    let applied = match target {
        Some(target) => format!("{target}.({kinds})"),
        None => format!("({kinds})"),
    };
    TypeError::new(offset, format!("found no matching overload for '{name}' applied to '{applied}'"))
}

fn type_mismatch(expr: &Expr, expected: &Kind, found: &Kind) -> TypeError {
    TypeError::new(reported_offset(expr), format!("expected type '{expected}' but found '{found}'"))
}

/// Returns the type of a field, or an error message.
fn field_kind(operand: &Kind, field: &str) -> Result<Kind, String> {
    match operand {
        Kind::Any | Kind::Plain(Type::Invalid) => Ok(Kind::Any),
        Kind::Object(fields) => fields.get(field).cloned().ok_or_else(|| format!("undefined field '{field}'")),
        Kind::Map(_, value) => Ok(Kind::clone(value)),
        // Selection through an optional results in an optional, as the evaluator does.
        Kind::Optional(inner) => field_kind(inner, field).map(Kind::optional),
        // These types are messages without fields in cel-go.
        Kind::Plain(Type::Quantity | Type::Url | Type::Semver | Type::Format) => {
            Err(format!("unexpected failed resolution of '{operand}'"))
        }
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

fn literal_kind(literal: &Literal) -> Kind {
    if let Literal::Type(cel_type) = literal {
        return Kind::type_of(*cel_type);
    }
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
