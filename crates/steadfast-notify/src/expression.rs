//! CEL expressions of rules, over `old`, `new`, `object`, `event` and `now`, with `changed(path)`.

mod checker;
mod error;
mod kind;
mod uses;

use jiff::Timestamp;
use serde_json::Value;
use steadfast_cel::ast::{ExprKind, Literal, MapEntry};
use steadfast_cel::{
    Budget, CelError, CelErrorKind, CelValue, Context, Meter, Program, equal, owned_from_json, to_json,
};

use crate::change::{ObjectChange, ObjectState};
use crate::config::ResultLimits;
use crate::path::ValuePath;
use checker::Checker;
use error::chars_before;
pub(crate) use error::{ExpressionError, Purpose};
pub(crate) use uses::{Constant, SelectedField, SelectionStep};
use uses::{STATE_VARIABLES, Uses};

/// Maximum cost of one evaluation, equivalent to some tens of milliseconds and less than 50 MB of memory.
const MAX_COST: u64 = 1_000_000;

/// Maximum cost of all expressions of a rule for one object.
const MAX_COST_OF_OBJECT: u64 = 1_500_000;

/// A checked expression.
pub(crate) struct Expression {
    text: String,
    program: Program,
    returns_entries: bool,
    /// True if the expression depends on the change: on `old` or `changed(…)`.
    pub(crate) compares_changes: bool,
    /// Verbatim arguments of `changed(…)`.
    pub(crate) paths: Vec<String>,
    /// True if the expression depends on the time.
    pub(crate) depends_on_time: bool,
    /// Verbatim names of looked-up resources, with the number of characters before each name.
    pub(crate) lookups: Vec<(String, usize)>,
    /// Fields and constants in the expression.
    pub(crate) uses: Uses,
}

impl Expression {
    /// Parses and checks `text`. The errors are in the order of the text.
    pub(crate) fn compile(text: &str, purpose: Purpose) -> Result<Self, Vec<ExpressionError>> {
        let program = Program::compile(text).map_err(|error| {
            vec![ExpressionError { offset: chars_before(text, error.offset), description: error.message }]
        })?;
        let mut checker = Checker::new(text);
        checker.check(program.root(), purpose);
        let Checker { mut errors, paths, reads_old, reads_now: depends_on_time, lookups, .. } = checker;
        if !errors.is_empty() {
            errors.sort_by_key(|error| error.offset);
            return Err(errors);
        }
        let compares_changes = !paths.is_empty() || reads_old;
        let returns_entries = matches!(purpose, Purpose::Entries(_));
        let roots = if let Purpose::Body(names) = purpose { names } else { &STATE_VARIABLES };
        let uses = Uses::collect(text, roots);
        Ok(Self {
            text: text.to_owned(),
            program,
            returns_entries,
            compares_changes,
            paths,
            depends_on_time,
            lookups,
            uses,
        })
    }

    /// Returns the field names if the expression is a map with constant keys.
    pub(crate) fn map_fields(&self) -> Option<Vec<String>> {
        let ExprKind::Map(entries) = &self.program.root().kind else { return None };
        let field = |entry: &MapEntry| match &entry.key.kind {
            ExprKind::Literal(Literal::String(field)) => Some(field.to_string()),
            _ => None,
        };
        entries.iter().map(field).collect()
    }

    /// Evaluates the expression. The error contains no values, since values may be secrets.
    pub(crate) fn evaluate(&self, bindings: &mut Bindings) -> Result<Value, String> {
        // `when` and `send` share the budget of one object, so an expensive pair cannot double the cost.
        let mut budget = Budget::new(MAX_COST.min(bindings.remaining_cost));
        let (result, recheck_at) = self.run(bindings, &mut budget);
        bindings.remaining_cost -= budget.spent();
        // Record the instant even after a failure: the expression may succeed at that instant.
        bindings.recheck_at = bindings.recheck_at.into_iter().chain(recheck_at).min();
        result
    }

    fn run(&self, bindings: &Bindings, budget: &mut Budget) -> (Result<Value, String>, Option<Timestamp>) {
        let context = bindings.context();
        let (value, recheck_at) = self.program.evaluate_with_recheck(&context, budget);
        let result_json = value
            .map_err(|error| self.error_message(&error))
            .and_then(|value| self.result_json(bindings, &value, budget));
        (result_json, recheck_at)
    }

    fn result_json(&self, bindings: &Bindings, value: &CelValue, budget: &mut Budget) -> Result<Value, String> {
        let limits = bindings.limits;
        // Checked before the conversion, which would copy an oversized list.
        if let (true, CelValue::List(list)) = (self.returns_entries, value)
            && list.len() > limits.entries
        {
            let (found, max) = (list.len(), limits.entries);
            return Err(format!("the result has {found} entries, and `limits.entries` of the rule allows {max}"));
        }
        to_json(value, budget, limits.bytes).map_err(|kind| self.error_message(&CelError { offset: 0, kind }))
    }

