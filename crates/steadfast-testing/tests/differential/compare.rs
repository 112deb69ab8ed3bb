//! Where two answers differ.

use std::fmt;

use serde_json::Value;

use crate::execute::Seen;
use crate::known;
use crate::normalise::normalised;
use crate::script::Script;

/// The first step of a script that two servers answered in different ways.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The script.
    pub seed: u64,
    /// The step's number.
    pub step: usize,
    /// The verb.
    pub verb: &'static str,
    /// What was asked.
    pub request: String,
    /// Where the answers differ, and what stands there: ours, theirs.
    pub places: Vec<(String, Value, Value)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "script {} step {}: {}", self.seed, self.step, self.request)?;
        for (place, ours, theirs) in &self.places {
            writeln!(f, "    {place}\n      embedded:  {ours}\n      reference: {theirs}")?;
        }
        Ok(())
    }
}

impl Difference {
    /// What it has in common with others of its sort: the verb, and where and how the answers differ.
    pub fn sort(&self) -> String {
        let places = self.places.iter().map(|(place, ours, theirs)| {
            let place: Vec<_> =
                place.split('/').map(|step| if step.parse::<u32>().is_ok() { "#" } else { step }).collect();
            let short = |value: &Value| value.to_string().chars().take(60).collect::<String>();
            format!("{} {} {}", place.join("/"), short(ours), short(theirs))
        });
        let places: std::collections::BTreeSet<String> = places.collect();
        format!("{} {}", self.verb, places.into_iter().collect::<Vec<_>>().join("; "))
    }
}

/// Every step at which two servers' answers differ, but for what is known to.
pub fn differences(script: &Script, ours: &[Seen], theirs: &[Seen]) -> Vec<Difference> {
    let (ours, theirs) = (normalised(ours), normalised(theirs));
    let mut found = Vec::new();
    for (number, (mut ours, mut theirs)) in ours.into_iter().zip(theirs).enumerate() {
        let step = &script.steps[number];
        known::forget(step, &mut ours, &mut theirs);
        let mut places = Vec::new();
        walk("", &ours, &theirs, &mut places);
        if !places.is_empty() {
            let request = format!("{} {} {} {} {}", step.method, step.path, step.content_type, step.accept, step.body);
            found.push(Difference { seed: script.seed, step: number, verb: step.verb, request, places });
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
