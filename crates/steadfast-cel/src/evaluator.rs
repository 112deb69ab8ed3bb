//! Evaluation of a syntax tree.
//!
//! Each kind of node has a function of its own, so that a level of nesting takes little stack.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Comprehension, ComprehensionKind, Entry, Expr, ExprKind, Item, Link, Literal};
use crate::context::Context;
use crate::error::{Error, Fault};
use crate::functions;
use crate::key::Key;
use crate::meter::Meter;
use crate::operators;
use crate::text::Text;
use crate::types::Type;
use crate::value::{List, Map, Value};

pub(crate) struct Evaluator<'e, 'a, 'm, 'b> {
    context: &'e Context<'a>,
    meter: &'m mut Meter<'b>,
    /// Variables of macros, innermost last.
    locals: Vec<(&'e str, Value<'a>)>,
}

/// Decision of a predicate that `&&`, `||`, `all` and `exists` combine.
enum Combined {
    /// The result is known.
    Decided,
    /// The result depends on further operands.
    Open,
}

impl<'e, 'a, 'm, 'b> Evaluator<'e, 'a, 'm, 'b> {
    pub(crate) fn new(context: &'e Context<'a>, meter: &'m mut Meter<'b>) -> Self {
        Self { context, meter, locals: Vec::new() }
    }