    /// Formats an error with the position of the cause.
    fn error_message(&self, error: &CelError) -> String {
        let before = self.text.get(..error.offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{}{} (line {line}, column {column} of the expression)", error.kind, advice(&error.kind))
    }
}

/// Returns the advice that an error message contains after its description.
fn advice(kind: &CelErrorKind) -> String {
    match kind {
        CelErrorKind::NoSuchField(_) | CelErrorKind::NoSuchKey => {
            "; `has(…)` checks if the field exists, and `.?` selects an optional field; a null field counts as absent".to_owned()
        }
        CelErrorKind::NoSuchOverload { types, .. } if types.contains(&"null_type") => {
            "; `old` is null for an object that was added, `new` for one that was deleted, and a field may be null: check with `has(…)`, or use `.?` with `.orValue(…)` for a default".to_owned()
        }
        CelErrorKind::BudgetExceeded(_) => {
            format!(
                "; the maximum cost is {MAX_COST} for one evaluation, and for all expressions of a rule {MAX_COST_OF_OBJECT} for each object"
            )
        }
        CelErrorKind::ResultTooLarge(_) => "; `limits.bytes` of the rule sets the limit".to_owned(),
        CelErrorKind::NotJson("an optional value") => "; `.orValue(…)` unwraps the value".to_owned(),
        _ => String::new(),
    }
}

/// Variables of expressions, and the remaining evaluation cost.
pub(crate) struct Bindings<'c> {
    variables: Variables<'c>,
    now: Timestamp,
    limits: ResultLimits,
    remaining_cost: u64,
    /// Earliest instant at which a result may differ without a change of the object.
    pub(crate) recheck_at: Option<Timestamp>,
}

/// Source of the variables.
enum Variables<'c> {
    /// States of a change, and the change as `event`.
    Change { change: &'c ObjectChange, event: Value },
    /// Values by name.
    Values(Vec<(&'static str, Value)>),
}

impl<'c> Bindings<'c> {
    /// Creates the bindings of one change, at the time of the change.
    pub(crate) fn for_change(change: &'c ObjectChange, limits: ResultLimits) -> Self {
        Self::new(Variables::Change { change, event: change.event() }, change.at, limits)
    }

    /// Creates bindings with these names and values.
    pub(crate) fn for_values<const N: usize>(values: [(&'static str, Value); N]) -> Self {
        Self::new(Variables::Values(values.into()), Timestamp::now(), ResultLimits::default())
    }

    /// Replaces the value of a name bound by [`for_values`](Self::for_values).
    pub(crate) fn set(&mut self, name: &'static str, value: Value) {
        if let Variables::Values(values) = &mut self.variables {
            values.retain(|(other, _)| *other != name);
            values.push((name, value));
        }
    }

    fn new(variables: Variables<'c>, now: Timestamp, limits: ResultLimits) -> Self {
        Self { variables, now, limits, remaining_cost: MAX_COST_OF_OBJECT, recheck_at: None }
    }

    fn context(&self) -> Context<'_> {
        let mut context = Context::new();
        context.now(self.now);
        match &self.variables {
            Variables::Values(values) => {
                for (name, value) in values {
                    context.variable(name, CelValue::from(value));
                }
            }
            Variables::Change { change, event } => {
                let change: &'c ObjectChange = change;
                let state = |state: Option<&'c ObjectState>| {
                    state.map_or(CelValue::Null, |state| CelValue::without_nulls(state.masked()))
                };
                let (old, new) = (state(change.old.as_ref()), state(change.new.as_ref()));
                let object = if change.new.is_some() { new.clone() } else { old.clone() };
                for (name, value) in [("old", old), ("new", new), ("object", object), ("event", CelValue::from(event))]
                {
                    context.variable(name, value);
                }
                context.function("changed", move |arguments, meter| changed(change, arguments, meter));
                context.function("get", move |arguments, meter| get(change, arguments, meter));
            }
        }
        context
    }
}

/// Returns the looked-up object, or `null` if the object does not exist.
fn get<'v>(change: &ObjectChange, arguments: &[CelValue<'v>], meter: &mut Meter) -> Result<CelValue<'v>, CelErrorKind> {
    let argument_error =
        || CelErrorKind::InvalidArgument { function: "get".to_owned(), reason: "namespace and name must be text" };
    let texts: Option<Vec<&str>> = arguments
        .iter()
        .map(|argument| if let CelValue::String(text) = argument { Some(&**text) } else { None })
        .collect();
    let (resource, namespace, name) = match texts.as_deref() {
        Some([resource, name]) => (resource, &"", name),
        Some([resource, namespace, name]) => (resource, namespace, name),
        _ => return Err(argument_error()),
    };
    let lookups =
        change.lookups.as_ref().ok_or_else(|| CelErrorKind::Unavailable(format!("{resource} are not watched")))?;
    match lookups.get(resource, namespace, name).map_err(CelErrorKind::Unavailable)? {
        None => Ok(CelValue::Null),
        Some(object) => owned_from_json(&object, meter),
    }
}

fn changed<'v>(
    change: &ObjectChange,
    arguments: &[CelValue<'v>],
    meter: &mut Meter,
) -> Result<CelValue<'v>, CelErrorKind> {
    let argument_error =
        || CelErrorKind::InvalidArgument { function: "changed".to_owned(), reason: "it must be the path to a field" };
    let [CelValue::String(path)] = arguments else { return Err(argument_error()) };
    let path = path.parse::<ValuePath>().map_err(|_| argument_error())?;
    let (before, after) = change.values_at(&path);
    // CEL equality, not JSON equality: 1 and 1.0 are equal.
    Ok(CelValue::Bool(match (before, after) {
        (Some(before), Some(after)) => !equal(&CelValue::from(before), &CelValue::from(after), meter)?,
        (before, after) => before.is_some() != after.is_some(),
    }))
}
