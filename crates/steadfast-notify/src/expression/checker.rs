//! Static checks of an expression: unknown names, and values with incompatible types.

use steadfast_cel::Type;
use steadfast_cel::ast::{
    BinaryOperation, Comprehension, ComprehensionKind, Expr, ExprKind, Literal, MapEntry, Operator,
};

use super::error::{ExpressionError, Purpose, chars_before};
use super::kind::{EVENT_FIELDS, FUNCTIONS, VARIABLE_NAMES, ValueType};
use crate::entry_fields::{EntryFields, FieldKind, names};
use crate::path::ValuePath;

/// Checker of one expression.
pub(super) struct Checker<'e> {
    text: &'e str,
    /// Variables of macros, innermost last.
    bound_names: Vec<&'e str>,
    /// Variables available to the expression.
    names: &'static [&'static str],
    pub(super) errors: Vec<ExpressionError>,
    /// Arguments of `changed(…)`.
    pub(super) paths: Vec<String>,
    /// True if the expression reads `old`.
    pub(super) reads_old: bool,
    /// True if the expression reads `now`.
    pub(super) reads_now: bool,
    /// Unique resources of `get(…)`, with the number of characters before the first use.
    pub(super) lookups: Vec<(String, usize)>,
}

impl<'e> Checker<'e> {
    pub(super) fn new(text: &'e str) -> Self {
        Self {
            text,
            bound_names: Vec::new(),
            names: &VARIABLE_NAMES,
            errors: Vec::new(),
            paths: Vec::new(),
            reads_old: false,
            reads_now: false,
            lookups: Vec::new(),
        }
    }

    /// Checks the whole expression.
    pub(super) fn check(&mut self, root: &'e Expr, purpose: Purpose) {
        if let Purpose::Body(names) = purpose {
            self.names = names;
        }
        let kind = self.kind(root);
        match purpose {
            Purpose::Condition if !kind.may_be(ValueType::Bool) => {
                self.report(root, format!("the result is {}, expected true or false", kind.name()));
            }
            Purpose::Entries(entry_fields) => {
                let may_be_entries =
                    [ValueType::Map, ValueType::List, ValueType::Null].into_iter().any(|entries| kind.may_be(entries));
                if !may_be_entries {
                    let description = format!("the result is {}, expected an entry or a list of entries", kind.name());
                    self.report(root, description);
                }
                self.entries(root, entry_fields);
            }
            Purpose::Condition | Purpose::Value | Purpose::Body(_) => {}
        }
    }

    /// Checks literal entries against `entry_fields`.
    fn entries(&mut self, expr: &Expr, entry_fields: EntryFields) {
        match &expr.kind {
            ExprKind::Map(entries) => self.entry(expr, entries, entry_fields),
            ExprKind::List(items) => {
                items.iter().filter(|item| !item.optional).for_each(|item| self.entries(&item.value, entry_fields));
            }
            ExprKind::Conditional { yes, no, .. } => {
                self.entries(yes, entry_fields);
                self.entries(no, entry_fields);
            }
            ExprKind::Binary { first, rest } if rest.iter().all(|operation| operation.operator == Operator::Add) => {
                self.entries(first, entry_fields);
                for operation in rest {
                    self.entries(&operation.right, entry_fields);
                }
            }
            ExprKind::Comprehension(of) if of.kind == ComprehensionKind::List => {
                of.body.iter().for_each(|body| self.entries(body, entry_fields));
            }
            ExprKind::Bind { body, .. } => self.entries(body, entry_fields),
            _ => {}
        }
    }

