//! What can be known of an expression before there is an object: names that nothing has, values that do not go together.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, SourceInfo, operators,
};

use super::flaw::{Flaw, Purpose};
use super::known::{EVENT, FUNCTIONS, Kind, NAMES, TYPES};
use crate::path::FieldOf;
use crate::shape::{FieldKind, Shape, names};

/// Looks through one expression.
pub(super) struct Checker<'a> {
    source: &'a SourceInfo,
    /// The names that macros have for items, innermost last.
    bound: Vec<String>,
    /// The names that the expression may use.
    names: &'static [&'static str],
    pub(super) flaws: Vec<Flaw>,
    pub(super) paths: Vec<String>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(source: &'a SourceInfo) -> Self {
        Self { source, bound: Vec::new(), names: &NAMES, flaws: Vec::new(), paths: Vec::new() }
    }

    /// Looks through all of it.
    pub(super) fn check(&mut self, expression: &IdedExpr, purpose: Purpose) {
        if let Purpose::Body(names) = purpose {
            self.names = names;
        }
        let kind = self.kind(expression);
        match purpose {
            Purpose::Condition if !kind.may_be(Kind::Bool) => {
                self.flaw(expression, format!("it comes to {}, and has to come to true or false", kind.told()));
            }
            Purpose::Entries(shape) => {
                let fits = [Kind::Map, Kind::List, Kind::Null].into_iter().any(|entries| kind.may_be(entries));
                if !fits {
                    let what = format!("it comes to {}, and has to come to an entry, or a list of them", kind.told());
                    self.flaw(expression, what);
                }
                self.entries(expression, shape);
            }
            Purpose::Condition | Purpose::Value | Purpose::Body(_) => {}
        }
    }

    /// Looks for entries that are written out, and whether they have what an entry has.
    fn entries(&mut self, expression: &IdedExpr, shape: Shape) {
        match &expression.expr {
            Expr::Map(map) => self.entry(expression, map, shape),
            Expr::List(list) => list.elements.iter().for_each(|item| self.entries(item, shape)),
            Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
                call.args.iter().skip(1).for_each(|one| self.entries(one, shape));
            }
            Expr::Call(call) if call.func_name == operators::ADD => {
                call.args.iter().for_each(|one| self.entries(one, shape));
            }
            // What `map` has become: a list that grows by an item with each step.
            Expr::Comprehension(comprehension) => self.entries(&comprehension.loop_step, shape),
            _ => {}
        }
    }

    fn entry(&mut self, at: &IdedExpr, map: &MapExpr, shape: Shape) {
        let mut found = Vec::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let Expr::Literal(LiteralValue::String(key)) = &entry.key.expr else {
                // Whatever it is called.
                return;
            };
            let Some(field) = shape.iter().find(|field| field.name == key.inner()) else {
                let what = format!("an entry has no `{}`; it has {}", key.inner(), names(shape));
                self.flaw(&entry.key, what);
                continue;
            };
            found.push(field.name);
            let wanted = match field.kind {
                FieldKind::Text => Kind::Text,
                FieldKind::Number => Kind::Number,
                FieldKind::Bool => Kind::Bool,
                FieldKind::Any => Kind::Any,
            };
            let kind = obvious(&entry.value);
            if !kind.may_be(wanted) {
                let what = format!("`{}` is {}, and has to be {}", field.name, kind.told(), wanted.told());
                self.flaw(&entry.value, what);
            }
        }
        if let Some(missing) = shape.iter().find(|field| field.is_needed && !found.contains(&field.name)) {
            self.flaw(at, format!("an entry needs `{}`; it has {}", missing.name, names(shape)));
        }
    }

    fn flaw(&mut self, at: &IdedExpr, what: String) {
        let offset = self.source.offset_for(at.id).map_or(0, |(start, _)| start as usize);
        let flaw = Flaw { offset, what };
        if !self.flaws.contains(&flaw) {
            self.flaws.push(flaw);
        }
    }

    fn kind(&mut self, expression: &IdedExpr) -> Kind {
        match &expression.expr {
            Expr::Unspecified => Kind::Any,
            Expr::Literal(_) => obvious(expression),
            Expr::Ident(name) => self.name(expression, name),
            Expr::Select(select) => {
                let of = self.kind(&select.operand);
                if let (Expr::Ident(name), false) =
                    (&select.operand.expr, self.bound.iter().any(|bound| bound == "event"))
                    && name == "event"
                    && self.names.contains(&"event")
                {
                    let found = EVENT.iter().find(|(field, _)| *field == select.field);
                    return match found {
                        _ if select.test => Kind::Bool,
                        Some((_, kind)) => *kind,
                        None => {
                            let fields: Vec<&str> = EVENT.iter().map(|(field, _)| *field).collect();
                            let what = format!("`event` has no `{}`; it has {}", select.field, fields.join(", "));
                            self.flaw(expression, what);
                            Kind::Any
                        }
                    };
                }
                if !of.may_be(Kind::Map) {
                    self.flaw(expression, format!("{} has no `{}`", of.told(), select.field));
                }
                if select.test { Kind::Bool } else { Kind::Any }
            }
            Expr::Call(call) => self.call(expression, call),
            Expr::List(list) => {
                for item in &list.elements {
                    self.kind(item);
                }
                Kind::List
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let key = self.kind(&entry.key);
                        if !key.may_be(Kind::Text) {
                            self.flaw(&entry.key, format!("a key is {}, and has to be a text", key.told()));
                        }
                        self.kind(&entry.value);
                    }
                }
                Kind::Map
            }
            Expr::Struct(message) => {
                self.flaw(
                    expression,
                    format!("there is no type `{}`; a map is written {{'name': …}}", message.type_name),
                );
                Kind::Any
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn name(&mut self, at: &IdedExpr, name: &str) -> Kind {
        let is_known =
            self.bound.iter().any(|bound| bound == name) || self.names.contains(&name) || TYPES.contains(&name);
        if !is_known {
            let advice = if name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') {
                "; a text is written in quotes"
            } else {
                ""
            };
            self.flaw(at, format!("there is no `{name}`; there are {}{advice}", self.names.join(", ")));
        }
        Kind::Any
    }

    /// What `exists`, `all`, `map` and `filter` have become.
    fn comprehension(&mut self, of: &ComprehensionExpr) -> Kind {
        let range = self.kind(&of.iter_range);
        if !range.may_be(Kind::List) && !range.may_be(Kind::Map) {
            self.flaw(&of.iter_range, format!("{} has no items to go through", range.told()));
        }
        let begins = self.kind(&of.accu_init);
        let before = self.bound.len();
        self.bound.extend([of.iter_var.clone(), of.accu_var.clone()]);
        self.bound.extend(of.iter_var2.clone());
        for part in [&of.loop_cond, &of.loop_step, &of.result] {
            self.kind(part);
        }
        self.bound.truncate(before);
        // `exists` and `all` begin with a truth and end with one, `map` and `filter` with a list.
        if matches!(begins, Kind::Bool | Kind::List) { begins } else { Kind::Any }
    }

    fn call(&mut self, at: &IdedExpr, call: &CallExpr) -> Kind {
        if call.func_name == "changed" && call.target.is_none() {
            return self.changed(at, &call.args);
        }
        let namespace = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(name) if name == "optional" || name == "strings" => Some(name.as_str()),
            _ => None,
        });
        if let (Some(target), None) = (&call.target, namespace) {
            self.kind(target);
        }
        let kinds: Vec<Kind> = call.args.iter().map(|argument| self.kind(argument)).collect();
        let name = call.func_name.as_str();
        match name {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT => {
                for (argument, kind) in call.args.iter().zip(&kinds) {
                    if !kind.may_be(Kind::Bool) {
                        self.flaw(argument, format!("it is {}, and has to be true or false", kind.told()));
                    }
                }
                Kind::Bool
            }
            operators::EQUALS | operators::NOT_EQUALS => {
                let may_be_null = kinds.contains(&Kind::Null);
                self.same(at, &kinds, !may_be_null, "is never equal to");
                Kind::Bool
            }
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
                self.same(at, &kinds, true, "cannot be compared to");
                Kind::Bool
            }
            operators::IN => Kind::Bool,
            operators::ADD => {
                self.same(at, &kinds, true, "cannot be added to");
                kinds.into_iter().find(|kind| *kind != Kind::Any).unwrap_or(Kind::Any)
            }
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO | operators::NEGATE => {
                for (argument, kind) in call.args.iter().zip(&kinds) {
                    if !kind.may_be(Kind::Number) {
                        self.flaw(argument, format!("it is {}, and has to be a number", kind.told()));
                    }
                }
                Kind::Number
            }
            operators::CONDITIONAL => {
                if let (Some(first), Some(kind)) = (call.args.first(), kinds.first())
                    && !kind.may_be(Kind::Bool)
                {
                    self.flaw(first, format!("it is {}, and has to be true or false", kind.told()));
                }
                match kinds[..] {
                    [_, one, other] if one == other => one,
                    _ => Kind::Any,
                }
            }
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => Kind::Any,
            name => {
                let full = namespace.map_or(name.to_owned(), |namespace| format!("{namespace}.{name}"));
                let found = FUNCTIONS.iter().find(|(known, _)| *known == full);
                if found.is_none() {
                    let what = match name {
                        "timestamp" | "duration" | "now" => "times are not compared here; fields hold them as texts",
                        _ => "CEL's own functions are there, those for strings, and `changed`",
                    };
                    self.flaw(at, format!("there is no function `{full}`: {what}"));
                }
                found.map_or(Kind::Any, |(_, kind)| *kind)
            }
        }
    }

    fn same(&mut self, at: &IdedExpr, kinds: &[Kind], matters: bool, word: &str) {
        if let ([one, other], true) = (kinds, matters)
            && !one.may_be(*other)
        {
            self.flaw(at, format!("{} {word} {}", one.told(), other.told()));
        }
    }

    fn changed(&mut self, at: &IdedExpr, arguments: &[IdedExpr]) -> Kind {
        let path = match arguments {
            [IdedExpr { expr: Expr::Literal(LiteralValue::String(path)), .. }] => Some(path.inner().to_owned()),
            _ => None,
        };
        match path.as_deref().map(str::parse::<FieldOf>) {
            Some(Ok(_)) => self.paths.extend(path),
            Some(Err(why)) => self.flaw(&arguments[0], why),
            None => {
                self.flaw(at, "`changed` takes the path to a field, in quotes: changed('spec.replicas')".to_owned());
            }
        }
        Kind::Bool
    }
}

/// The kind of what is written out.
fn obvious(expression: &IdedExpr) -> Kind {
    match &expression.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => Kind::Bool,
            LiteralValue::Bytes(_) => Kind::Bytes,
            LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Kind::Number,
            LiteralValue::Null => Kind::Null,
            LiteralValue::String(_) => Kind::Text,
        },
        Expr::List(_) => Kind::List,
        Expr::Map(_) => Kind::Map,
        Expr::Select(select) if select.test => Kind::Bool,
        Expr::Call(call) if call.target.is_none() => {
            FUNCTIONS.iter().find(|(known, _)| *known == call.func_name).map_or(Kind::Any, |(_, kind)| *kind)
        }
        _ => Kind::Any,
    }
}
