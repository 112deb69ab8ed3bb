//! Property: the printed changes, applied to the old object, return the new one, except for noise that is counted.

use serde_json::{Map, Value, json};
use steadfast::unstable::random::Random;

use super::apply::apply;
use super::describe::{Content, describe, visible};
use super::diff::Detail;
use super::kind::Kind;
use super::noise::is_noise;

/// Number of random objects.
const SEED_COUNT: u64 = 4_000;

/// Names of fields: lists with keys, metadata, timestamps, and names that need quotes.
const FIELD_NAMES: [&str; 24] = [
    "metadata",
    "spec",
    "status",
    "labels",
    "annotations",
    "conditions",
    "containers",
    "ports",
    "env",
    "endpoints",
    "args",
    "name",
    "type",
    "containerPort",
    "protocol",
    "addresses",
    "managedFields",
    "resourceVersion",
    "generation",
    "lastTransitionTime",
    "observedGeneration",
    "a.b/c",
    "with \"quotes\"",
    "x]=,[0",
];

const TEXTS: [&str; 9] =
    ["", "app", "true", "null", "8080", "a,b]=c", "2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z", "\u{1b}[2J\n"];

fn pick<'a>(random: &mut Random, texts: &[&'a str]) -> &'a str {
    texts[random.below(texts.len() as u64) as usize]
}

fn scalar(random: &mut Random) -> Value {
    match random.below(6) {
        0 => Value::Null,
        1 => json!(random.below(2) == 0),
        2 => json!(random.below(4)),
        3 => json!(random.fraction()),
        _ => json!(pick(random, &TEXTS)),
    }
}

/// Returns an element of a list, usually with the usual keys.
fn element(random: &mut Random, depth: u32) -> Value {
    let mut element = object(random, depth);
    if let (Some(fields), false) = (element.as_object_mut(), random.below(8) == 0) {
        for key in ["name", "type"] {
            fields.insert(key.to_owned(), json!(format!("{key}-{}", random.below(5))));
        }
        fields.insert("containerPort".to_owned(), json!(random.below(5)));
        if random.below(2) == 0 {
            fields.insert("addresses".to_owned(), json!([format!("10.0.0.{}", random.below(5))]));
        }
        if random.below(2) == 0 {
            fields.insert("protocol".to_owned(), json!(pick(random, &["TCP", "UDP"])));
        }
    }
    element
}

fn object(random: &mut Random, depth: u32) -> Value {
    let fields = (0..random.below(6)).map(|_| (pick(random, &FIELD_NAMES).to_owned(), value(random, depth)));
    Value::Object(fields.collect::<Map<String, Value>>())
}

fn value(random: &mut Random, depth: u32) -> Value {
    match random.below(if depth == 0 { 4 } else { 12 }) {
        0..=3 => scalar(random),
        4..=7 => object(random, depth - 1),
        8 | 9 => (0..random.below(4)).map(|_| element(random, depth - 1)).collect(),
        10 => (0..random.below(4)).map(|_| scalar(random)).collect(),
        _ => (0..random.below(3)).map(|_| value(random, depth - 1)).collect(),
    }
}

/// Changes some parts of `value` at random: replaces, adds, removes and reorders.
fn mutate(random: &mut Random, value: &mut Value, depth: u32) {
    match value {
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                match random.below(10) {
                    0 => drop(fields.remove(&name)),
                    1 => drop(fields.insert(name, self::value(random, depth))),
                    _ => mutate(random, fields.get_mut(&name).expect("a field"), depth.saturating_sub(1)),
                }
            }
            if random.below(4) == 0 {
                fields.insert(pick(random, &FIELD_NAMES).to_owned(), self::value(random, depth));
            }
        }
        Value::Array(elements) => {
            for element in elements.iter_mut() {
                mutate(random, element, depth.saturating_sub(1));
            }
            match random.below(5) {
                0 if !elements.is_empty() => drop(elements.remove(random.below(elements.len() as u64) as usize)),
                1 => elements.insert(random.below(elements.len() as u64 + 1) as usize, element(random, depth)),
                2 if elements.len() > 1 => elements.rotate_left(1),
                _ => {}
            }
        }
        scalar if random.below(6) == 0 => *scalar = self::scalar(random),
        _ => {}
    }
}

fn printed_changes(kind: &Kind, old: &Value, new: &Value, content: Content) -> (Vec<Value>, usize) {
    let visible = visible(kind, old, new, Detail::Subtrees, content);
    (visible.changes.iter().map(super::diff::Change::to_json).collect(), visible.noise_count)
}

#[test]
fn applied_changes_return_new_object() {
    let kinds = [Kind::new("", "Pod"), Kind::new("coordination.k8s.io", "Lease"), Kind::new("", "Secret")];
    let everything = Content { noise: true, secrets: true };
    let without_noise_content = Content { noise: false, secrets: true };
    let (mut with_noise_count, mut reordered_count) = (0, 0);
    for seed in 0..SEED_COUNT {
        let random = &mut Random::new(seed);
        let old = object(random, 4);
        let mut new = old.clone();
        mutate(random, &mut new, 3);
        let kind = &kinds[seed as usize % kinds.len()];

        let (changes, total_noise_count) = printed_changes(kind, &old, &new, everything);
        assert_eq!(apply(&old, &changes), new, "seed {seed}: {changes:?}");
        assert_eq!(changes.is_empty(), old == new, "seed {seed}");

        let (significant_changes, noise_count) = printed_changes(kind, &old, &new, without_noise_content);
        assert_eq!(
            (noise_count, significant_changes.len() + noise_count),
            (total_noise_count, changes.len()),
            "seed {seed}"
        );
        let without_noise = apply(&old, &significant_changes);
        let remaining = visible(kind, &without_noise, &new, Detail::Subtrees, everything).changes;
        assert!(remaining.iter().all(|change| is_noise(kind, change)), "seed {seed}: {remaining:?}");
        with_noise_count += usize::from(noise_count > 0 && !significant_changes.is_empty());
        reordered_count +=
            usize::from(changes.iter().any(|change| change["path"].as_str().expect("a path").ends_with("[name]")));

        let description = describe(kind, &[], &old, &new, without_noise_content);
        let leaf_changes = visible(kind, &old, &new, Detail::Leaves, without_noise_content).changes;
        assert_eq!(
            description.phrases.is_empty(),
            leaf_changes.is_empty(),
            "seed {seed}: {description:?} {leaf_changes:?}"
        );
        let is_safe = |text: &str| !text.chars().any(char::is_control);
        assert!(description.phrases.iter().all(|phrase| is_safe(&phrase.text)), "seed {seed}: {description:?}");
    }
    assert!(with_noise_count > 20 && reordered_count > 100, "{with_noise_count} {reordered_count}");
}
