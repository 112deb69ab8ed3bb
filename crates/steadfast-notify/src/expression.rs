//! The language of rules: CEL, over `old`, `new`, `object` and `event`, with `changed(path)`.

mod flaw;
mod kinds;
mod known;
mod uses;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError, Program, Value as Cel, extensions};
use serde_json::Value;

use crate::change::{Change, State};
use crate::path::FieldOf;
pub(crate) use flaw::{Flaw, Purpose};
use kinds::Checker;
use uses::Uses;
pub(crate) use uses::{Chain, Constant, Step};

/// What expressions have beside what CEL itself has: its extension for strings.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    environment.add_extension(extensions::strings).expect("nothing of it is declared before");
    Arc::new(environment)
});

/// An expression that was looked through.
pub(crate) struct Expression {
    program: Program,
    /// Whether it looks at the change itself: `old` or `changed(…)`.
    pub(crate) is_of_changes: bool,
    /// The paths that it asks `changed(…)` for, as they are written.
    pub(crate) paths: Vec<String>,
    /// Fields and constants that it uses.
    pub(crate) uses: Uses,
}

impl Expression {
    /// Looks through `text`; what is wrong with it comes in the order of the text.
    pub(crate) fn compile(text: &str, purpose: Purpose) -> Result<Self, Vec<Flaw>> {
        let program = ENVIRONMENT.compile(text).map_err(|errors| {
            let flaws =
                errors.errors.iter().map(|error| Flaw { offset: offset(text, error.pos), what: plain(&error.msg) });
            let mut flaws: Vec<Flaw> = flaws.collect();
            // What follows the first is often caused by it.
            flaws.truncate(1);
            flaws
        })?;
        let mut checker = Checker::new(program.source_info());
        checker.check(program.expression(), purpose);
        if !checker.flaws.is_empty() {
            let mut flaws = checker.flaws;
            flaws.sort_by_key(|flaw| flaw.offset);
            return Err(flaws);
        }
        let paths = checker.paths;
        let is_of_changes = !paths.is_empty() || program.references().has_variable("old");
        let uses = Uses::of(text);
        Ok(Self { program, is_of_changes, paths, uses })
    }

    /// What it comes to; the error says what went wrong, and nothing of any value.
    pub(crate) fn evaluate(&self, bindings: &Bindings) -> Result<Value, String> {
        let value = self.program.execute(&bindings.context).map_err(|error| told(&error))?;
        value.json().map_err(|_| "it comes to something that JSON has not".to_owned())
    }
}

/// The letter at a line and a column, which are counted from one.
fn offset(text: &str, (line, column): (isize, isize)) -> usize {
    let (line, column) = (usize::try_from(line).unwrap_or(1), usize::try_from(column).unwrap_or(1));
    let before = text.split_inclusive('\n').take(line.saturating_sub(1)).map(|line| line.chars().count());
    before.sum::<usize>() + column.saturating_sub(1)
}

/// A parser's message in one line that a sentence can have.
fn plain(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    message.strip_prefix("Syntax error: ").unwrap_or(message).trim_end_matches('.').to_owned()
}

/// What an expression is evaluated over.
pub(crate) struct Bindings {
    context: Context<'static, 'static>,
}

impl Bindings {
    /// Those of one change.
    pub(crate) fn of(change: &Arc<Change>) -> Self {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        let state = |state: Option<&State>| state.map_or(Cel::Null, |state| cel(state.shown()));
        let (old, new) = (state(change.old.as_ref()), state(change.new.as_ref()));
        let object = if change.new.is_some() { new.clone() } else { old.clone() };
        for (name, value) in [("old", old), ("new", new), ("object", object), ("event", cel(&change.event()))] {
            context.add_variable_from_value(name, value);
        }
        let change = change.clone();
        let changed = move |path: Arc<String>| -> Result<bool, ExecutionError> {
            let path = path.parse::<FieldOf>().map_err(|_| ExecutionError::function_error("changed", ""))?;
            Ok(change.changed(&path))
        };
        context.add_function("changed", changed).expect("CEL itself has none");
        Self { context }
    }
}

impl Bindings {
    /// Bindings of these names.
    pub(crate) fn over<const N: usize>(values: [(&'static str, Value); N]) -> Self {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        for (name, value) in values {
            context.add_variable_from_value(name, cel(&value));
        }
        Self { context }
    }
}

/// A value of JSON as one of CEL: a number without a point is an `int`, where it fits.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(truth) => Cel::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Cel::Int(number),
            (None, Some(number)) => Cel::UInt(number),
            (None, None) => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), cel(value)));
            Cel::Map(Map { map: Arc::new(fields.collect::<HashMap<_, _>>()) })
        }
    }
}

/// What went wrong, in words of ours: CEL's own would quote values, which may be secrets.
fn told(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => {
            format!("there is no `{key}`; `has(…)` asks whether there is, and `.?` takes it where there is one")
        }
        ExecutionError::NoSuchOverload(error) => {
            let types: Vec<&str> = error.argument_types().iter().map(String::as_str).collect();
            let null = if types.contains(&"null_type") || types.contains(&"null") {
                "; `old` is null where an object is added, `new` where it is deleted, and `object` never"
            } else {
                ""
            };
            format!("`{}` does not take {}{null}", error.function(), types.join(", "))
        }
        ExecutionError::UndeclaredReference(name) => format!("there is no `{name}`"),
        ExecutionError::UnexpectedType { got, want } => format!("it is of type {got}, and {want} is needed"),
        ExecutionError::FunctionError { function, .. } => format!("`{function}` does not take this value"),
        ExecutionError::IndexOutOfBounds(_) => "a list has no item of this number".to_owned(),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "it divides by zero".to_owned(),
        ExecutionError::Overflow(..) => "a number becomes too large".to_owned(),
        ExecutionError::DuplicateKey(_) => "a map has a key twice".to_owned(),
        _ => "values do not go together".to_owned(),
    }
}
