//! Type check of an expression before an evaluation.
//!
//! The checker follows the checker of cel-go in the environment of validation rules: names, fields, operators, and
//! functions with their receivers and arguments. The type of a wrong operand fits every operator and function. One
//! check therefore reports all errors that do not depend on this operand.

mod error;
mod literals;
mod overloads;
mod static_type;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use error::TypeError;
pub use static_type::StaticType;

use self::error::reported_offset;
use self::overloads::{Resolution, resolve};
use crate::ast::{BinaryOperation, Comprehension, ComprehensionKind, Expr, ExprKind, ListItem, Literal, MapEntry};
use crate::types::Type;

/// Names that start the full names of types and namespaces.
const QUALIFIERS: [&str; 3] = ["google", "kubernetes", "net"];

/// Number of errors up to which an error in the operand of a macro is reported twice, as by cel-go. Beyond this number,
/// such an error is reported once.
const MAX_COPIED_ERRORS: usize = 200;

/// Returns the type of `expr` with variables of these types.
///
/// # Errors
///
/// Returns all errors, in the order of their positions.
pub(crate) fn check(expr: &Expr, variables: &BTreeMap<&str, StaticType>) -> Result<StaticType, Vec<TypeError>> {
    let mut checker = Checker {
        variables,
        locals: Vec::new(),
        is_within_format: false,
        errors: Vec::new(),
        mixed_type_errors: Vec::new(),
    };
    let static_type = checker.static_type(expr);
    let mut errors = checker.errors;
    if errors.is_empty() {
        // cel-go validates literals only if all types are right.
        literals::check(expr, &mut errors);
        errors.append(&mut checker.mixed_type_errors);
    }
    if errors.is_empty() {
        return Ok(static_type);
    }
    errors.sort_by_key(|error| error.offset);
    Err(errors)
}

struct Checker<'e> {
    variables: &'e BTreeMap<&'e str, StaticType>,
    /// Variables of macros, innermost last.
    locals: Vec<(&'e str, StaticType)>,
    /// True within a call of `format`, where items of a literal may differ in type.
    is_within_format: bool,
    errors: Vec<TypeError>,
    /// Errors of literals with items of several types.
    mixed_type_errors: Vec<TypeError>,
}

