//! Evaluation of a syntax tree.
//!
//! Each kind of node has a function of its own, so that a level of nesting takes little stack.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{BinaryOperation, Comprehension, ComprehensionKind, Expr, ExprKind, ListItem, Literal, MapEntry};
use crate::context::Context;
use crate::error::{CelError, CelErrorKind};
use crate::functions;
use crate::key::Key;
use crate::meter::Meter;
use crate::operators;
use crate::text::Text;
use crate::types::Type;
use crate::value::{CelList, CelMap, CelValue};

pub(crate) struct Evaluator<'e, 'a, 'm, 'b> {
    context: &'e Context<'a>,
    meter: &'m mut Meter<'b>,
    /// Variables of macros, innermost last.
    locals: Vec<(&'e str, CelValue<'a>)>,
}

/// Decision of a predicate that `&&`, `||`, `all` and `exists` combine.
enum Decision {
    /// The result is known.
    Decided,
    /// The result depends on further operands.
    Undecided,
}

impl<'e, 'a, 'm, 'b> Evaluator<'e, 'a, 'm, 'b> {
    pub(crate) fn new(context: &'e Context<'a>, meter: &'m mut Meter<'b>) -> Self {
        Self { context, meter, locals: Vec::new() }
    }

    /// Evaluates a node.
    pub(crate) fn evaluate(&mut self, expr: &'e Expr) -> Result<CelValue<'a>, CelError> {
        // Charging before the evaluation also bounds the time of nodes that fail.
        self.meter.charge(1).map_err(|kind| kind.at(expr.offset))?;
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(literal_value(literal)),
            ExprKind::Name(name) => self.name(name).map_err(|kind| kind.at(expr.offset)),
            ExprKind::Select { of: operand, field, optional } => self.select(expr.offset, operand, field, *optional),
            ExprKind::Has { of: operand, field } => self.has(expr.offset, operand, field),
            ExprKind::Index { of: operand, index, optional } => self.index(expr.offset, operand, index, *optional),
            ExprKind::Call { target, name, arguments } => self.call(expr.offset, target.as_deref(), name, arguments),
            ExprKind::List(items) => self.list(expr.offset, items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message { name } => Err(CelErrorKind::UnknownName(name.clone()).at(expr.offset)),
            ExprKind::Not(operand) => self.not(expr.offset, operand),
            ExprKind::Negate(operand) => {
                let value = self.evaluate(operand)?;
                operators::negate(value).map_err(|kind| kind.at(expr.offset))
            }
            ExprKind::Binary { first, rest } => self.binary(first, rest),
            ExprKind::And(operands) => self.logical(expr.offset, operands, false),
            ExprKind::Or(operands) => self.logical(expr.offset, operands, true),
            ExprKind::Conditional { condition, yes, no } => self.conditional(expr.offset, condition, yes, no),
            ExprKind::Comprehension(comprehension) => self.comprehension(expr.offset, comprehension),
            ExprKind::Bind { name, value, body } => {
                let value = self.evaluate(value)?;
                self.with_local(name, value, body)
            }
            ExprKind::OptionalMap { of: operand, name, body, flat } => {
                self.optional_map(expr.offset, operand, name, body, *flat)
            }
        }
    }

    fn name(&self, name: &str) -> Result<CelValue<'a>, CelErrorKind> {
        // Inner variables shadow outer ones, and local variables shadow those of the context.
        let local = self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, value)| value);
        if let Some(value) = local.or_else(|| self.context.get(name)) {
            // A field of an object that does not fit its schema is bound as an invalid value. Only reading the name is
            // an error, as rules may never read the field.
            return value.clone().into_valid();
        }
        // Type names have the lowest precedence: the CEL specification lets a variable shadow an identifier such as
        // `int`.
        Type::named(name).map(CelValue::Type).ok_or_else(|| CelErrorKind::UnknownName(name.to_owned()))
    }

    fn with_local(&mut self, name: &'e str, value: CelValue<'a>, body: &'e Expr) -> Result<CelValue<'a>, CelError> {
        self.locals.push((name, value));
        let result = self.evaluate(body);
        // The variable is removed on errors too: `&&`, `||`, `all` and `exists` absorb errors and evaluate further
        // operands with the same locals.
        self.locals.pop();
        result
    }

    fn select(
        &mut self,
        offset: u32,
        operand: &'e Expr,
        field: &str,
        is_optional: bool,
    ) -> Result<CelValue<'a>, CelError> {
        let operand = self.evaluate(operand)?;
        select(operand, field, is_optional).map_err(|kind| kind.at(offset))
    }

    fn has(&mut self, offset: u32, operand: &'e Expr, field: &str) -> Result<CelValue<'a>, CelError> {
        let value = match self.evaluate(operand)? {
            CelValue::Optional(None) => return Ok(CelValue::Bool(false)),
            CelValue::Optional(Some(value)) => CelValue::clone(&value),
            value => value,
        };
        match value {
            CelValue::Map(map) => {
                // An invalid field is an error rather than present: the value does not have the declared type.
                let found = require_valid(map.field(field)).map_err(|kind| kind.at(offset))?;
                Ok(CelValue::Bool(found.is_some()))
            }
            // The operand of `has` must be a map. On a real server the type checker rejects other operands before an
            // evaluation.
            other => Err(CelErrorKind::no_such_overload("has", vec![other.type_of().name()]).at(offset)),
        }
    }

    fn index(
        &mut self,
        offset: u32,
        operand: &'e Expr,
        index: &'e Expr,
        is_optional: bool,
    ) -> Result<CelValue<'a>, CelError> {
        let operand = self.evaluate(operand)?;
        // A name from the text of the expression may be part of an error; a computed key may be a secret.
        let literal = match &index.kind {
            ExprKind::Literal(Literal::String(name)) => Some(name),
            _ => None,
        };
        let index = self.evaluate(index)?;
        let found = match operand {
            CelValue::Optional(None) => return Ok(CelValue::Optional(None)),
            CelValue::Optional(Some(value)) => {
                // An optional operand makes the result optional even without `?`, so that chains such as `a[?b][c]`
                // need one `?` only.
                return lookup(&value, &index).map(optional_of).map_err(|kind| kind.at(offset));
            }
            CelValue::Null if is_optional => return Ok(CelValue::Optional(None)),
            // The kind of the operand decides the error below: lists report an index out of range, maps report a
            // missing key.
            operand => lookup(&operand, &index).map(|found| (found, matches!(operand, CelValue::List(_)))),
        };
        match found.map_err(|kind| kind.at(offset))? {
            (found, _) if is_optional => Ok(optional_of(found)),
            (Some(value), _) => Ok(value),
            (None, true) => Err(CelErrorKind::IndexOutOfRange.at(offset)),
            (None, false) => Err(literal
                .map_or(CelErrorKind::NoSuchKey, |name| CelErrorKind::NoSuchField(name.to_string()))
                .at(offset)),
        }
    }

    fn call(
        &mut self,
        offset: u32,
        target: Option<&'e Expr>,
        name: &str,
        argument_exprs: &'e [Expr],
    ) -> Result<CelValue<'a>, CelError> {
        // These functions evaluate their argument only if needed, so they are not plain calls.
        if let (Some(target), "or" | "orValue", [other]) = (target, name, argument_exprs) {
            return self.alternative(offset, target, name, other);
        }
        let mut arguments = Vec::with_capacity(argument_exprs.len() + 1);
        for argument in target.into_iter().chain(argument_exprs) {
            // The arguments of a function are strict: unlike operands of `&&`, the first error ends the call.
            arguments.push(self.evaluate(argument)?);
        }
        // Standard functions take precedence, so that a caller cannot change the meaning of a portable expression.
        let result = functions::call(name, target.is_some(), &arguments, self.meter)
            .or_else(|| self.context.call(name, &arguments, self.meter));
        let result = result.unwrap_or_else(|| Err(CelErrorKind::UnknownFunction(name.to_owned())));
        // A function such as `first` can return an invalid item of a list.
        result.and_then(CelValue::into_valid).map_err(|kind| kind.at(offset))
    }

    /// Evaluates `a.or(b)` or `a.orValue(b)`. Evaluates `b` only if `a` is empty.
    fn alternative(
        &mut self,
        offset: u32,
        operand: &'e Expr,
        name: &str,
        alternative: &'e Expr,
    ) -> Result<CelValue<'a>, CelError> {
        match self.evaluate(operand)? {
            CelValue::Optional(Some(value)) if name == "orValue" => {
                // Only `orValue` unwraps the optional. Unwrapping reads the value, so a value that does not fit its
                // schema is an error.
                CelValue::clone(&value).into_valid().map_err(|kind| kind.at(offset))
            }
            CelValue::Optional(Some(value)) => Ok(CelValue::Optional(Some(value))),
            CelValue::Optional(None) => {
                let value = self.evaluate(alternative)?;
                if name == "or" && !matches!(value, CelValue::Optional(_)) {
                    return Err(CelErrorKind::no_such_overload(
                        name,
                        vec![Type::Optional.name(), value.type_of().name()],
                    )
                    .at(offset));
                }
                Ok(value)
            }
            value => Err(CelErrorKind::no_such_overload(name, vec![value.type_of().name()]).at(offset)),
        }
    }

    fn list(&mut self, offset: u32, items: &'e [ListItem]) -> Result<CelValue<'a>, CelError> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = self.evaluate(&item.value)?;
            match (item.optional, value) {
                (false, value) => values.push(value),
                // `?` drops an empty optional from the literal, as the extension for optional types of CEL specifies.
                (true, CelValue::Optional(value)) => values.extend(value.as_deref().cloned()),
                (true, other) => {
                    return Err(CelErrorKind::no_such_overload("[?_]", vec![other.type_of().name()]).at(offset));
                }
            }
        }
        Ok(values.into())
    }

    fn map(&mut self, entries: &'e [MapEntry]) -> Result<CelValue<'a>, CelError> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let offset = entry.key.offset;
            let key = self.evaluate(&entry.key)?;
            // Doubles, null, lists and maps are not valid keys of CEL maps, even if a double is whole.
            let key = key.key().ok_or_else(|| CelErrorKind::UnsupportedKey.at(offset))?;
            let value = match (entry.optional, self.evaluate(&entry.value)?) {
                (false, value) => value,
                (true, CelValue::Optional(Some(value))) => CelValue::clone(&value),
                // The value is evaluated even if the entry is dropped: errors of the value remain errors of the
                // literal.
                (true, CelValue::Optional(None)) => continue,
                (true, other) => {
                    return Err(CelErrorKind::no_such_overload("{?_:_}", vec![other.type_of().name()]).at(offset));
                }
            };
            self.insert(&mut map, key, value).map_err(|kind| kind.at(offset))?;
        }
        Ok(CelValue::map(map))
    }

    fn insert(
        &mut self,
        map: &mut BTreeMap<Key<'a>, CelValue<'a>>,
        key: Key<'a>,
        value: CelValue<'a>,
    ) -> Result<(), CelErrorKind> {
        // One unit per entry covers the node in the tree of the map. The costs of evaluating the key and the value do
        // not cover it.
        self.meter.charge(1)?;
        match map.insert(key, value) {
            None => Ok(()),
            // In CEL, a repeated key is an error, unlike in JSON, where the last entry takes precedence.
            Some(_) => Err(CelErrorKind::DuplicateKey),
        }
    }

    fn not(&mut self, offset: u32, operand: &'e Expr) -> Result<CelValue<'a>, CelError> {
        match self.evaluate(operand)? {
            CelValue::Bool(value) => Ok(CelValue::Bool(!value)),
            other => Err(CelErrorKind::no_such_overload("!_", vec![other.type_of().name()]).at(offset)),
        }
    }

    fn binary(&mut self, first: &'e Expr, rest: &'e [BinaryOperation]) -> Result<CelValue<'a>, CelError> {
        let mut value = self.evaluate(first)?;
        // The operators associate to the left. The loop keeps the stack flat for a sum of 10,000 numbers.
        for BinaryOperation { operator, offset, right } in rest {
            let right = self.evaluate(right)?;
            value = operators::binary(*operator, &value, &right, self.meter).map_err(|kind| kind.at(*offset))?;
        }
        Ok(value)
    }

    /// Evaluates `&&` or `||`: an operand equal to `deciding_value` decides, even if other operands fail.
    fn logical(&mut self, offset: u32, operands: &'e [Expr], deciding_value: bool) -> Result<CelValue<'a>, CelError> {
        let function = if deciding_value { "_||_" } else { "_&&_" };
        let mut first_error = None;
        // Operands run from the left. CEL allows any order because a later decisive operand overrules an earlier error.
        for operand in operands {
            let result = self.evaluate(operand);
            if matches!(combine(result, deciding_value, function, offset, &mut first_error)?, Decision::Decided) {
                return Ok(CelValue::Bool(deciding_value));
            }
        }
        first_error.map_or(Ok(CelValue::Bool(!deciding_value)), Err)
    }

    fn conditional(
        &mut self,
        offset: u32,
        condition: &'e Expr,
        yes: &'e Expr,
        no: &'e Expr,
    ) -> Result<CelValue<'a>, CelError> {
        match self.evaluate(condition)? {
            // Only the selected branch runs, so that `has(a.b) ? a.b : c` is safe.
            CelValue::Bool(true) => self.evaluate(yes),
            CelValue::Bool(false) => self.evaluate(no),
            other => Err(CelErrorKind::no_such_overload("_?_:_", vec![other.type_of().name()]).at(offset)),
        }
    }

    fn optional_map(
        &mut self,
        offset: u32,
        operand: &'e Expr,
        name: &'e str,
        body: &'e Expr,
        is_flat: bool,
    ) -> Result<CelValue<'a>, CelError> {
        let function = if is_flat { "optFlatMap" } else { "optMap" };
        let value = match self.evaluate(operand)? {
            CelValue::Optional(Some(value)) => CelValue::clone(&value),
            CelValue::Optional(None) => return Ok(CelValue::Optional(None)),
            other => return Err(CelErrorKind::no_such_overload(function, vec![other.type_of().name()]).at(offset)),
        };
        match self.with_local(name, value, body)? {
            // `optMap` wraps the result again, and `optFlatMap` requires an optional from its body. The second form
            // avoids nested optionals.
            value if !is_flat => Ok(CelValue::some(value)),
            value @ CelValue::Optional(_) => Ok(value),
            other => Err(CelErrorKind::no_such_overload(function, vec![Type::Optional.name(), other.type_of().name()])
                .at(offset)),
        }
    }

    fn comprehension(&mut self, offset: u32, comprehension: &'e Comprehension) -> Result<CelValue<'a>, CelError> {
        let range = self.evaluate(&comprehension.range)?;
        match range {
            CelValue::List(list) => {
                // JSON lists stay borrowed: the items are converted one at a time, and the loop charges for each.
                let entries = list_entries(list, comprehension.second.is_some());
                self.loop_over(offset, comprehension, entries)
            }
            CelValue::Map(map) => {
                self.meter.charge(1).map_err(|kind| kind.at(offset))?;
                if map.json().is_none() {
                    // The entries of a computed map are copied.
                    self.meter.charge(map.max_len() as u64).map_err(|kind| kind.at(offset))?;
                }
                let with_values = comprehension.second.is_some();
                let entries =
                    map.entries().map(move |(key, value)| (CelValue::from(key), with_values.then_some(value)));
                self.loop_over(offset, comprehension, entries)
            }
            other => Err(CelErrorKind::no_such_overload("comprehension", vec![other.type_of().name()]).at(offset)),
        }
    }

    /// Evaluates a macro for each entry: an item; or with two variables, an index or key and its value.
    fn loop_over(
        &mut self,
        offset: u32,
        comprehension: &'e Comprehension,
        entries: impl Iterator<Item = (CelValue<'a>, Option<CelValue<'a>>)>,
    ) -> Result<CelValue<'a>, CelError> {
        let outer_locals = self.locals.len();
        let result = self.accumulate(offset, comprehension, entries);
        // An error can leave variables of the failed iteration in `locals`. The caller may absorb the error and
        // continue.
        self.locals.truncate(outer_locals);
        result
    }

    fn accumulate(
        &mut self,
        offset: u32,
        comprehension: &'e Comprehension,
        entries: impl Iterator<Item = (CelValue<'a>, Option<CelValue<'a>>)>,
    ) -> Result<CelValue<'a>, CelError> {
        let outer_locals = self.locals.len();
        let mut first_error = None;
        let mut match_count = 0_u64;
        let mut list = Vec::new();
        let mut keys = Vec::new();
        let mut map = BTreeMap::new();
        for (first, second) in entries {
            self.meter.charge(1).map_err(|kind| kind.at(offset))?;
            // Drops the variables of the previous iteration. The slots are reused, so that a loop allocates at most
            // once.
            self.locals.truncate(outer_locals);
            self.locals.push((&comprehension.name, first.clone()));
            if let (Some(name), Some(value)) = (&comprehension.second, &second) {
                self.locals.push((name, value.clone()));
            }
            // Errors of a condition are never absorbed: only the bodies of `all` and `exists` have the semantics of
            // `&&` and `||`.
            if let Some(condition) = &comprehension.condition
                && !self.evaluate_predicate(condition)?
            {
                continue;
            }
            match comprehension.kind {
                ComprehensionKind::All | ComprehensionKind::Exists => {
                    let Some(body) = &comprehension.body else { continue };
                    let deciding_value = comprehension.kind == ComprehensionKind::Exists;
                    let result = self.evaluate(body);
                    let function = if deciding_value { "exists" } else { "all" };
                    if matches!(combine(result, deciding_value, function, offset, &mut first_error)?, Decision::Decided)
                    {
                        // A decisive item ends the loop early, which bounds the cost of `exists` by the position of the
                        // first match.
                        return Ok(CelValue::Bool(deciding_value));
                    }
                }
                ComprehensionKind::ExistsOne => {
                    let Some(body) = &comprehension.body else { continue };
                    // `exists_one` visits all items and absorbs no error, unlike `all` and `exists`.
                    match_count += u64::from(self.evaluate_predicate(body)?);
                }
                ComprehensionKind::List => {
                    let item = match &comprehension.body {
                        Some(body) => self.evaluate(body)?,
                        None => first,
                    };
                    list.push(item);
                }
                ComprehensionKind::SortBy => {
                    let Some(body) = &comprehension.body else { continue };
                    keys.push(self.evaluate(body)?);
                    list.push(first);
                }
                ComprehensionKind::Map => {
                    let Some(body) = &comprehension.body else { continue };
                    let value = self.evaluate(body)?;
                    // A map as range has valid keys. A list has integers as keys, because this macro has two variables.
                    let key = first.key().ok_or_else(|| CelErrorKind::UnsupportedKey.at(offset))?;
                    self.insert(&mut map, key, value).map_err(|kind| kind.at(offset))?;
                }
                ComprehensionKind::Entries => {
                    let Some(body) = &comprehension.body else { continue };
                    let CelValue::Map(entries) = self.evaluate(body)? else {
                        return Err(
                            CelErrorKind::invalid_argument("transformMapEntry", "the entry must be a map").at(offset)
                        );
                    };
                    // Entries may carry any keys. A key that an earlier iteration produced is an error, as in a map
                    // literal.
                    for (key, value) in entries.entries() {
                        self.insert(&mut map, key, value).map_err(|kind| kind.at(offset))?;
                    }
                }
            }
        }
        match comprehension.kind {
            ComprehensionKind::All => first_error.map_or(Ok(CelValue::Bool(true)), Err),
            ComprehensionKind::Exists => first_error.map_or(Ok(CelValue::Bool(false)), Err),
            ComprehensionKind::ExistsOne => Ok(CelValue::Bool(match_count == 1)),
            ComprehensionKind::List => Ok(list.into()),
            ComprehensionKind::SortBy => functions::sort_by(list, keys, self.meter).map_err(|kind| kind.at(offset)),
            ComprehensionKind::Map | ComprehensionKind::Entries => Ok(CelValue::map(map)),
        }
    }

    /// Returns the value of a predicate, which must be a bool.
    fn evaluate_predicate(&mut self, predicate: &'e Expr) -> Result<bool, CelError> {
        match self.evaluate(predicate)? {
            CelValue::Bool(value) => Ok(value),
            other => Err(CelErrorKind::no_such_overload("_?_:_", vec![other.type_of().name()]).at(predicate.offset)),
        }
    }
}

