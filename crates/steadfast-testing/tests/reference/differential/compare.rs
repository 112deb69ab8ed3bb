//! Comparison of two responses.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use crate::differential::execute::ServerResponse;
use crate::differential::known;
use crate::differential::normalise::normalised;
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
    pub places: Vec<(String, Value, Value)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(600).collect::<String>();
        writeln!(f, "script {} step {}: {}", self.seed, self.step, short(&self.request))?;
        let places = &self.places;
        // If the status codes of the responses differ, most other fields are irrelevant.
        let telling = |place: &str| matches!(place, "/code" | "/body/message" | "/body/kind" | "/body/details");
        let rejected = places.iter().any(|(place, _, _)| place == "/code");
        for (place, ours, theirs) in places.iter().filter(|(place, _, _)| !rejected || telling(place)).take(8) {
            let (ours, theirs) = (short(&ours.to_string()), short(&theirs.to_string()));
            writeln!(f, "    {place}\n      embedded:  {ours}\n      reference: {theirs}")?;
        }
        Ok(())
    }
}

impl Difference {
    /// Returns the class of the difference: the verb, its options, and the differing fields.
    pub fn sort(&self) -> String {
        let code = self.places.iter().find(|(place, _, _)| place == "/code");
        let places: BTreeSet<String> = match code {
            Some((_, ours, theirs)) => [format!("{ours} {theirs}")].into(),
            None => self.places.iter().map(|(place, _, _)| general(place)).collect(),
        };
        format!("{} {:?} {places:?}", self.verb, self.options)
    }
}

/// Returns the path of a field without the index of an item.
fn general(place: &str) -> String {
    let steps = place.split('/').map(|step| if step.parse::<u32>().is_ok() { "#" } else { step });
    steps.collect::<Vec<_>>().join("/")
}

/// Returns every step with different responses, except for known differences.
pub fn differences(script: &Script, ours: &[ServerResponse], theirs: &[ServerResponse]) -> Vec<Difference> {
    let (ours, theirs) = (normalised(ours), normalised(theirs));
    let mut found = Vec::new();
    for (number, (mut ours, mut theirs)) in ours.into_iter().zip(theirs).enumerate() {
        if ours == theirs {
            continue;
        }
        let step = &script.steps[number];
        known::remove_known_differences(step, &mut ours, &mut theirs);
        if step.code_only {
            for response in [&mut ours, &mut theirs] {
                *response = json!({"code": response["code"], "message": response["body"]["message"]});
            }
        }
        let mut places = Vec::new();
        walk("", &ours, &theirs, &mut places);
        if !places.is_empty() {
            let request = format!("{} {} {} {} {}", step.method, step.path, step.content_type, step.accept, step.body);
            found.push(Difference {
                seed: script.seed,
                step: number,
                verb: step.verb,
                options: step.options.clone(),
                request,
                places,
            });
        }
    }
    found
}

fn walk(place: &str, ours: &Value, theirs: &Value, places: &mut Vec<(String, Value, Value)>) {
    match (ours, theirs) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let (ours, theirs) = (one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null));
                if one.contains_key(key) == other.contains_key(key) {
                    walk(&format!("{place}/{key}"), ours, theirs, places);
                } else {
                    places.push((format!("{place}/{key}"), ours.clone(), theirs.clone()));
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (ours, theirs)) in one.iter().zip(other).enumerate() {
                walk(&format!("{place}/{index}"), ours, theirs, places);
            }
        }
        _ if ours == theirs => {}
        _ => places.push((place.to_owned(), ours.clone(), theirs.clone())),
    }
}
