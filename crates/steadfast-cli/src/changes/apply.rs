//! Application of printed changes to an object, as a reader of `-o json` would do it. Tests use it to check `diff`. The
//! two share no code.

use serde_json::{Value, json};

/// Step of a parsed path.
#[derive(Debug)]
enum Step {
    Field(String),
    Index(usize),
    Element(Vec<(String, Value)>),
    Order(Vec<String>),
}

/// Applies changes of the form `{"path": …, "old": …, "new": …}` in order.
pub(crate) fn apply(object: &Value, changes: &[Value]) -> Value {
    let mut object = object.clone();
    for change in changes {
        let path = parse(change["path"].as_str().expect("a path"));
        set_value(&mut object, &path, change.get("new"));
    }
    object
}

fn set_value(value: &mut Value, path: &[Step], new: Option<&Value>) {
    let Some((step, remaining_steps)) = path.split_first() else {
        *value = new.cloned().expect("the root has a value");
        return;
    };
    let is_last = remaining_steps.is_empty();
    match step {
        Step::Field(name) => {
            let fields = value.as_object_mut().expect("an object");
            match new {
                None if is_last => drop(fields.remove(name).expect("a field to remove")),
                Some(new) if is_last => drop(fields.insert(name.clone(), new.clone())),
                _ => {
                    let field = fields.get_mut(name).unwrap_or_else(|| panic!("no field {name}"));
                    set_value(field, remaining_steps, new);
                }
            }
        }
        Step::Index(index) => {
            let elements = value.as_array_mut().expect("a list");
            match new {
                None if is_last => drop(elements.remove(*index)),
                Some(new) if is_last && *index == elements.len() => elements.push(new.clone()),
                _ => set_value(&mut elements[*index], remaining_steps, new),
            }
        }
        Step::Element(keys) => {
            let elements = value.as_array_mut().expect("a list");
            let position = elements.iter().position(|element| has_key_values(element, keys));
            match (position, new) {
                (Some(index), None) if is_last => drop(elements.remove(index)),
                (None, Some(new)) if is_last => elements.push(new.clone()),
                (Some(index), new) => set_value(&mut elements[index], remaining_steps, new),
                (None, _) => panic!("no element {keys:?}"),
            }
        }
        Step::Order(keys) => {
            let elements = value.as_array_mut().expect("a list");
            let ordered = new.and_then(Value::as_array).expect("an order").iter().map(|identity| {
                let values =
                    if keys.len() == 1 { vec![identity.clone()] } else { identity.as_array().expect("keys").clone() };
                let keys: Vec<(String, Value)> = keys.iter().cloned().zip(values).collect();
                elements.iter().find(|element| has_key_values(element, &keys)).expect("an element").clone()
            });
            let ordered: Vec<Value> = ordered.collect();
            *elements = ordered;
        }
    }
}

fn has_key_values(element: &Value, keys: &[(String, Value)]) -> bool {
    keys.iter().all(|(key, value)| element.get(key).unwrap_or(&Value::Null) == value)
}

/// Parses the path of a change.
fn parse(text: &str) -> Vec<Step> {
    let (mut steps, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = parse_brackets(inner);
            steps.push(step);
            rest = after.strip_prefix(']').unwrap_or_else(|| panic!("no bracket in {text:?} at {after:?}"));
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Field(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    steps
}

fn parse_brackets(text: &str) -> (Step, &str) {
    if text.starts_with('"') {
        let (name, rest) = parse_value(text);
        return (Step::Field(name.as_str().expect("a name").to_owned()), rest);
    }
    if text.starts_with(|character: char| character.is_ascii_digit()) {
        let end = text.find(']').expect("a bracket");
        return (Step::Index(text[..end].parse().expect("a position")), &text[end..]);
    }
    let end = text.find(['=', ']']).expect("an end");
    if text[end..].starts_with(']') {
        return (Step::Order(text[..end].split(',').map(str::to_owned).collect()), &text[end..]);
    }
    let (mut keys, mut rest) = (Vec::new(), text);
    loop {
        let (key, after) = rest.split_once('=').expect("a key");
        let (value, after) = parse_value(after);
        keys.push((key.to_owned(), value));
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return (Step::Element(keys), after),
        }
    }
}

/// Parses a JSON value or a bare word at the start of `text`.
fn parse_value(text: &str) -> (Value, &str) {
    let end = text.find([',', ']']).expect("an end");
    let word = &text[..end];
    let is_word =
        word.starts_with(|character: char| character.is_ascii_alphabetic() || character == '_' || character == '$');
    if is_word && !["true", "false", "null"].contains(&word) {
        return (json!(word), &text[end..]);
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next().expect("a value").expect("valid JSON");
    (value, &text[values.byte_offset()..])
}