/// Adds the result of one operand to a combination in which `deciding_value` decides. Keeps the first error.
fn combine(
    result: Result<CelValue, CelError>,
    deciding_value: bool,
    function: &str,
    offset: u32,
    first_error: &mut Option<CelError>,
) -> Result<Decision, CelError> {
    let error = match result {
        Ok(CelValue::Bool(value)) => {
            return Ok(if value == deciding_value { Decision::Decided } else { Decision::Undecided });
        }
        Ok(other) => CelErrorKind::no_such_overload(function, vec![other.type_of().name()]).at(offset),
        // A later operand may still decide. Exhausted limits end the evaluation immediately.
        Err(error) if error.kind.is_absorbable() => error,
        Err(error) => return Err(error),
    };
    // If no operand decides, the result is the first error. The reported position is then independent of later errors.
    first_error.get_or_insert(error);
    Ok(Decision::Undecided)
}

fn list_entries(list: CelList<'_>, is_numbered: bool) -> impl Iterator<Item = (CelValue<'_>, Option<CelValue<'_>>)> {
    (0..list.len()).filter_map(move |index| {
        let item = list.get(index)?;
        // Indexes are of type `int` in CEL. A list in memory never exceeds the range.
        let number = i64::try_from(index).ok()?;
        Some(if is_numbered { (CelValue::Int(number), Some(item)) } else { (item, None) })
    })
}