    fn entry(&mut self, expr: &Expr, entries: &[MapEntry], entry_fields: EntryFields) {
        let mut found = Vec::new();
        for MapEntry { optional, key, value } in entries {
            // A computed key can be any field, so required fields cannot be checked.
            let ExprKind::Literal(Literal::String(name)) = &key.kind else { return };
            let Some(field) = entry_fields.iter().find(|field| *field.name == **name) else {
                self.report(key, format!("an entry has no `{name}`; it has {}", names(entry_fields)));
                continue;
            };
            found.push(field.name);
            let expected_kind = match field.kind {
                FieldKind::Text => ValueType::Text,
                FieldKind::Number => ValueType::Number,
                FieldKind::Bool => ValueType::Bool,
                FieldKind::Any => ValueType::Any,
            };
            let kind = if *optional { ValueType::Any } else { evident_kind(value) };
            if !kind.may_be(expected_kind) {
                let description = format!("`{}` is {}, expected {}", field.name, kind.name(), expected_kind.name());
                self.report(value, description);
            }
        }
        if let Some(missing) = entry_fields.iter().find(|field| field.is_required && !found.contains(&field.name)) {
            self.report(expr, format!("an entry needs `{}`; it has {}", missing.name, names(entry_fields)));
        }
    }

    fn report(&mut self, expr: &Expr, description: String) {
        self.report_at(expr.offset, description);
    }

    fn report_at(&mut self, offset: u32, description: String) {
        let error = ExpressionError { offset: chars_before(self.text, offset as usize), description };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn kind(&mut self, expr: &'e Expr) -> ValueType {
        match &expr.kind {
            ExprKind::Literal(_) => evident_kind(expr),
            ExprKind::Name(name) => self.name(expr, name),
            ExprKind::Select { of, field, optional } => {
                let kind = self.field(expr, of, field);
                if *optional { ValueType::Any } else { kind }
            }
            ExprKind::Has { of, field } => {
                self.field(expr, of, field);
                ValueType::Bool
            }
            ExprKind::Index { of, index, .. } => {
                self.kind(of);
                self.kind(index);
                ValueType::Any
            }
            ExprKind::Call { target, name, arguments } => self.call(expr, target.as_deref(), name, arguments),
            ExprKind::List(items) => {
                for item in items {
                    self.kind(&item.value);
                }
                ValueType::List
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    let key = self.kind(&entry.key);
                    if !key.may_be(ValueType::Text) {
                        self.report(&entry.key, format!("the key is {}, expected text", key.name()));
                    }
                    self.kind(&entry.value);
                }
                ValueType::Map
            }
            ExprKind::Message { name } => {
                self.report(expr, format!("unknown type `{name}`; write a map as {{'name': …}}"));
                ValueType::Any
            }
            ExprKind::Not(of) => {
                self.require_bool(of);
                ValueType::Bool
            }
            ExprKind::Negate(of) => {
                let kind = self.kind(of);
                if !kind.may_be(ValueType::Number) && kind != ValueType::Duration {
                    self.report(of, format!("the value is {}, expected a number", kind.name()));
                }
                kind
            }
            ExprKind::Binary { first, rest } => self.binary_kind(first, rest),
            ExprKind::And(operands) | ExprKind::Or(operands) => {
                for operand in operands {
                    self.require_bool(operand);
                }
                ValueType::Bool
            }
            ExprKind::Conditional { condition, yes, no } => {
                self.require_bool(condition);
                let (yes, no) = (self.kind(yes), self.kind(no));
                // Branches of different kinds are valid CEL. The kind of the result is then unknown.
                if yes == no { yes } else { ValueType::Any }
            }
            ExprKind::Comprehension(of) => self.comprehension_kind(of),
            ExprKind::Bind { name, value, body } => {
                self.kind(value);
                self.with_bound_names(&[name], |checker| checker.kind(body))
            }
            ExprKind::OptionalMap { of, name, body, .. } => {
                self.kind(of);
                self.with_bound_names(&[name], |checker| checker.kind(body));
                ValueType::Any
            }
        }
    }

