//! JSON patches, as the real server reads them: where its library leaves RFC 6902, so does this.
//!
//! A field that is absent passes for null: a test for null passes where there is nothing, what is copied from nowhere
//! is null, and what is not there can be replaced. An operation without a value has null for one. Places in a list
//! may be counted from its end.

use serde_json::Value;

/// How much the operations of one patch may copy: a copy of a copy soon fills all memory.
const COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Carries out the operations of a patch; an error says nothing but that one of them cannot be done.
pub(super) fn apply(object: &mut Value, operations: &[Value]) -> Result<(), Undone> {
    let mut left = COPIED_BYTES;
    operations.iter().try_for_each(|operation| step(object, operation, &mut left))
}

/// An operation cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undone;

fn step(object: &mut Value, operation: &Value, left: &mut usize) -> Result<(), Undone> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).ok_or(Undone);
    let path = text("path")?;
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op")? {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(drop),
        "replace" => {
            let place = find(object, path)?;
            *place.existing()? = value();
            Ok(())
        }
        "test" => {
            let found = if path.is_empty() { object.clone() } else { find(object, path)?.seen()? };
            if found == value() { Ok(()) } else { Err(Undone) }
        }
        "copy" => {
            let copied = find(object, text("from")?)?.seen()?;
            *left = left.checked_sub(copied.to_string().len()).ok_or(Undone)?;
            add(object, path, copied)
        }
        "move" => {
            let moved = remove(object, text("from")?)?;
            add(object, path, moved)
        }
        _ => Err(Undone),
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), Undone> {
    match find(object, path)? {
        Place { within: Value::Object(fields), key } => drop(fields.insert(key, value)),
        Place { within: Value::Array(items), key } if key == "-" => items.push(value),
        Place { within: Value::Array(items), key } => {
            let index = index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(Undone),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, Undone> {
    match find(object, path)? {
        Place { within: Value::Object(fields), key } => fields.remove(&key).ok_or(Undone),
        Place { within: Value::Array(items), key } => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(Undone),
    }
}

/// A place in an object or a list.
struct Place<'a> {
    within: &'a mut Value,
    key: String,
}

impl<'a> Place<'a> {
    /// What is there; null in an object that has no such field.
    fn seen(self) -> Result<Value, Undone> {
        match self.within {
            Value::Object(fields) => Ok(fields.get(&self.key).cloned().unwrap_or_default()),
            Value::Array(items) => Ok(items[index(&self.key, items.len())?].clone()),
            _ => Err(Undone),
        }
    }

    /// What is there, made null in an object that has no such field.
    fn existing(self) -> Result<&'a mut Value, Undone> {
        match self.within {
            Value::Object(fields) => Ok(fields.entry(self.key).or_insert(Value::Null)),
            Value::Array(items) => {
                let index = index(&self.key, items.len())?;
                Ok(&mut items[index])
            }
            _ => Err(Undone),
        }
    }
}

/// The place of a path, where what it is in is there.
fn find<'a>(object: &'a mut Value, path: &str) -> Result<Place<'a>, Undone> {
    let mut keys = path.split('/').map(|key| key.replace("~1", "/").replace("~0", "~"));
    if keys.next() != Some(String::new()) {
        return Err(Undone);
    }
    let mut keys: Vec<String> = keys.collect();
    let key = keys.pop().ok_or(Undone)?;
    let within = keys.iter().try_fold(object, |within, key| match within {
        Value::Object(fields) => fields.get_mut(key).ok_or(Undone),
        Value::Array(items) => {
            let index = index(key, items.len())?;
            Ok(&mut items[index])
        }
        _ => Err(Undone),
    })?;
    Ok(Place { within, key })
}

