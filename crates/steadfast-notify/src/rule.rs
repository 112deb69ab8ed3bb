//! Evaluation of a rule for a change.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::change::ObjectChange;
use crate::config::RuleConfig;
use crate::endpoints::EndpointSource;
use crate::expression::{Bindings, Expression};

/// A rule with compiled expressions.
pub struct CompiledRule {
    /// Index of the rule in the configuration.
    pub number: usize,
    /// The configured rule.
    pub config: RuleConfig,
    pub(crate) when: Option<Expression>,
    pub(crate) send: Option<Expression>,
    /// Source of a rule that mirrors endpoints instead of evaluating expressions.
    pub(crate) endpoints: Option<EndpointSource>,
}

/// Result of a rule for a change.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleOutcome {
    /// The rule sends this value.
    Fires(Value),
    /// The rule does not cover this kind of change.
    OtherEventKind,
    /// The rule would send this value, but skips objects of the initial list.
    Initial(Value),
    /// The condition is false.
    DoesNotHold,
    /// An expression, `when` or `send`, could not be evaluated.
    Failed {
        /// Name of the expression.
        expression: &'static str,
        /// Cause, without any values.
        reason: String,
    },
}

impl CompiledRule {
    /// Returns true if the result depends only on the state, not on the change. An unchanged result is not sent again.
    pub fn compares_states(&self) -> bool {
        self.when.as_ref().is_none_or(|when| !when.compares_changes)
    }

    /// Returns the verbatim arguments of `changed(…)` in the condition.
    pub fn paths(&self) -> &[String] {
        self.when.as_ref().map_or(&[], |when| &when.paths)
    }

    /// Returns true if the result may change without a change of the object: by time or lookups.
    pub fn depends_on_context(&self) -> bool {
        self.expressions().any(|expression| expression.depends_on_time || !expression.lookups.is_empty())
    }

    /// Returns the unique names of looked-up resources.
    pub fn lookups(&self) -> Vec<&str> {
        let mut lookups: Vec<&str> = Vec::new();
        for (name, _) in self.expressions().flat_map(|expression| &expression.lookups) {
            if !lookups.contains(&name.as_str()) {
                lookups.push(name);
            }
        }
        lookups
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.when.iter().chain(&self.send)
    }

    /// Evaluates the rule for `change`.
    pub fn evaluate_change(&self, change: &Arc<ObjectChange>) -> RuleOutcome {
        if !self.config.events.contains(&change.kind) {
            return RuleOutcome::OtherEventKind;
        }
        match self.project(change) {
            // The value is still evaluated: a later change with an equal result is not sent.
            RuleOutcome::Fires(value) if change.is_initial && !self.config.initial => RuleOutcome::Initial(value),
            outcome => outcome,
        }
    }

    /// Evaluates the rule for `change`, regardless of the kinds of changes.
    pub(crate) fn project(&self, change: &Arc<ObjectChange>) -> RuleOutcome {
        self.project_with_recheck(change).0
    }

    /// Like [`project`](Self::project), with the earliest instant at which the result may change without a change of
    /// the object.
    pub(crate) fn project_with_recheck(&self, change: &Arc<ObjectChange>) -> (RuleOutcome, Option<Timestamp>) {
        let mut bindings = Bindings::for_change(change, self.config.limits);
        let outcome = self.run_expressions(change, &mut bindings);
        (outcome, bindings.recheck_at)
    }

    fn run_expressions(&self, change: &Arc<ObjectChange>, bindings: &mut Bindings) -> RuleOutcome {
        if let Some(endpoints) = &self.endpoints {
            let slice = change.object().map_or(&Value::Null, |state| state.masked());
            return match endpoints.explain_entries(&change.subject.cluster, slice) {
                Ok(value) => RuleOutcome::Fires(value),
                Err(reason) => RuleOutcome::Failed { expression: "endpoints", reason },
            };
        }
        if self.when.is_none() && self.send.is_none() {
            return RuleOutcome::Fires(object_reference(change));
        }
        let failed = |expression, reason| RuleOutcome::Failed { expression, reason };
        match self.when.as_ref().map(|when| when.evaluate(bindings)) {
            None | Some(Ok(Value::Bool(true))) => {}
            Some(Ok(Value::Bool(false))) => return RuleOutcome::DoesNotHold,
            Some(Ok(_)) => return failed("when", "the result is neither true nor false".to_owned()),
            Some(Err(reason)) => return failed("when", reason),
        }
        match self.send.as_ref().map(|send| send.evaluate(bindings)) {
            None => RuleOutcome::Fires(object_reference(change)),
            Some(Ok(value)) => RuleOutcome::Fires(value),
            Some(Err(reason)) => failed("send", reason),
        }
    }
}

/// Returns the identity of an object, the default message.
fn object_reference(change: &ObjectChange) -> Value {
    let Some(state) = change.object() else { return Value::Null };
    let object = state.masked();
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "namespace": change.subject.namespace, "name": change.subject.name,
        "uid": change.subject.uid, "resourceVersion": object["metadata"]["resourceVersion"],
    })
}