    /// Evaluates a node.
    pub(crate) fn evaluate(&mut self, expr: &'e Expr) -> Result<Value<'a>, Error> {
        // Charging before the evaluation also bounds the time of nodes that fail.
        self.meter.charge(1).map_err(|fault| fault.at(expr.at))?;
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(constant(literal)),
            ExprKind::Name(name) => self.name(name).map_err(|fault| fault.at(expr.at)),
            ExprKind::Select { of, field, optional } => self.select(expr.at, of, field, *optional),
            ExprKind::Has { of, field } => self.has(expr.at, of, field),
            ExprKind::Index { of, index, optional } => self.index(expr.at, of, index, *optional),
            ExprKind::Call { target, name, arguments } => self.call(expr.at, target.as_deref(), name, arguments),
            ExprKind::List(items) => self.list(expr.at, items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message { name } => Err(Fault::UnknownName(name.clone()).at(expr.at)),
            ExprKind::Not(of) => self.not(expr.at, of),
            ExprKind::Negate(of) => {
                let value = self.evaluate(of)?;
                operators::negate(value).map_err(|fault| fault.at(expr.at))
            }
            ExprKind::Chain { first, rest } => self.chain(first, rest),
            ExprKind::And(operands) => self.logical(expr.at, operands, false),
            ExprKind::Or(operands) => self.logical(expr.at, operands, true),
            ExprKind::Conditional { condition, yes, no } => self.conditional(expr.at, condition, yes, no),
            ExprKind::Comprehension(of) => self.comprehension(expr.at, of),
            ExprKind::Bind { name, value, body } => {
                let value = self.evaluate(value)?;
                self.with(name, value, body)
            }
            ExprKind::OptionalMap { of, name, body, flat } => self.optional_map(expr.at, of, name, body, *flat),
        }
    }

    fn name(&self, name: &str) -> Result<Value<'a>, Fault> {
        // Inner variables shadow outer ones, and local variables shadow those of the context.
        let local = self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, value)| value);
        if let Some(value) = local.or_else(|| self.context.get(name)) {
            // A field of an object that does not fit its schema is bound as an invalid value. Only reading the name is
            // an error, as rules may never read the field.
            return value.clone().readable();
        }
        // Type names have the lowest precedence: the CEL specification lets a variable shadow an identifier such as
        // `int`.
        Type::named(name).map(Value::Type).ok_or_else(|| Fault::UnknownName(name.to_owned()))
    }

    fn with(&mut self, name: &'e str, value: Value<'a>, body: &'e Expr) -> Result<Value<'a>, Error> {
        self.locals.push((name, value));
        let result = self.evaluate(body);
        // The variable is removed on errors too: `&&`, `||`, `all` and `exists` absorb errors and evaluate further
        // operands with the same locals.
        self.locals.pop();
        result
    }

    fn select(&mut self, at: u32, of: &'e Expr, field: &str, optional: bool) -> Result<Value<'a>, Error> {
        let of = self.evaluate(of)?;
        select(of, field, optional).map_err(|fault| fault.at(at))
    }

    fn has(&mut self, at: u32, of: &'e Expr, field: &str) -> Result<Value<'a>, Error> {
        let value = match self.evaluate(of)? {
            Value::Optional(None) => return Ok(Value::Bool(false)),
            Value::Optional(Some(value)) => Value::clone(&value),
            value => value,
        };
        match value {
            Value::Map(map) => {
                // An invalid field is an error rather than present: the value does not have the declared type.
                let found = readable(map.field(field)).map_err(|fault| fault.at(at))?;
                Ok(Value::Bool(found.is_some()))
            }
            // The operand of `has` must be a map. On a real server the type checker rejects other operands before an
            // evaluation.
            other => Err(Fault::overload("has", vec![other.type_of().name()]).at(at)),
        }
    }

    fn index(&mut self, at: u32, of: &'e Expr, index: &'e Expr, optional: bool) -> Result<Value<'a>, Error> {
        let of = self.evaluate(of)?;
        // A name from the text of the expression may be part of an error; a computed key may be a secret.
        let literal = match &index.kind {
            ExprKind::Literal(Literal::String(name)) => Some(name),
            _ => None,
        };
        let index = self.evaluate(index)?;
        let found = match of {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => {
                // An optional operand makes the result optional even without `?`, so that chains such as `a[?b][c]`
                // need one `?` only.
                return lookup(&value, &index).map(optional_of).map_err(|fault| fault.at(at));
            }
            Value::Null if optional => return Ok(Value::Optional(None)),
            // The kind of the operand decides the error below: lists report an index out of range, maps report a
            // missing key.
            of => lookup(&of, &index).map(|found| (found, matches!(of, Value::List(_)))),
        };
        match found.map_err(|fault| fault.at(at))? {
            (found, _) if optional => Ok(optional_of(found)),
            (Some(value), _) => Ok(value),
            (None, true) => Err(Fault::IndexOutOfRange.at(at)),
            (None, false) => Err(literal.map_or(Fault::NoSuchKey, |name| Fault::NoSuchField(name.to_string())).at(at)),
        }
    }

    fn call(&mut self, at: u32, target: Option<&'e Expr>, name: &str, of: &'e [Expr]) -> Result<Value<'a>, Error> {
        // These functions evaluate their argument only if needed, so they are not plain calls.
        if let (Some(target), "or" | "orValue", [other]) = (target, name, of) {
            return self.alternative(at, target, name, other);
        }
        let mut arguments = Vec::with_capacity(of.len() + 1);
        for argument in target.into_iter().chain(of) {
            // The arguments of a function are strict: unlike operands of `&&`, the first error ends the call.
            arguments.push(self.evaluate(argument)?);
        }
        // Standard functions take precedence, so that a caller cannot change the meaning of a portable expression.
        let result = functions::call(name, target.is_some(), &arguments, self.meter)
            .or_else(|| self.context.call(name, &arguments, self.meter));
        let result = result.unwrap_or_else(|| Err(Fault::UnknownFunction(name.to_owned())));
        // A function such as `first` can return an invalid item of a list.
        result.and_then(Value::readable).map_err(|fault| fault.at(at))
    }

    /// Evaluates `a.or(b)` or `a.orValue(b)`. Evaluates `b` only if `a` is empty.
    fn alternative(&mut self, at: u32, of: &'e Expr, name: &str, other: &'e Expr) -> Result<Value<'a>, Error> {
        match self.evaluate(of)? {
            Value::Optional(Some(value)) if name == "orValue" => {
                // Only `orValue` unwraps the optional. Unwrapping reads the value, so a value that does not fit its
                // schema is an error.
                Value::clone(&value).readable().map_err(|fault| fault.at(at))
            }
            Value::Optional(Some(value)) => Ok(Value::Optional(Some(value))),
            Value::Optional(None) => {
                let value = self.evaluate(other)?;
                if name == "or" && !matches!(value, Value::Optional(_)) {
                    return Err(Fault::overload(name, vec![Type::Optional.name(), value.type_of().name()]).at(at));
                }
                Ok(value)
            }
            value => Err(Fault::overload(name, vec![value.type_of().name()]).at(at)),
        }
    }

    fn list(&mut self, at: u32, items: &'e [Item]) -> Result<Value<'a>, Error> {
        let mut built = Vec::with_capacity(items.len());
        for item in items {
            let value = self.evaluate(&item.value)?;
            match (item.optional, value) {
                (false, value) => built.push(value),
                // `?` drops an empty optional from the literal, as the extension for optional types of CEL specifies.
                (true, Value::Optional(value)) => built.extend(value.as_deref().cloned()),
                (true, other) => return Err(Fault::overload("[?_]", vec![other.type_of().name()]).at(at)),
            }
        }
        Ok(built.into())
    }

    fn map(&mut self, entries: &'e [Entry]) -> Result<Value<'a>, Error> {
        let mut built = BTreeMap::new();
        for entry in entries {
            let at = entry.key.at;
            let key = self.evaluate(&entry.key)?;
            // Doubles, null, lists and maps are not valid keys of CEL maps, even if a double is whole.
            let key = key.key().ok_or_else(|| Fault::UnsupportedKey.at(at))?;
            let value = match (entry.optional, self.evaluate(&entry.value)?) {
                (false, value) => value,
                (true, Value::Optional(Some(value))) => Value::clone(&value),
                // The value is evaluated even if the entry is dropped: errors of the value remain errors of the
                // literal.
                (true, Value::Optional(None)) => continue,
                (true, other) => return Err(Fault::overload("{?_:_}", vec![other.type_of().name()]).at(at)),
            };
            self.insert(&mut built, key, value).map_err(|fault| fault.at(at))?;
        }
        Ok(Value::map(built))
    }

    fn insert(&mut self, map: &mut BTreeMap<Key<'a>, Value<'a>>, key: Key<'a>, value: Value<'a>) -> Result<(), Fault> {
        // One unit per entry covers the node in the tree of the map. The costs of evaluating the key and the value do
        // not cover it.
        self.meter.charge(1)?;
        match map.insert(key, value) {
            None => Ok(()),
            // CEL specifies repeated keys as an error; the last entry does not win as in JSON.
            Some(_) => Err(Fault::DuplicateKey),
        }
    }

    fn not(&mut self, at: u32, of: &'e Expr) -> Result<Value<'a>, Error> {
        match self.evaluate(of)? {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            other => Err(Fault::overload("!_", vec![other.type_of().name()]).at(at)),
        }
    }

    fn chain(&mut self, first: &'e Expr, rest: &'e [Link]) -> Result<Value<'a>, Error> {
        let mut value = self.evaluate(first)?;
        // The operators associate to the left. The loop keeps the stack flat for a sum of 10,000 numbers.
        for Link { operator, at, right } in rest {
            let right = self.evaluate(right)?;
            value = operators::binary(*operator, &value, &right, self.meter).map_err(|fault| fault.at(*at))?;
        }
        Ok(value)
    }

    /// Evaluates `&&` or `||`: an operand equal to `decisive` decides, even if other operands fail.
    fn logical(&mut self, at: u32, operands: &'e [Expr], decisive: bool) -> Result<Value<'a>, Error> {
        let function = if decisive { "_||_" } else { "_&&_" };
        let mut failed = None;
        // Operands run from the left. CEL allows any order because a later decisive operand overrules an earlier error.
        for operand in operands {
            let result = self.evaluate(operand);
            if matches!(combine(result, decisive, function, at, &mut failed)?, Combined::Decided) {
                return Ok(Value::Bool(decisive));
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn conditional(&mut self, at: u32, of: &'e Expr, yes: &'e Expr, no: &'e Expr) -> Result<Value<'a>, Error> {
        match self.evaluate(of)? {
            // Only the selected branch runs, so that `has(a.b) ? a.b : c` is safe.
            Value::Bool(true) => self.evaluate(yes),
            Value::Bool(false) => self.evaluate(no),
            other => Err(Fault::overload("_?_:_", vec![other.type_of().name()]).at(at)),
        }
    }

    fn optional_map(
        &mut self,
        at: u32,
        of: &'e Expr,
        name: &'e str,
        body: &'e Expr,
        flat: bool,
    ) -> Result<Value<'a>, Error> {
        let function = if flat { "optFlatMap" } else { "optMap" };
        let value = match self.evaluate(of)? {
            Value::Optional(Some(value)) => Value::clone(&value),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            other => return Err(Fault::overload(function, vec![other.type_of().name()]).at(at)),
        };
        match self.with(name, value, body)? {
            // `optMap` wraps the result again, and `optFlatMap` requires an optional from its body. The second form
            // avoids nested optionals.
            value if !flat => Ok(Value::some(value)),
            value @ Value::Optional(_) => Ok(value),
            other => Err(Fault::overload(function, vec![Type::Optional.name(), other.type_of().name()]).at(at)),
        }
    }

    fn comprehension(&mut self, at: u32, of: &'e Comprehension) -> Result<Value<'a>, Error> {
        let range = self.evaluate(&of.range)?;
        match range {
            Value::List(list) => {
                // JSON lists stay borrowed: the items are converted one at a time, and the loop charges for each.
                let entries = list_entries(list, of.second.is_some());
                self.loop_over(at, of, entries)
            }
            Value::Map(map) => {
                self.meter.charge(1).map_err(|fault| fault.at(at))?;
                if map.json().is_none() {
                    // The entries of a computed map are copied.
                    self.meter.charge(map.max_len() as u64).map_err(|fault| fault.at(at))?;
                }
                let with_values = of.second.is_some();
                let entries = map.entries().map(move |(key, value)| (Value::from(key), with_values.then_some(value)));
                self.loop_over(at, of, entries)
            }
            other => Err(Fault::overload("comprehension", vec![other.type_of().name()]).at(at)),
        }
    }

    /// Evaluates a macro for each entry: an item; or with two variables, an index or key and its value.
    fn loop_over(
        &mut self,
        at: u32,
        of: &'e Comprehension,
        entries: impl Iterator<Item = (Value<'a>, Option<Value<'a>>)>,
    ) -> Result<Value<'a>, Error> {
        let before = self.locals.len();
        let result = self.accumulate(at, of, entries);
        // An error can leave variables of the failed iteration in `locals`. The caller may absorb the error and
        // continue.
        self.locals.truncate(before);
        result
    }

    fn accumulate(
        &mut self,
        at: u32,
        of: &'e Comprehension,
        entries: impl Iterator<Item = (Value<'a>, Option<Value<'a>>)>,
    ) -> Result<Value<'a>, Error> {
        let before = self.locals.len();
        let mut failed = None;
        let mut found = 0_u64;
        let mut list = Vec::new();
        let mut keys = Vec::new();
        let mut map = BTreeMap::new();
        for (first, second) in entries {
            self.meter.charge(1).map_err(|fault| fault.at(at))?;
            // Drops the variables of the previous iteration. The slots are reused, so that a loop allocates at most
            // once.
            self.locals.truncate(before);
            self.locals.push((&of.name, first.clone()));
            if let (Some(name), Some(value)) = (&of.second, &second) {
                self.locals.push((name, value.clone()));
            }
            // Errors of a condition are never absorbed: only the bodies of `all` and `exists` have the semantics of
            // `&&` and `||`.
            if let Some(condition) = &of.condition
                && !self.holds(condition)?
            {
                continue;
            }
            match of.kind {
                ComprehensionKind::All | ComprehensionKind::Exists => {
                    let Some(body) = &of.body else { continue };
                    let decisive = of.kind == ComprehensionKind::Exists;
                    let result = self.evaluate(body);
                    let function = if decisive { "exists" } else { "all" };
                    if matches!(combine(result, decisive, function, at, &mut failed)?, Combined::Decided) {
                        // A decisive item ends the loop early, which bounds the cost of `exists` by the position of the
                        // first match.
                        return Ok(Value::Bool(decisive));
                    }
                }
                ComprehensionKind::ExistsOne => {
                    let Some(body) = &of.body else { continue };
                    // `exists_one` visits all items and absorbs no error, unlike `all` and `exists`.
                    found += u64::from(self.holds(body)?);
                }
                ComprehensionKind::List => {
                    let item = match &of.body {
                        Some(body) => self.evaluate(body)?,
                        None => first,
                    };
                    list.push(item);
                }
                ComprehensionKind::SortBy => {
                    let Some(body) = &of.body else { continue };
                    keys.push(self.evaluate(body)?);
                    list.push(first);
                }
                ComprehensionKind::Map => {
                    let Some(body) = &of.body else { continue };
                    let value = self.evaluate(body)?;
                    // A map as range has valid keys. A list has integers as keys, because this macro has two variables.
                    let key = first.key().ok_or_else(|| Fault::UnsupportedKey.at(at))?;
                    self.insert(&mut map, key, value).map_err(|fault| fault.at(at))?;
                }
                ComprehensionKind::Entries => {
                    let Some(body) = &of.body else { continue };
                    let Value::Map(entries) = self.evaluate(body)? else {
                        return Err(Fault::argument("transformMapEntry", "the entry must be a map").at(at));
                    };
                    // Entries may carry any keys. A key that an earlier iteration produced is an error, as in a map
                    // literal.
                    for (key, value) in entries.entries() {
                        self.insert(&mut map, key, value).map_err(|fault| fault.at(at))?;
                    }
                }
            }
        }
        match of.kind {
            ComprehensionKind::All => failed.map_or(Ok(Value::Bool(true)), Err),
            ComprehensionKind::Exists => failed.map_or(Ok(Value::Bool(false)), Err),
            ComprehensionKind::ExistsOne => Ok(Value::Bool(found == 1)),
            ComprehensionKind::List => Ok(list.into()),
            ComprehensionKind::SortBy => functions::sort_by(list, keys, self.meter).map_err(|fault| fault.at(at)),
            ComprehensionKind::Map | ComprehensionKind::Entries => Ok(Value::map(map)),
        }
    }

    /// Returns the value of a predicate, which must be a bool.
    fn holds(&mut self, predicate: &'e Expr) -> Result<bool, Error> {
        match self.evaluate(predicate)? {
            Value::Bool(value) => Ok(value),
            other => Err(Fault::overload("_?_:_", vec![other.type_of().name()]).at(predicate.at)),
        }
    }
}

/// Adds the result of one operand to a combination in which `decisive` decides. Keeps the first error in `failed`.
fn combine(
    result: Result<Value, Error>,
    decisive: bool,
    function: &str,
    at: u32,
    failed: &mut Option<Error>,
) -> Result<Combined, Error> {
    let error = match result {
        Ok(Value::Bool(value)) => return Ok(if value == decisive { Combined::Decided } else { Combined::Open }),
        Ok(other) => Fault::overload(function, vec![other.type_of().name()]).at(at),
        // A later operand may still decide. Exhausted limits end the evaluation at once.
        Err(error) if error.fault.is_absorbable() => error,
        Err(error) => return Err(error),
    };
    // The first error is the result if no operand decides.
    // The first error, not the last: the reported position is then independent of the number of later errors.
    failed.get_or_insert(error);
    Ok(Combined::Open)
}

fn list_entries(list: List<'_>, is_numbered: bool) -> impl Iterator<Item = (Value<'_>, Option<Value<'_>>)> {
    (0..list.len()).filter_map(move |index| {
        let item = list.get(index)?;
        // Indexes are of type `int` in CEL. A list in memory never exceeds the range.
        let number = i64::try_from(index).ok()?;
        Some(if is_numbered { (Value::Int(number), Some(item)) } else { (item, None) })
    })
}

fn constant<'a>(literal: &Literal) -> Value<'a> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
        Literal::Type(named) => Value::Type(*named),
    }
}

fn optional_of(value: Option<Value>) -> Value {
    Value::Optional(value.map(Arc::new))
}

/// Selects a field of a map. A selection on an optional value is optional too; `.?` on null is empty.
fn select<'a>(of: Value<'a>, field: &str, optional: bool) -> Result<Value<'a>, Fault> {
    match of {
        Value::Map(map) if optional => Ok(optional_of(readable(map.field(field))?)),
        Value::Map(map) => match readable(map.field(field))? {
            Some(value) => Ok(value),
            // Counts as absent for `has` and `.?` only: a plain comparison with null stays true.
            None if map.is_null(field) => Ok(Value::Null),
            None => Err(Fault::NoSuchField(field.to_owned())),
        },
        // A selection through an optional needs no `?` of its own: absence propagates to the end of the chain.
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => match &*value {
            Value::Map(map) => Ok(optional_of(readable(map.field(field))?)),
            other => Err(no_field(other)),
        },
        Value::Null if optional => Ok(Value::Optional(None)),
        other => Err(no_field(&other)),
    }
}