/// The place in a list of so many items that a number represents; a negative one counts from the end.
fn index(key: &str, count: usize) -> Result<usize, Undone> {
    let number: i64 = key.parse().map_err(|_| Undone)?;
    let place = if number < 0 { number + i64::try_from(count).map_err(|_| Undone)? } else { number };
    usize::try_from(place).ok().filter(|place| *place < count).ok_or(Undone)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Undone, apply};

    fn patched(operations: &Value) -> Result<Value, Undone> {
        let mut object = json!({"labels": {"app": "web", "a/b": "x"}, "list": ["one", "two"]});
        apply(&mut object, operations.as_array().unwrap())?;
        Ok(object)
    }

    #[test]
    fn a_test_of_what_is_absent_fails_and_a_test_for_absence_passes() {
        assert_eq!(patched(&json!([{"op": "test", "path": "/labels/tier", "value": "front"}])), Err(Undone));
        assert_eq!(patched(&json!([{"op": "test", "path": "/list/2", "value": "three"}])), Err(Undone));
        assert_eq!(patched(&json!([{"op": "test", "path": "/nothing/deep", "value": null}])), Err(Undone));
        assert!(patched(&json!([{"op": "test", "path": "/labels/tier", "value": null}])).is_ok());
        assert!(patched(&json!([{"op": "test", "path": "/labels/app", "value": "web"}])).is_ok());
        assert_eq!(patched(&json!([{"op": "test", "path": "/labels/app", "value": "api"}])), Err(Undone));
        assert_eq!(patched(&json!([{"op": "test", "path": "/labels/app", "value": null}])), Err(Undone));
    }

    #[test]
    fn what_is_absent_can_be_replaced_and_copied_but_neither_moved_nor_removed() {
        let replaced = patched(&json!([{"op": "replace", "path": "/labels/tier", "value": "front"}])).unwrap();
        assert_eq!(replaced["labels"]["tier"], "front");
        let copied = patched(&json!([{"op": "copy", "from": "/nothing", "path": "/labels/tier"}])).unwrap();
        assert_eq!(copied["labels"]["tier"], Value::Null);
        assert_eq!(patched(&json!([{"op": "move", "from": "/nothing", "path": "/labels/tier"}])), Err(Undone));
        assert_eq!(patched(&json!([{"op": "remove", "path": "/nothing"}])), Err(Undone));
        assert_eq!(patched(&json!([{"op": "add", "path": "/nothing/deep", "value": 1}])), Err(Undone));
    }

    #[test]
    fn places_in_lists_are_counted_from_both_ends() {
        let list = |operations: Value| patched(&operations).map(|object| object["list"].clone());
        assert_eq!(list(json!([{"op": "add", "path": "/list/-", "value": 3}])), Ok(json!(["one", "two", 3])));
        assert_eq!(list(json!([{"op": "add", "path": "/list/0", "value": 0}])), Ok(json!([0, "one", "two"])));
        assert_eq!(list(json!([{"op": "replace", "path": "/list/-1", "value": 2}])), Ok(json!(["one", 2])));
        assert_eq!(list(json!([{"op": "remove", "path": "/list/0"}])), Ok(json!(["two"])));
        assert_eq!(list(json!([{"op": "add", "path": "/list/7", "value": 7}])), Err(Undone));
        assert_eq!(list(json!([{"op": "remove", "path": "/list/2"}])), Err(Undone));
    }

    #[test]
    fn copies_of_copies_end_before_they_fill_all_memory() {
        let copy = |number: i32| json!({"op": "copy", "from": "/labels", "path": format!("/labels/{number}")});
        let some: Vec<Value> = (0..10).map(copy).collect();
        assert!(patched(&some.into()).is_ok());
        let many: Vec<Value> = (0..1000).map(copy).collect();
        assert_eq!(patched(&many.into()), Err(Undone));
    }

    #[test]
    fn what_is_no_operation_is_not_done() {
        for operation in [
            json!({"op": "increment", "path": "/labels/app"}),
            json!({"op": "remove"}),
            json!({"op": "add", "path": "labels", "value": {}}),
            json!("remove"),
        ] {
            assert_eq!(patched(&json!([operation])), Err(Undone), "{operation}");
        }
        let escaped = patched(&json!([{"op": "remove", "path": "/labels/a~1b"}])).unwrap();
        assert_eq!(escaped["labels"], json!({"app": "web"}));
    }
}
