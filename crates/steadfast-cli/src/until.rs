//! End of a watch: a number of events, a duration, or a condition of the watched objects.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use steadfast_cel::{Budget, CelValue, Context, Program, StaticType, Type};

use crate::changes::phrases::{find_condition, list};
use crate::duration;

/// Maximum cost of one evaluation of an expression.
const MAX_COST: u64 = 1_000_000;

/// Value of `--until`.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    /// End after this number of events.
    Events(u64),
    /// End after this time.
    Elapsed(Duration),
    /// End when the objects satisfy a condition.
    Met(ObjectCondition),
}

/// Condition of the watched objects.
#[derive(Clone, Debug)]
pub(crate) enum ObjectCondition {
    /// Every object has this condition with this status.
    Condition { kind: String, status: String },
    /// No object exists.
    Deleted,
    /// The expression is true for every object.
    Expression(Expression),
}

/// CEL expression over the variable `object`.
#[derive(Clone)]
pub(crate) struct Expression(Arc<Program>);

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expression")
    }
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(events) = text.parse::<u64>() {
            return if events > 0 { Ok(Self::Events(events)) } else { Err("0 is not in 1..".to_owned()) };
        }
        if text == "delete" {
            return Ok(Self::Met(ObjectCondition::Deleted));
        }
        if let Some(condition) = text.strip_prefix("condition=") {
            let (kind, status) = condition.split_once('=').unwrap_or((condition, "True"));
            if kind.is_empty() {
                return Err("the condition has no type; write it as in condition=Ready".to_owned());
            }
            let (kind, status) = (kind.to_owned(), status.to_owned());
            return Ok(Self::Met(ObjectCondition::Condition { kind, status }));
        }
        if let Some(limit) = duration::parse(text).filter(|limit| !limit.is_zero()) {
            return Ok(Self::Elapsed(limit));
        }
        let program = Program::compile(text).map_err(|error| {
            format!("not a number, a duration (30s), `delete`, `condition=Ready` or a CEL expression: {error}")
        })?;
        if !program.refers_to("object") {
            return Err(format!(
                "{text:?} is not a number, a duration (30s), `delete`, `condition=Ready` or an expression over `object`"
            ));
        }
        match program.check(&BTreeMap::from([("object", StaticType::Any)])) {
            Ok(StaticType::Any | StaticType::Plain(Type::Bool)) => {}
            Ok(_) => return Err(format!("the expression {text:?} is not a comparison, so it is never true")),
            Err(errors) => {
                let errors: Vec<String> = errors.into_iter().map(|error| error.message).collect();
                return Err(format!("the expression {text:?} is invalid: {}", errors.join("; ")));
            }
        }
        Ok(Self::Met(ObjectCondition::Expression(Expression(Arc::new(program)))))
    }
}

impl ObjectCondition {
    /// Returns whether `object` satisfies the condition. An expression with an error is not satisfied.
    pub(crate) fn holds(&self, object: &Value) -> bool {
        match self {
            // An object that exists is not deleted.
            Self::Deleted => false,
            Self::Condition { kind, status } => find_condition(list(object, "status/conditions"), kind)
                .and_then(|condition| condition["status"].as_str())
                .is_some_and(|actual| actual.eq_ignore_ascii_case(status)),
            Self::Expression(Expression(program)) => {
                let mut context = Context::new();
                context.variable("object", CelValue::from(object));
                let outcome = program.evaluate(&context, &mut Budget::new(MAX_COST));
                outcome.is_ok_and(|outcome| matches!(outcome.value, CelValue::Bool(true)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(text: &str) -> ObjectCondition {
        match text.parse() {
            Ok(Until::Met(condition)) => condition,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn until_parses_counts_durations_conditions() {
        assert!(matches!("48".parse(), Ok(Until::Events(48))));
        assert!(matches!("90s".parse(), Ok(Until::Elapsed(time)) if time == Duration::from_secs(90)));
        assert!(matches!(condition("delete"), ObjectCondition::Deleted));
        let pod = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        for (text, holds) in [
            ("condition=Ready", true),
            ("condition=Ready=false", false),
            ("condition=Other", false),
            ("object.status.phase == 'Running'", true),
            ("object.status.phase == 'Failed'", false),
            ("object.status.missing == 'x'", false),
            ("delete", false),
        ] {
            assert_eq!(condition(text).holds(&pod), holds, "{text}");
        }
    }

    #[test]
    fn invalid_until_is_rejected() {
        for text in ["0", "", "condition=", "object.", "soon", "-3", "object.x + 1", "object.x.nonsense()"] {
            assert!(text.parse::<Until>().is_err(), "{text}");
        }
    }
}