impl<'e> Checker<'e> {
    /// Returns the type of `expr`, and records the errors within. The type of a wrong expression is [`StaticType::ERROR`].
    fn static_type(&mut self, expr: &'e Expr) -> StaticType {
        match &expr.kind {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Name(name) => self.name(expr, name),
            ExprKind::Select { of: operand, field, optional } => self.select(expr, operand, field, *optional),
            ExprKind::Has { of: operand, field } => {
                self.select(expr, operand, field, false);
                StaticType::BOOL
            }
            ExprKind::Index { of: operand, index, optional } => {
                let operands = [self.static_type(operand), self.static_type(index)];
                self.operator_type(expr.offset as usize, if *optional { "_[?_]" } else { "_[_]" }, &operands)
            }
            ExprKind::Call { target, name, arguments } => self.call(expr, target.as_deref(), name, arguments),
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message { name } => {
                // No message types exist.
                self.report_undeclared(expr.offset as usize + name.len(), name);
                StaticType::ERROR
            }
            ExprKind::Not(operand) => {
                let operand = self.static_type(operand);
                self.operator_type(expr.offset as usize, "!_", &[operand])
            }
            ExprKind::Negate(operand) => {
                let operand = self.static_type(operand);
                self.operator_type(expr.offset as usize, "-_", &[operand])
            }
            ExprKind::Binary { first, rest } => self.binary(first, rest),
            ExprKind::And(operands) | ExprKind::Or(operands) => {
                for operand in operands {
                    self.expect_bool(operand);
                }
                StaticType::BOOL
            }
            ExprKind::Conditional { condition, yes, no } => {
                let operands = [self.static_type(condition), self.static_type(yes), self.static_type(no)];
                self.operator_type(expr.offset as usize, "_?_:_", &operands)
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            ExprKind::Bind { name, value, body } => {
                // The environment of rules lacks `cel.bind`, so the names in the call are unknown.
                let offset = expr.offset as usize;
                self.report_undeclared(offset.saturating_sub("cel.".len()), "cel");
                self.report_undeclared(offset + "bind".len(), "bind");
                self.report_undeclared(offset + "bind(".len(), name);
                self.static_type(value);
                self.static_type(body);
                StaticType::ERROR
            }
            ExprKind::OptionalMap { of: operand, name, body, flat } => {
                self.optional_map(expr, operand, name, body, *flat)
            }
        }
    }

    fn with_locals(&mut self, locals: &[(&'e str, StaticType)], body: &'e Expr) -> StaticType {
        let outer_locals = self.locals.len();
        self.locals.extend_from_slice(locals);
        let static_type = self.static_type(body);
        self.locals.truncate(outer_locals);
        static_type
    }

    fn report_undeclared(&mut self, offset: usize, name: &str) {
        self.errors.push(TypeError::new(offset, format!("undeclared reference to '{name}' (in container '')")));
    }

    /// Returns the result type of an operator. An operator without a definition for its operands is an error at
    /// `offset`.
    fn operator_type(&mut self, offset: usize, name: &str, operands: &[StaticType]) -> StaticType {
        match resolve(name, None, operands) {
            Resolution::Found(static_type) => static_type,
            Resolution::NoOverload | Resolution::Undeclared => {
                self.errors.push(no_overload(offset, name, None, operands));
                StaticType::ERROR
            }
        }
    }

    fn name(&mut self, expr: &Expr, name: &str) -> StaticType {
        if let Some((_, static_type)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return static_type.clone();
        }
        if let Some(static_type) = self.variables.get(name) {
            return static_type.clone();
        }
        match Type::named(name) {
            Some(cel_type) => StaticType::type_of(cel_type),
            // A qualifier starts a dotted type name such as `net.IP`, which the parser represents as a selection.
            None if QUALIFIERS.contains(&name) => StaticType::Any,
            None => {
                self.report_undeclared(reported_offset(expr), name);
                StaticType::ERROR
            }
        }
    }

    fn select(&mut self, expr: &Expr, operand: &'e Expr, field: &str, is_optional: bool) -> StaticType {
        let operand = self.static_type(operand);
        match field_type(&operand, field) {
            // An optional of an optional collapses: `a.?b.?c` is one optional.
            Ok(static_type) if is_optional && !matches!(static_type, StaticType::Optional(_)) => {
                StaticType::optional(static_type)
            }
            Ok(static_type) => static_type,
            Err(message) => {
                self.errors.push(TypeError::new(reported_offset(expr), message));
                let static_type =
                    if matches!(operand, StaticType::Object(_)) { StaticType::ERROR } else { StaticType::Any };
                if is_optional || matches!(operand, StaticType::Optional(_)) {
                    StaticType::optional(static_type)
                } else {
                    static_type
                }
            }
        }
    }

    fn call(&mut self, expr: &Expr, target: Option<&'e Expr>, name: &str, arguments: &'e [Expr]) -> StaticType {
        let was_within_format = self.is_within_format;
        self.is_within_format = was_within_format || (name == "format" && target.is_some());
        let target = target.map(|target| self.static_type(target));
        let arguments: Vec<StaticType> = arguments.iter().map(|argument| self.static_type(argument)).collect();
        self.is_within_format = was_within_format;
        match resolve(name, target.as_ref(), &arguments) {
            Resolution::Found(static_type) => return static_type,
            Resolution::NoOverload => {
                self.errors.push(no_overload(reported_offset(expr), name, target.as_ref(), &arguments));
            }
            Resolution::Undeclared => self.report_undeclared_function(expr, name),
        }
        StaticType::ERROR
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

    fn list(&mut self, items: &'e [ListItem]) -> StaticType {
        let mut item_types = LiteralItemType::default();
        for item in items {
            let static_type = self.entry_type(&item.value, item.optional);
            item_types.add(&item.value, static_type);
        }
        StaticType::list(self.finish_item_type(item_types))
    }

    fn map(&mut self, entries: &'e [MapEntry]) -> StaticType {
        let (mut keys, mut values) = (LiteralItemType::default(), LiteralItemType::default());
        for MapEntry { optional, key, value } in entries {
            let static_type = self.static_type(key);
            keys.add(key, static_type);
            let static_type = self.entry_type(value, *optional);
            values.add(value, static_type);
        }
        StaticType::Map(Arc::new(self.finish_item_type(keys)), Arc::new(self.finish_item_type(values)))
    }

    /// Returns the type of an item of a literal. An optional item must be an optional value.
    fn entry_type(&mut self, value: &'e Expr, is_optional: bool) -> StaticType {
        match self.static_type(value) {
            StaticType::Optional(inner) if is_optional => StaticType::clone(&inner),
            StaticType::Any => StaticType::Any,
            static_type if is_optional => {
                self.errors.push(type_mismatch(value, &StaticType::optional(static_type.clone()), &static_type));
                static_type
            }
            static_type => static_type,
        }
    }

    fn finish_item_type(&mut self, item_types: LiteralItemType) -> StaticType {
        if !self.is_within_format {
            self.mixed_type_errors.extend(item_types.mixed_error);
        }
        item_types.joined.unwrap_or(StaticType::Any)
    }

    fn expect_bool(&mut self, expr: &'e Expr) {
        let static_type = self.static_type(expr);
        if !static_type.fits(&StaticType::BOOL) {
            self.errors.push(type_mismatch(expr, &StaticType::BOOL, &static_type));
        }
    }

    fn binary(&mut self, first: &'e Expr, rest: &'e [BinaryOperation]) -> StaticType {
        let mut static_type = self.static_type(first);
        for BinaryOperation { operator, offset, right } in rest {
            let right = self.static_type(right);
            static_type = self.operator_type(*offset as usize, operator.name(), &[static_type, right]);
        }
        static_type
    }

    fn optional_map(
        &mut self,
        expr: &Expr,
        operand: &'e Expr,
        name: &'e str,
        body: &'e Expr,
        is_flat: bool,
    ) -> StaticType {
        let first_new_error = self.errors.len();
        let inner = match self.static_type(operand) {
            StaticType::Optional(inner) => Some(StaticType::clone(&inner)),
            static_type @ (StaticType::Any | StaticType::Plain(Type::Invalid)) => Some(static_type),
            StaticType::Plain(Type::Null) => Some(StaticType::Any),
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
        let has_value = if inner.is_some() { StaticType::BOOL } else { StaticType::ERROR };
        let body = self.with_locals(&[(name, inner.unwrap_or(StaticType::ERROR))], body);
        if !is_flat {
            return StaticType::optional(body);
        }
        self.operator_type(reported_offset(expr), "_?_:_", &[has_value, body, StaticType::optional(StaticType::Any)])
    }

    fn comprehension(&mut self, expr: &Expr, comprehension: &'e Comprehension) -> StaticType {
        let range = self.static_type(&comprehension.range);
        // The expansion of `sortBy` binds the range to a variable first.
        let range_offset = if comprehension.kind == ComprehensionKind::SortBy {
            reported_offset(expr)
        } else {
            reported_offset(&comprehension.range)
        };
        let (key, value) = match &range {
            StaticType::Any | StaticType::Plain(Type::Invalid) => (StaticType::Any, StaticType::Any),
            StaticType::List(items) if comprehension.second.is_some() => (StaticType::INT, StaticType::clone(items)),
            StaticType::List(items) => (StaticType::clone(items), StaticType::Any),
            StaticType::Map(key, value) => (StaticType::clone(key), StaticType::clone(value)),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.errors.push(TypeError::new(range_offset, message));
                (StaticType::ERROR, StaticType::ERROR)
            }
        };
        let mut locals = vec![(comprehension.name.as_str(), key.clone())];
        locals.extend(comprehension.second.as_deref().map(|name| (name, value)));
        let condition = comprehension.condition.as_ref().map(|condition| self.with_locals(&locals, condition));
        let body = comprehension.body.as_ref().map(|body| (body, self.with_locals(&locals, body)));
        let result = match (comprehension.kind, body) {
            (ComprehensionKind::All | ComprehensionKind::Exists, Some((body, body_type)))
                if !body_type.fits(&StaticType::BOOL) =>
            {
                self.errors.push(type_mismatch(body, &StaticType::BOOL, &body_type));
                StaticType::BOOL
            }
            (ComprehensionKind::ExistsOne, Some((_, body_type))) => {
                // The implementation in Go counts with a conditional.
                self.operator_type(reported_offset(expr), "_?_:_", &[body_type, StaticType::INT, StaticType::INT]);
                StaticType::BOOL
            }
            (ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne, _) => StaticType::BOOL,
            (ComprehensionKind::List, Some((_, body))) => StaticType::list(body),
            // `filter` has no body: it keeps the items of the range.
            (ComprehensionKind::List, None) => StaticType::list(key),
            (ComprehensionKind::Map, Some((_, body))) => StaticType::Map(Arc::new(key), Arc::new(body)),
            (ComprehensionKind::Entries, Some((_, entry @ StaticType::Map(..)))) => entry,
            (ComprehensionKind::Entries, Some((_, entry))) => {
                let map = StaticType::Map(Arc::new(StaticType::Any), Arc::new(StaticType::Any));
                if !entry.fits(&map) {
                    self.errors.push(no_overload(reported_offset(expr), "cel.@mapInsert", None, &[map.clone(), entry]));
                }
                map
            }
            (ComprehensionKind::SortBy, Some((_, body))) => self.sorted(expr, range, &body),
            _ => StaticType::Map(Arc::new(StaticType::Any), Arc::new(StaticType::Any)),
        };
        if let Some(condition) = condition {
            self.operator_type(reported_offset(expr), "_?_:_", &[condition, result.clone(), result.clone()]);
        }
        result
    }

    /// Returns the type of a list that is sorted by keys. The keys must be comparable.
    fn sorted(&mut self, expr: &Expr, range: StaticType, key: &StaticType) -> StaticType {
        let keys = StaticType::list(key.clone());
        let is_list = matches!(range, StaticType::List(_) | StaticType::Any | StaticType::Plain(Type::Invalid));
        if is_list && matches!(resolve("sort", Some(&keys), &[]), Resolution::Found(_)) {
            return range;
        }
        self.errors.push(no_overload(reported_offset(expr), "@sortByAssociatedKeys", Some(&range), &[keys]));
        StaticType::ERROR
    }
}

/// Type of the items of a literal.
#[derive(Default)]
struct LiteralItemType {
    /// Most general type of the items; `None` without items.
    joined: Option<StaticType>,
    /// Type of the first item.
    first: Option<StaticType>,
    /// Error of the first item of another type.
    mixed_error: Option<TypeError>,
}

impl LiteralItemType {
    fn add(&mut self, item: &Expr, static_type: StaticType) {
        let (Some(joined), Some(first)) = (&self.joined, &self.first) else {
            (self.first, self.joined) = (Some(static_type.clone()), Some(static_type));
            return;
        };
        if self.mixed_error.is_none() && !first.can_share_literal(&static_type) {
            self.mixed_error = Some(type_mismatch(item, first, &static_type));
        }
        if !joined.fits(&static_type) {
            self.joined = Some(StaticType::Any);
        } else if !joined.is_more_general(&static_type) {
            self.joined = Some(static_type);
        }
    }
}

fn no_overload(offset: usize, name: &str, target: Option<&StaticType>, arguments: &[StaticType]) -> TypeError {
    let types: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let types = types.join(", ");
    let applied = match target {
        Some(target) => format!("{target}.({types})"),
        None => format!("({types})"),
    };
    TypeError::new(offset, format!("found no matching overload for '{name}' applied to '{applied}'"))
}

fn type_mismatch(expr: &Expr, expected: &StaticType, found: &StaticType) -> TypeError {
    TypeError::new(reported_offset(expr), format!("expected type '{expected}' but found '{found}'"))
}

/// Returns the type of a field, or an error message.
fn field_type(operand: &StaticType, field: &str) -> Result<StaticType, String> {
    match operand {
        StaticType::Any | StaticType::Plain(Type::Invalid) => Ok(StaticType::Any),
        StaticType::Object(fields) => fields.get(field).cloned().ok_or_else(|| format!("undefined field '{field}'")),
        StaticType::Map(_, value) => Ok(StaticType::clone(value)),
        // Selection through an optional results in an optional, as the evaluator does.
        StaticType::Optional(inner) => field_type(inner, field).map(StaticType::optional),
        // These types are messages without fields in cel-go.
        StaticType::Plain(Type::Quantity | Type::Url | Type::Semver | Type::Format) => {
            Err(format!("unexpected failed resolution of '{operand}'"))
        }
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

fn literal_type(literal: &Literal) -> StaticType {
    if let Literal::Type(cel_type) = literal {
        return StaticType::type_of(*cel_type);
    }
    StaticType::Plain(match literal {
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
