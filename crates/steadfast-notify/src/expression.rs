//! Expressions of rules in CEL, over `old`, `new`, `object`, `event` and `now`, with `changed(path)`.

mod flaw;
mod kinds;
mod known;
mod uses;

use jiff::Timestamp;
use serde_json::Value;
use steadfast_cel::ast::{Entry, ExprKind, Literal};
use steadfast_cel::{Budget, Context, Error, Fault, Meter, Program, Value as Cel, copied, equal, to_json};

use crate::change::{Change, State};
use crate::config::ResultLimits;
use crate::path::FieldOf;
use flaw::letters_before;
pub(crate) use flaw::{Flaw, Purpose};
use kinds::Checker;
pub(crate) use uses::{Chain, Constant, Step};
use uses::{STATES, Uses};

/// Maximum cost of one evaluation: some tens of milliseconds, and less than 50 MB of memory.
const MAX_COST: u64 = 1_000_000;

/// Maximum cost of all expressions of a rule for one object.
const MAX_COST_OF_OBJECT: u64 = 1_500_000;

/// An expression that was checked.
pub(crate) struct Expression {
    text: String,
    program: Program,
    is_of_entries: bool,
    /// Whether the expression depends on the change itself: on `old` or `changed(…)`.
    pub(crate) is_of_changes: bool,
    /// The arguments of `changed(…)`, as they are written.
    pub(crate) paths: Vec<String>,
    /// Whether the expression depends on the time.
    pub(crate) is_of_time: bool,
    /// The resources that it looks up, as they are written, with the number of characters in front of each.
    pub(crate) lookups: Vec<(String, usize)>,
    /// Fields and constants that it uses.
    pub(crate) uses: Uses,
}

impl Expression {
    /// Parses and checks `text`. The flaws are in the order of the text.
    pub(crate) fn compile(text: &str, purpose: Purpose) -> Result<Self, Vec<Flaw>> {
        let program = Program::compile(text)
            .map_err(|error| vec![Flaw { offset: letters_before(text, error.at), what: error.message }])?;
        let mut checker = Checker::new(text);
        checker.check(program.root(), purpose);
        let Checker { mut flaws, paths, reads_old, reads_now: is_of_time, lookups, .. } = checker;
        if !flaws.is_empty() {
            flaws.sort_by_key(|flaw| flaw.offset);
            return Err(flaws);
        }
        let is_of_changes = !paths.is_empty() || reads_old;
        let is_of_entries = matches!(purpose, Purpose::Entries(_));
        let roots = if let Purpose::Body(names) = purpose { names } else { &STATES };
        let uses = Uses::of(text, roots);
        Ok(Self { text: text.to_owned(), program, is_of_entries, is_of_changes, paths, is_of_time, lookups, uses })
    }

    /// The fields of its value, if the expression is a map with constant keys.
    pub(crate) fn map_fields(&self) -> Option<Vec<String>> {
        let ExprKind::Map(entries) = &self.program.root().kind else { return None };
        let field = |entry: &Entry| match &entry.key.kind {
            ExprKind::Literal(Literal::String(field)) => Some(field.to_string()),
            _ => None,
        };
        entries.iter().map(field).collect()
    }

    /// Evaluates the expression. The error contains no value, since values may be secrets.
    pub(crate) fn evaluate(&self, bindings: &mut Bindings) -> Result<Value, String> {
        let mut budget = Budget::new(MAX_COST.min(bindings.cost_left));
        let (result, recheck_at) = self.result(bindings, &mut budget);
        bindings.cost_left -= budget.spent();
        // Also if it failed: at that instant it may succeed.
        bindings.recheck_at = bindings.recheck_at.into_iter().chain(recheck_at).min();
        result
    }

    fn result(&self, bindings: &Bindings, budget: &mut Budget) -> (Result<Value, String>, Option<Timestamp>) {
        let context = bindings.context();
        let (value, recheck_at) = self.program.outlook(&context, budget);
        let json = value.map_err(|error| self.told(&error)).and_then(|value| self.json(bindings, &value, budget));
        (json, recheck_at)
    }

    fn json(&self, bindings: &Bindings, value: &Cel, budget: &mut Budget) -> Result<Value, String> {
        let limits = bindings.limits;
        if let (true, Cel::List(list)) = (self.is_of_entries, value)
            && list.len() > limits.entries
        {
            let (found, most) = (list.len(), limits.entries);
            return Err(format!("it results in {found} entries, and `limits.entries` of the rule allows {most}"));
        }
        to_json(value, budget, limits.bytes).map_err(|fault| self.told(&Error { at: 0, fault }))
    }

