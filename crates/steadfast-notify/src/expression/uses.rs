//! Fields that an expression selects from variables, and constants in map literals.

use serde_json::Value;
use steadfast_cel::Program;
use steadfast_cel::ast::{Comprehension, ComprehensionKind, Expr, ExprKind, Literal, MapEntry};

use crate::path::ValuePath;

/// Variables with the states of an object.
pub(super) const STATE_VARIABLES: [&str; 3] = ["object", "old", "new"];

/// Selected field of a variable, such as `object.spec.containers[0].image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedField {
    /// Name of the variable, one of `roots`.
    pub(crate) root: String,
    /// Steps from the object to the field.
    pub(crate) steps: Vec<SelectionStep>,
    /// Number of leading steps that are not written at `offset`. They come from the value of a macro's variable.
    pub(crate) inherited_steps: usize,
    /// Byte offset of the variable in the expression.
    pub(crate) offset: usize,
}

/// One step from a value to a contained value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SelectionStep {
    /// Field of this name, or value of a map under this key.
    Field(String),
    /// An item of a list, or a value of a map.
    Item,
}

/// Field of a map literal with a constant value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    pub(crate) field: String,
    pub(crate) value: Value,
    /// Byte offset of the value in the expression.
    pub(crate) offset: usize,
}

/// Fields and constants in an expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    pub(crate) selected_fields: Vec<SelectedField>,
    /// Constants of each map literal.
    pub(crate) maps: Vec<Vec<Constant>>,
}

impl Uses {
    /// Returns the uses of the variables `roots` in the expression `text`. Empty for an invalid expression.
    pub(crate) fn collect(text: &str, roots: &'static [&'static str]) -> Self {
        let mut visitor = UsesVisitor { roots, bound_names: Vec::new(), uses: Self::default() };
        if let Ok(program) = Program::compile(text) {
            visitor.visit(program.root());
        }
        visitor.uses
    }
}

/// Variable, and steps to a part of the value.
type SelectedPart = (String, Vec<SelectionStep>);

struct UsesVisitor {
    /// Variables of interest.
    roots: &'static [&'static str],
    /// Variables of macros, innermost last. The second item is the part of a root variable that the macro variable
    /// denotes, or `None` if its value is not such a part.
    bound_names: Vec<(String, Option<SelectedPart>)>,
    uses: Uses,
}

impl UsesVisitor {
    /// Visits an expression. Records the selected field if the expression selects a field.
    fn visit(&mut self, expression: &Expr) {
        if let Some(selected) = self.selected_field(expression) {
            self.add(selected);
        }
    }

    fn add(&mut self, selected: SelectedField) {
        if !self.uses.selected_fields.contains(&selected) {
            self.uses.selected_fields.push(selected);
        }
    }

    /// Returns the part of a root variable that the expression selects. If the expression is not such a selection,
    /// visits its operands and returns `None`.
    fn selected_field(&mut self, expression: &Expr) -> Option<SelectedField> {
        match &expression.kind {
            ExprKind::Name(name) => self.variable(expression, name),
            ExprKind::Select { of, field, .. } | ExprKind::Has { of, field } => {
                let selected =
                    self.selected_field(of).map(|selected| with_step(selected, SelectionStep::Field(field.clone())))?;
                // `has(a.b)` reads the field, but its result is a bool without further fields.
                if matches!(expression.kind, ExprKind::Has { .. }) {
                    self.add(selected);
                    return None;
                }
                Some(selected)
            }
            ExprKind::Index { of, index, .. } => {
                let step = match &index.kind {
                    ExprKind::Literal(Literal::String(field)) => SelectionStep::Field(field.to_string()),
                    _ => SelectionStep::Item,
                };
                self.visit(index);
                self.selected_field(of).map(|selected| with_step(selected, step))
            }
            ExprKind::Call { target, name, arguments } => self.call(target.as_deref(), name, arguments),
            ExprKind::Map(entries) => {
                self.map(entries);
                None
            }
            ExprKind::Comprehension(of) => self.comprehension(of),
            ExprKind::Bind { name, value, body } => {
                let part = self.selected_field(value).map(|selected| self.bind(selected));
                self.within(name, part, |visitor| visitor.selected_field(body))
            }
            ExprKind::OptionalMap { of, name, body, .. } => {
                let part = self.selected_field(of).map(|selected| self.bind(selected));
                self.within(name, part, |visitor| visitor.visit(body));
                None
            }
            _ => {
                expression.for_each_child(|child| self.visit(child));
                None
            }
        }
    }