fn literal_value<'a>(literal: &Literal) -> CelValue<'a> {
    match literal {
        Literal::Null => CelValue::Null,
        Literal::Bool(value) => CelValue::Bool(*value),
        Literal::Int(value) => CelValue::Int(*value),
        Literal::Uint(value) => CelValue::Uint(*value),
        Literal::Double(value) => CelValue::Double(*value),
        Literal::String(text) => CelValue::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => CelValue::Bytes(bytes.clone()),
        Literal::Type(cel_type) => CelValue::Type(*cel_type),
    }
}

fn optional_of(value: Option<CelValue>) -> CelValue {
    CelValue::Optional(value.map(Arc::new))
}

/// Selects a field of a map. A selection on an optional value is optional too; `.?` on null is empty.
fn select<'a>(operand: CelValue<'a>, field: &str, is_optional: bool) -> Result<CelValue<'a>, CelErrorKind> {
    match operand {
        CelValue::Map(map) if is_optional => Ok(optional_of(require_valid(map.field(field))?)),
        CelValue::Map(map) => match require_valid(map.field(field))? {
            Some(value) => Ok(value),
            // A plain selection of a null field results in null, even if null fields count as absent otherwise. So a
            // comparison of the field with null stays true.
            None if map.is_null(field) => Ok(CelValue::Null),
            None => Err(CelErrorKind::NoSuchField(field.to_owned())),
        },
        // A selection through an optional needs no `?` of its own: absence propagates to the end of the chain.
        CelValue::Optional(None) => Ok(CelValue::Optional(None)),
        CelValue::Optional(Some(value)) => match &*value {
            CelValue::Map(map) => Ok(optional_of(require_valid(map.field(field))?)),
            other => Err(no_field(other)),
        },
        CelValue::Null if is_optional => Ok(CelValue::Optional(None)),
        other => Err(no_field(&other)),
    }
}