    /// Message for an error, with the position of the cause.
    fn told(&self, error: &Error) -> String {
        let before = self.text.get(..error.at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{}{} (line {line}, column {column} of the expression)", error.fault, advice(&error.fault))
    }
}

/// Advice on a fault, to follow its description.
fn advice(fault: &Fault) -> String {
    match fault {
        Fault::NoSuchField(_) | Fault::NoSuchKey => {
            "; `has(…)` asks whether there is, and `.?` takes it where there is one; a field that is null counts as absent".to_owned()
        }
        Fault::NoSuchOverload { types, .. } if types.contains(&"null_type") => {
            "; `old` is null for an object that was added, `new` for one that was deleted, and a field may be null: `has(…)` checks, and `.?` with `.orValue(…)` has a default".to_owned()
        }
        Fault::BudgetExceeded(_) => {
            format!(
                "; one evaluation may cost {MAX_COST}, and all expressions of a rule together {MAX_COST_OF_OBJECT} for each object"
            )
        }
        Fault::ResultTooLarge(_) => "; `limits.bytes` of the rule sets the limit".to_owned(),
        Fault::NotJson("an optional value") => "; `.orValue(…)` gives its value".to_owned(),
        _ => String::new(),
    }
}

/// Variables of expressions, and what the expressions may still cost.
pub(crate) struct Bindings<'c> {
    over: Over<'c>,
    now: Timestamp,
    limits: ResultLimits,
    cost_left: u64,
    /// Earliest instant at which a result may differ although the object does not change.
    pub(crate) recheck_at: Option<Timestamp>,
}

/// What the variables are.
enum Over<'c> {
    /// The states of a change, and the change itself.
    Change { change: &'c Change, event: Value },
    /// Values by name.
    Values(Vec<(&'static str, Value)>),
}

impl<'c> Bindings<'c> {
    /// Bindings of one change, at the time of the change.
    pub(crate) fn of(change: &'c Change, limits: ResultLimits) -> Self {
        Self::new(Over::Change { change, event: change.event() }, change.at, limits)
    }

    /// Bindings of these names.
    pub(crate) fn over<const N: usize>(values: [(&'static str, Value); N]) -> Self {
        Self::new(Over::Values(values.into()), Timestamp::now(), ResultLimits::default())
    }

    /// Replaces the value of a name that was bound by [`over`](Self::over).
    pub(crate) fn set(&mut self, name: &'static str, value: Value) {
        if let Over::Values(values) = &mut self.over {
            values.retain(|(other, _)| *other != name);
            values.push((name, value));
        }
    }

    fn new(over: Over<'c>, now: Timestamp, limits: ResultLimits) -> Self {
        Self { over, now, limits, cost_left: MAX_COST_OF_OBJECT, recheck_at: None }
    }

    fn context(&self) -> Context<'_> {
        let mut context = Context::new();
        context.now(self.now);
        match &self.over {
            Over::Values(values) => {
                for (name, value) in values {
                    context.variable(name, Cel::from(value));
                }
            }
            Over::Change { change, event } => {
                let change: &'c Change = change;
                let state =
                    |state: Option<&'c State>| state.map_or(Cel::Null, |state| Cel::without_nulls(state.shown()));
                let (old, new) = (state(change.old.as_ref()), state(change.new.as_ref()));
                let object = if change.new.is_some() { new.clone() } else { old.clone() };
                for (name, value) in [("old", old), ("new", new), ("object", object), ("event", Cel::from(event))] {
                    context.variable(name, value);
                }
                context.function("changed", move |arguments, meter| changed(change, arguments, meter));
                context.function("get", move |arguments, meter| get(change, arguments, meter));
            }
        }
        context
    }
}

/// The object that is looked up; `null` if there is none.
fn get<'v>(change: &Change, arguments: &[Cel<'v>], meter: &mut Meter) -> Result<Cel<'v>, Fault> {
    let invalid = || Fault::InvalidArgument { function: "get".to_owned(), why: "namespace and name must be text" };
    let texts: Option<Vec<&str>> =
        arguments.iter().map(|argument| if let Cel::String(text) = argument { Some(&**text) } else { None }).collect();
    let (resource, namespace, name) = match texts.as_deref() {
        Some([resource, name]) => (resource, &"", name),
        Some([resource, namespace, name]) => (resource, namespace, name),
        _ => return Err(invalid()),
    };
    let lookups = change.lookups.as_ref().ok_or_else(|| Fault::Unavailable(format!("{resource} are not watched")))?;
    match lookups.get(resource, namespace, name).map_err(Fault::Unavailable)? {
        None => Ok(Cel::Null),
        Some(object) => copied(&object, meter),
    }
}

fn changed<'v>(change: &Change, arguments: &[Cel<'v>], meter: &mut Meter) -> Result<Cel<'v>, Fault> {
    let invalid = || Fault::InvalidArgument { function: "changed".to_owned(), why: "it must be the path to a field" };
    let [Cel::String(path)] = arguments else { return Err(invalid()) };
    let path = path.parse::<FieldOf>().map_err(|_| invalid())?;
    let (before, after) = change.at(&path);
    Ok(Cel::Bool(match (before, after) {
        (Some(before), Some(after)) => !equal(&Cel::from(before), &Cel::from(after), meter)?,
        (before, after) => before.is_some() != after.is_some(),
    }))
}