    fn variable(&self, expr: &Expr, name: &str) -> Option<SelectedField> {
        // The innermost binding of a name applies.
        let binding = self.bound_names.iter().rev().find(|(bound_name, _)| bound_name == name);
        let (root, steps) = match binding {
            Some((_, part)) => part.clone()?,
            None if self.roots.contains(&name) => (name.to_owned(), Vec::new()),
            None => return None,
        };
        Some(SelectedField { root, inherited_steps: steps.len(), steps, offset: expr.offset as usize })
    }

    fn call(&mut self, target: Option<&Expr>, name: &str, arguments: &[Expr]) -> Option<SelectedField> {
        match (target, name, arguments) {
            (None, "changed", [Expr { offset, kind: ExprKind::Literal(Literal::String(text)) }]) => {
                if let Ok(path) = text.parse::<ValuePath>() {
                    let steps = path
                        .field_names()
                        .map(|name| name.map_or(SelectionStep::Item, |name| SelectionStep::Field(name.to_owned())));
                    let (root, steps) = ("object".to_owned(), steps.collect());
                    self.add(SelectedField { root, steps, inherited_steps: 0, offset: *offset as usize });
                }
                None
            }
            // The value of an optional field has the same path.
            (Some(of), "orValue" | "or" | "value", _) => {
                for argument in arguments {
                    self.visit(argument);
                }
                self.selected_field(of)
            }
            _ => {
                target.into_iter().chain(arguments).for_each(|part| self.visit(part));
                None
            }
        }
    }

    fn map(&mut self, entries: &[MapEntry]) {
        let mut constants = Vec::new();
        for MapEntry { key, value, .. } in entries {
            self.visit(key);
            self.visit(value);
            if let (ExprKind::Literal(Literal::String(field)), Some(constant)) = (&key.kind, constant(value)) {
                constants.push(Constant { field: field.to_string(), value: constant, offset: value.offset as usize });
            }
        }
        self.uses.maps.push(constants);
    }

    /// Visits a macro such as `exists` or `map`. The result of `filter` contains items of the range.
    fn comprehension(&mut self, of: &Comprehension) -> Option<SelectedField> {
        let range = self.selected_field(&of.range);
        let item = range.clone().map(|range| with_step(range, SelectionStep::Item)).map(|item| self.bind(item));
        let before = self.bound_names.len();
        // With two variables, the first variable is the index or the key.
        self.bound_names.push((of.name.clone(), item.clone().filter(|_| of.second.is_none())));
        if let Some(second) = &of.second {
            self.bound_names.push((second.clone(), item));
        }
        of.condition.iter().chain(&of.body).for_each(|part| self.visit(part));
        self.bound_names.truncate(before);
        // A filter keeps its items, so the result has the path of the range.
        range.filter(|_| of.kind == ComprehensionKind::List && of.body.is_none())
    }

    /// Records the field that a bound variable refers to. Returns the selected part.
    fn bind(&mut self, selected: SelectedField) -> SelectedPart {
        let part = (selected.root.clone(), selected.steps.clone());
        self.add(selected);
        part
    }

    fn within<T>(&mut self, name: &str, part: Option<SelectedPart>, visit: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.bound_names.len();
        self.bound_names.push((name.to_owned(), part));
        let visited = visit(self);
        self.bound_names.truncate(before);
        visited
    }
}

fn with_step(mut selected: SelectedField, step: SelectionStep) -> SelectedField {
    selected.steps.push(step);
    selected
}

fn constant(expression: &Expr) -> Option<Value> {
    match &expression.kind {
        ExprKind::Literal(literal) => match literal {
            Literal::Bool(value) => Some((*value).into()),
            Literal::Int(value) => Some((*value).into()),
            Literal::Uint(value) => Some((*value).into()),
            Literal::Double(value) => Some((*value).into()),
            Literal::String(value) => Some(value.as_ref().into()),
            Literal::Null | Literal::Bytes(_) | Literal::Type(_) => None,
        },
        ExprKind::Negate(of) => constant(of)?.as_i64()?.checked_neg().map(Value::from),
        _ => None,
    }
}