fn no_field(value: &CelValue) -> CelErrorKind {
    CelErrorKind::no_such_overload("_._", vec![value.type_of().name()])
}

/// Returns the value, if present. Returns an error if the value is invalid.
fn require_valid(found: Option<CelValue<'_>>) -> Result<Option<CelValue<'_>>, CelErrorKind> {
    found.map(CelValue::into_valid).transpose()
}

/// Returns the item of a list or the entry of a map, if present.
fn lookup<'a>(container: &CelValue<'a>, index: &CelValue<'a>) -> Result<Option<CelValue<'a>>, CelErrorKind> {
    let integer = match index {
        // CEL compares numbers across types, so that `list[1.0]` and `map[1.0]` find the entry of the integer 1.
        CelValue::Double(number) => operators::exact_integer(*number).map(CelValue::Int),
        _ => None,
    };
    let index = integer.as_ref().unwrap_or(index);
    match (container, index) {
        (CelValue::List(list), CelValue::Int(index)) => {
            // A negative index fails the conversion and counts as out of range. CEL does not index from the end.
            require_valid(usize::try_from(*index).ok().and_then(|index| list.get(index)))
        }
        (CelValue::List(list), CelValue::Uint(index)) => {
            require_valid(usize::try_from(*index).ok().and_then(|index| list.get(index)))
        }
        (CelValue::Map(map), index) => lookup_key(map, index),
        _ => Err(CelErrorKind::no_such_overload("_[_]", vec![container.type_of().name(), index.type_of().name()])),
    }
}

fn lookup_key<'a>(map: &CelMap<'a>, key: &CelValue<'a>) -> Result<Option<CelValue<'a>>, CelErrorKind> {
    match key.key() {
        Some(key) => require_valid(map.get(&key)),
        // A double that is not a whole number equals no key.
        None if matches!(key, CelValue::Double(_)) => Ok(None),
        None => Err(CelErrorKind::UnsupportedKey),
    }
}
