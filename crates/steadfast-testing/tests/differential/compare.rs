//! Where two answers differ.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

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
    /// The options that it came with.
    pub options: Vec<&'static str>,
    /// What was asked.
    pub request: String,
    /// Where the answers differ, and what stands there: ours, theirs.
    pub places: Vec<(String, Value, Value)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(600).collect::<String>();
        writeln!(f, "script {} step {}: {}", self.seed, self.step, short(&self.request))?;
        let places = &self.places;
        // What another kind of answer has beside its words is of no interest.
        let telling = |place: &str| matches!(place, "/code" | "/body/message" | "/body/kind" | "/body/details");
        let refused = places.iter().any(|(place, _, _)| place == "/code");
        for (place, ours, theirs) in places.iter().filter(|(place, _, _)| !refused || telling(place)).take(8) {
            let (ours, theirs) = (short(&ours.to_string()), short(&theirs.to_string()));
            writeln!(f, "    {place}\n      embedded:  {ours}\n      reference: {theirs}")?;
        }
        Ok(())
    }
}

impl Difference {
    /// What it has in common with others of its sort: the verb, its options, and where the answers differ.
    pub fn sort(&self) -> String {
        let code = self.places.iter().find(|(place, _, _)| place == "/code");
        let places: BTreeSet<String> = match code {
            Some((_, ours, theirs)) => [format!("{ours} {theirs}")].into(),
            None => self.places.iter().map(|(place, _, _)| general(place)).collect(),
        };
        format!("{} {:?} {places:?}", self.verb, self.options)
    }
}

/// A place in an answer whatever the number of an item.
fn general(place: &str) -> String {
    let steps = place.split('/').map(|step| if step.parse::<u32>().is_ok() { "#" } else { step });
    steps.collect::<Vec<_>>().join("/")
}

/// Every step at which two servers' answers differ, but for what is known to.
pub fn differences(script: &Script, ours: &[Seen], theirs: &[Seen]) -> Vec<Difference> {
    let (ours, theirs) = (normalised(ours), normalised(theirs));
    let mut found = Vec::new();
    for (number, (mut ours, mut theirs)) in ours.into_iter().zip(theirs).enumerate() {
        if ours == theirs {
            continue;
        }
        let step = &script.steps[number];
        known::forget(step, &mut ours, &mut theirs);
        if step.code_only {
            for answer in [&mut ours, &mut theirs] {
                *answer = json!({"code": answer["code"], "message": answer["body"]["message"]});
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
