//! A rule: whether it fires for a change, and what it sends then.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::change::Change;
use crate::config::Rule;
use crate::endpoints::EndpointSource;
use crate::expression::{Bindings, Expression};

/// A rule whose expressions are read.
pub struct Compiled {
    /// Which of the configuration's rules it is, from zero.
    pub number: usize,
    /// As it is configured.
    pub config: Rule,
    pub(crate) when: Option<Expression>,
    pub(crate) send: Option<Expression>,
    /// The endpoints that the rule mirrors, instead of evaluating expressions.
    pub(crate) endpoints: Option<EndpointSource>,
}

/// What a rule makes of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It sends this.
    Fires(Value),
    /// It is for other kinds of events.
    OtherKind,
    /// It would send this, and does not send what is there already when the program begins.
    Initial(Value),
    /// Its condition does not hold.
    DoesNotHold,
    /// One of its expressions, `when` or `send`, could not be evaluated.
    Failed {
        /// Which.
        expression: &'static str,
        /// Why, and nothing of any value.
        why: String,
    },
}

impl Compiled {
    /// Whether what is sent says how the object is, and not how it changed: then the same is not sent again.
    pub fn is_of_states(&self) -> bool {
        self.when.as_ref().is_none_or(|when| !when.is_of_changes)
    }

    /// The paths that its condition asks `changed(…)` for, as they are written.
    pub fn paths(&self) -> &[String] {
        self.when.as_ref().map_or(&[], |when| &when.paths)
    }

    /// Whether the result for an object may change although the object does not: with the time, or with another object.
    pub fn is_of_context(&self) -> bool {
        self.expressions().any(|expression| expression.is_of_time || !expression.lookups.is_empty())
    }

    /// The resources that the rule looks up, as they are written, each once.
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

    /// What it makes of `change`.
    pub fn judge(&self, change: &Arc<Change>) -> Verdict {
        if !self.config.events.contains(&change.kind) {
            return Verdict::OtherKind;
        }
        match self.project(change) {
            Verdict::Fires(value) if change.initial && !self.config.initial => Verdict::Initial(value),
            verdict => verdict,
        }
    }

    /// What it would send if it were for all kinds of events.
    pub(crate) fn project(&self, change: &Arc<Change>) -> Verdict {
        self.outlook(change).0
    }

    /// What it would send if it were for all kinds of events, and when that may change although the object does not.
    pub(crate) fn outlook(&self, change: &Arc<Change>) -> (Verdict, Option<Timestamp>) {
        let mut bindings = Bindings::of(change, self.config.limits);
        let verdict = self.verdict(change, &mut bindings);
        (verdict, bindings.recheck_at)
    }

    fn verdict(&self, change: &Arc<Change>, bindings: &mut Bindings) -> Verdict {
        if let Some(endpoints) = &self.endpoints {
            let slice = change.object().map_or(&Value::Null, |state| state.shown());
            return match endpoints.explained(&change.subject.cluster, slice) {
                Ok(value) => Verdict::Fires(value),
                Err(why) => Verdict::Failed { expression: "endpoints", why },
            };
        }
        if self.when.is_none() && self.send.is_none() {
            return Verdict::Fires(who(change));
        }
        let failed = |expression, why| Verdict::Failed { expression, why };
        match self.when.as_ref().map(|when| when.evaluate(bindings)) {
            None | Some(Ok(Value::Bool(true))) => {}
            Some(Ok(Value::Bool(false))) => return Verdict::DoesNotHold,
            Some(Ok(_)) => return failed("when", "it comes to neither true nor false".to_owned()),
            Some(Err(why)) => return failed("when", why),
        }
        match self.send.as_ref().map(|send| send.evaluate(bindings)) {
            None => Verdict::Fires(who(change)),
            Some(Ok(value)) => Verdict::Fires(value),
            Some(Err(why)) => failed("send", why),
        }
    }
}

/// Who an object is, where nothing else is asked for.
fn who(change: &Change) -> Value {
    let Some(state) = change.object() else { return Value::Null };
    let object = state.shown();
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "namespace": change.subject.namespace, "name": change.subject.name,
        "uid": change.subject.uid, "resourceVersion": object["metadata"]["resourceVersion"],
    })
}