    /// Runs `check` with further variables bound.
    fn with_bound_names<T>(&mut self, names: &[&'e String], check: impl FnOnce(&mut Self) -> T) -> T {
        let bound_before = self.bound_names.len();
        self.bound_names.extend(names.iter().map(|name| name.as_str()));
        let result = check(self);
        self.bound_names.truncate(bound_before);
        result
    }

    fn is_bound(&self, name: &str) -> bool {
        self.bound_names.contains(&name)
    }

    fn name(&mut self, expr: &Expr, name: &str) -> ValueType {
        if self.is_bound(name) {
            return ValueType::Any;
        }
        match name {
            "now" => {
                self.reads_now = true;
                return ValueType::Time;
            }
            "old" => self.reads_old = true,
            _ => {}
        }
        if !self.names.contains(&name) && Type::named(name).is_none() {
            self.report(
                expr,
                format!("unknown variable `{name}`; available: {}; write text in quotes", self.names.join(", ")),
            );
        }
        ValueType::Any
    }

    fn field(&mut self, expr: &Expr, of: &'e Expr, field: &str) -> ValueType {
        let kind = self.kind(of);
        if self.names.contains(&"event")
            && matches!(&of.kind, ExprKind::Name(name) if name == "event")
            && !self.is_bound("event")
        {
            if let Some((_, kind)) = EVENT_FIELDS.iter().find(|(name, _)| *name == field) {
                return *kind;
            }
            let fields: Vec<&str> = EVENT_FIELDS.iter().map(|(field, _)| *field).collect();
            self.report(expr, format!("`event` has no `{field}`; it has {}", fields.join(", ")));
            return ValueType::Any;
        }
        if !kind.may_be(ValueType::Map) {
            self.report(expr, format!("{} has no `{field}`", kind.name()));
        }
        ValueType::Any
    }

    fn require_bool(&mut self, operand: &'e Expr) {
        let kind = self.kind(operand);
        if !kind.may_be(ValueType::Bool) {
            self.report(operand, format!("the value is {}, expected true or false", kind.name()));
        }
    }

    fn comprehension_kind(&mut self, of: &'e Comprehension) -> ValueType {
        let range = self.kind(&of.range);
        if !range.may_be(ValueType::List) && !range.may_be(ValueType::Map) {
            self.report(&of.range, format!("{} has no items to iterate over", range.name()));
        }
        let names: Vec<&String> = [&of.name].into_iter().chain(&of.second).collect();
        self.with_bound_names(&names, |checker| {
            if let Some(condition) = &of.condition {
                checker.require_bool(condition);
            }
            if let Some(body) = &of.body {
                match of.kind {
                    ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                        checker.require_bool(body);
                    }
                    _ => {
                        checker.kind(body);
                    }
                }
            }
        });
        match of.kind {
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => ValueType::Bool,
            ComprehensionKind::List | ComprehensionKind::SortBy => ValueType::List,
            ComprehensionKind::Map | ComprehensionKind::Entries => ValueType::Map,
        }
    }