fn no_field(value: &Value) -> Fault {
    Fault::overload("_._", vec![value.type_of().name()])
}

/// Returns the value, if present. Returns an error if the value is invalid.
fn readable(found: Option<Value<'_>>) -> Result<Option<Value<'_>>, Fault> {
    found.map(Value::readable).transpose()
}

/// Returns the item of a list or the entry of a map, if present.
fn lookup<'a>(of: &Value<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>, Fault> {
    let whole = match index {
        // CEL compares numbers across types, so that `list[1.0]` and `map[1.0]` find the entry of the integer 1.
        Value::Double(number) => operators::whole(*number).map(Value::Int),
        _ => None,
    };
    let index = whole.as_ref().unwrap_or(index);
    match (of, index) {
        (Value::List(list), Value::Int(index)) => {
            // A negative index fails the conversion and counts as out of range. CEL does not index from the end.
            readable(usize::try_from(*index).ok().and_then(|index| list.get(index)))
        }
        (Value::List(list), Value::Uint(index)) => {
            readable(usize::try_from(*index).ok().and_then(|index| list.get(index)))
        }
        (Value::Map(map), index) => lookup_key(map, index),
        _ => Err(Fault::overload("_[_]", vec![of.type_of().name(), index.type_of().name()])),
    }
}

fn lookup_key<'a>(map: &Map<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, Fault> {
    match key.key() {
        Some(key) => readable(map.get(&key)),
        // A double that is not a whole number equals no key.
        None if matches!(key, Value::Double(_)) => Ok(None),
        None => Err(Fault::UnsupportedKey),
    }
}
