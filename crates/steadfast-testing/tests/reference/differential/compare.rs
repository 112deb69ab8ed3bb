//! Comparison of two responses.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use crate::differential::execute::ServerResponse;
use crate::differential::known;
use crate::differential::normalise::normalise;
use crate::differential::script::Script;

/// First step of a script with different responses of the two servers.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Seed of the script.
    pub seed: u64,
    /// Number of the step.
    pub step: usize,
    /// Verb of the step.
    pub verb: &'static str,
    /// Options of the step.
    pub options: Vec<&'static str>,
    /// The request.
    pub request: String,
    /// Differing fields with their values: ours, theirs.
    pub fields: Vec<(String, Value, Value)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shorten = |text: &str| text.chars().take(600).collect::<String>();
        writeln!(f, "script {} step {}: {}", self.seed, self.step, shorten(&self.request))?;
        let fields = &self.fields;
        // If the status codes of the responses differ, most other fields are irrelevant.
        let is_essential = |path: &str| matches!(path, "/code" | "/body/message" | "/body/kind" | "/body/details");
        let codes_differ = fields.iter().any(|(path, _, _)| path == "/code");
        for (path, ours, theirs) in fields.iter().filter(|(path, _, _)| !codes_differ || is_essential(path)).take(8) {
            let (ours, theirs) = (shorten(&ours.to_string()), shorten(&theirs.to_string()));
            writeln!(f, "    {path}\n      embedded:  {ours}\n      reference: {theirs}")?;
        }
        Ok(())
    }
}

impl Difference {
    /// Returns the class of the difference: the verb, its options, and the differing fields.
    pub fn class(&self) -> String {
        let code = self.fields.iter().find(|(path, _, _)| path == "/code");
        let paths: BTreeSet<String> = match code {
            Some((_, ours, theirs)) => [format!("{ours} {theirs}")].into(),
            None => self.fields.iter().map(|(path, _, _)| without_indexes(path)).collect(),
        };
        format!("{} {:?} {paths:?}", self.verb, self.options)
    }
}

/// Returns the path of a field without the index of an item.
fn without_indexes(path: &str) -> String {
    let steps = path.split('/').map(|step| if step.parse::<u32>().is_ok() { "#" } else { step });
    steps.collect::<Vec<_>>().join("/")
}

/// Returns every step with different responses, except for known differences.
pub fn differences(script: &Script, ours: &[ServerResponse], theirs: &[ServerResponse]) -> Vec<Difference> {
    let (ours, theirs) = (normalise(ours), normalise(theirs));
    let mut differing_steps = Vec::new();
    for (number, (mut ours, mut theirs)) in ours.into_iter().zip(theirs).enumerate() {
        if ours == theirs {
            continue;
        }
        let step = &script.steps[number];
        known::remove_known_differences(step, &mut ours, &mut theirs);
        if step.compares_code_only {
            for response in [&mut ours, &mut theirs] {
                *response = json!({"code": response["code"], "message": response["body"]["message"]});
            }
        }
        let mut fields = Vec::new();
        compare_values("", &ours, &theirs, &mut fields);
        if !fields.is_empty() {
            let request = format!("{} {} {} {} {}", step.method, step.path, step.content_type, step.accept, step.body);
            differing_steps.push(Difference {
                seed: script.seed,
                step: number,
                verb: step.verb,
                options: step.options.clone(),
                request,
                fields,
            });
        }
    }
    differing_steps
}

fn compare_values(path: &str, ours: &Value, theirs: &Value, fields: &mut Vec<(String, Value, Value)>) {
    match (ours, theirs) {
        (Value::Object(first), Value::Object(second)) => {
            for key in first.keys().chain(second.keys().filter(|key| !first.contains_key(*key))) {
                let (ours, theirs) = (first.get(key).unwrap_or(&Value::Null), second.get(key).unwrap_or(&Value::Null));
                if first.contains_key(key) == second.contains_key(key) {
                    compare_values(&format!("{path}/{key}"), ours, theirs, fields);
                } else {
                    fields.push((format!("{path}/{key}"), ours.clone(), theirs.clone()));
                }
            }
        }
        (Value::Array(first), Value::Array(second)) if first.len() == second.len() => {
            for (index, (ours, theirs)) in first.iter().zip(second).enumerate() {
                compare_values(&format!("{path}/{index}"), ours, theirs, fields);
            }
        }
        _ if ours == theirs => {}
        _ => fields.push((path.to_owned(), ours.clone(), theirs.clone())),
    }
}