    fn binary_kind(&mut self, first: &'e Expr, rest: &'e [BinaryOperation]) -> ValueType {
        let (mut left_offset, mut left) = (first.offset, self.kind(first));
        for BinaryOperation { operator, offset, right } in rest {
            let kind = self.kind(right);
            let kinds_differ = !left.may_be(kind);
            let are_times = left.is_time_or_duration() && kind.is_time_or_duration();
            let mut report_mismatch =
                |word: &str| self.report_at(*offset, format!("{} {word} {}", left.name(), kind.name()));
            left = match operator {
                Operator::Equal | Operator::NotEqual => {
                    // A comparison with null is a common check for absence.
                    if kinds_differ && left != ValueType::Null && kind != ValueType::Null {
                        report_mismatch("is never equal to");
                    }
                    ValueType::Bool
                }
                Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
                    if kinds_differ {
                        report_mismatch("cannot be compared to");
                    }
                    ValueType::Bool
                }
                Operator::In => ValueType::Bool,
                Operator::Add | Operator::Subtract if are_times => ValueType::Any,
                Operator::Add => {
                    if kinds_differ {
                        report_mismatch("cannot be added to");
                    }
                    if left == ValueType::Any { kind.sum_kind() } else { left.sum_kind() }
                }
                Operator::Subtract if left.may_subtract_times(kind) => ValueType::Any,
                Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                    for (offset, kind) in [(left_offset, left), (right.offset, kind)] {
                        if !kind.may_be(ValueType::Number) {
                            self.report_at(offset, format!("the value is {}, expected a number", kind.name()));
                        }
                    }
                    // Times can be subtracted too, so two operands of unknown kind give an unknown kind.
                    if *operator == Operator::Subtract && left == ValueType::Any && kind == ValueType::Any {
                        ValueType::Any
                    } else {
                        ValueType::Number
                    }
                }
            };
            left_offset = *offset;
        }
        left
    }

    fn call(&mut self, expr: &Expr, target: Option<&'e Expr>, name: &str, arguments: &'e [Expr]) -> ValueType {
        if name == "changed" && target.is_none() {
            return self.changed(expr, arguments);
        }
        if name == "get" && target.is_none() {
            return self.get(expr, arguments);
        }
        target.into_iter().chain(arguments).for_each(|argument| {
            self.kind(argument);
        });
        let found = FUNCTIONS.iter().find(|(known, _)| *known == name);
        // An unknown function is reported here once. Otherwise the evaluation would fail for each object.
        if found.is_none() {
            let description = "available are CEL's standard functions, the string functions, `changed` and `get`";
            self.report(expr, format!("unknown function `{name}`; {description}"));
        }
        found.map_or(ValueType::Any, |(_, kind)| *kind)
    }

    fn get(&mut self, expr: &Expr, arguments: &'e [Expr]) -> ValueType {
        // `body` and `guard.group` are evaluated without a cluster, so lookups are impossible. Only `when` and `send`
        // of a rule have the name `old`.
        if !self.names.contains(&"old") {
            self.report(expr, "`get` is only available in `when` and `send` of a rule".to_owned());
            return ValueType::Any;
        }
        let usage = "`get` needs a resource in quotes, a namespace and a name: get('services', object.metadata.namespace, \
                     'web'); for a resource without namespaces only the name: get('nodes', object.spec.nodeName)";
        match arguments {
            [Expr { kind: ExprKind::Literal(Literal::String(resource)), offset }, rest @ ..]
                if matches!(rest.len(), 1 | 2) =>
            {
                if !self.lookups.iter().any(|(known, _)| **known == **resource) {
                    self.lookups.push((resource.to_string(), chars_before(self.text, *offset as usize)));
                }
                for argument in rest {
                    let kind = self.kind(argument);
                    if !kind.may_be(ValueType::Text) {
                        self.report(argument, format!("the value is {}, expected text", kind.name()));
                    }
                }
            }
            _ => self.report(expr, usage.to_owned()),
        }
        ValueType::Any
    }

    fn changed(&mut self, expr: &Expr, arguments: &[Expr]) -> ValueType {
        let path = match arguments {
            [Expr { kind: ExprKind::Literal(Literal::String(path)), .. }] => Some(path.to_string()),
            _ => None,
        };
        match path.as_deref().map(str::parse::<ValuePath>) {
            Some(Ok(_)) => self.paths.extend(path),
            Some(Err(reason)) => self.report(&arguments[0], reason),
            None => {
                self.report(
                    expr,
                    "`changed` needs the path to a field, in quotes: changed('spec.replicas')".to_owned(),
                );
            }
        }
        ValueType::Bool
    }
}

/// Returns the kind of a literal value.
fn evident_kind(expr: &Expr) -> ValueType {
    match &expr.kind {
        ExprKind::Literal(literal) => match literal {
            Literal::Bool(_) => ValueType::Bool,
            Literal::Bytes(_) => ValueType::Bytes,
            Literal::Double(_) | Literal::Int(_) | Literal::Uint(_) => ValueType::Number,
            Literal::Null => ValueType::Null,
            Literal::String(_) => ValueType::Text,
            Literal::Type(_) => ValueType::Any,
        },
        ExprKind::List(_) => ValueType::List,
        ExprKind::Map(_) => ValueType::Map,
        ExprKind::Has { .. } => ValueType::Bool,
        ExprKind::Call { target: None, name, .. } => {
            FUNCTIONS.iter().find(|(known, _)| known == name).map_or(ValueType::Any, |(_, kind)| *kind)
        }
        _ => ValueType::Any,
    }
}
