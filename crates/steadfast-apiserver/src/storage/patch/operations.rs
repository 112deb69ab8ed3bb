//! JSON patches with the deviations of the real server's library from RFC 6902.
//!
//! An absent field counts as null. A test for null therefore passes on an absent field, a copy of an absent field is
//! null, and an absent field can be replaced. An operation without a value has the value null. Negative indexes count
//! from the end of a list.

use serde_json::Value;

/// Maximum size of copied values per patch in bytes. Copies of copies would otherwise exhaust the memory.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies the operations of a patch. The error only states that one of them failed.
pub(super) fn apply(object: &mut Value, operations: &[Value]) -> Result<(), OperationFailed> {
    // Limits growth by repeated `copy` operations, like the library of the real server.
    let mut remaining_bytes = MAX_COPIED_BYTES;
    operations.iter().try_for_each(|operation| apply_operation(object, operation, &mut remaining_bytes))
}

/// Error of an operation that cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationFailed;

fn apply_operation(object: &mut Value, operation: &Value, remaining_bytes: &mut usize) -> Result<(), OperationFailed> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).ok_or(OperationFailed);
    let path = text("path")?;
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op")? {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(drop),
        "replace" => {
            let position = find(object, path)?;
            *position.value_mut()? = value();
            Ok(())
        }
        "test" => {
            let found = if path.is_empty() { object.clone() } else { find(object, path)?.value()? };
            if found == value() { Ok(()) } else { Err(OperationFailed) }
        }
        "copy" => {
            let copied = find(object, text("from")?)?.value()?;
            *remaining_bytes = remaining_bytes.checked_sub(copied.to_string().len()).ok_or(OperationFailed)?;
            add(object, path, copied)
        }
        "move" => {
            let moved = remove(object, text("from")?)?;
            add(object, path, moved)
        }
        _ => Err(OperationFailed),
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), OperationFailed> {
    match find(object, path)? {
        PatchPosition { container: Value::Object(fields), key } => drop(fields.insert(key, value)),
        // `-` appends an item (RFC 6902, 4.1).
        PatchPosition { container: Value::Array(items), key } if key == "-" => items.push(value),
        PatchPosition { container: Value::Array(items), key } => {
            let index = index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(OperationFailed),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, OperationFailed> {
    match find(object, path)? {
        PatchPosition { container: Value::Object(fields), key } => fields.remove(&key).ok_or(OperationFailed),
        PatchPosition { container: Value::Array(items), key } => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(OperationFailed),
    }
}

/// Position in an object or a list.
struct PatchPosition<'a> {
    container: &'a mut Value,
    key: String,
}

impl<'a> PatchPosition<'a> {
    /// Returns the value; null for an absent field of an object.
    fn value(self) -> Result<Value, OperationFailed> {
        match self.container {
            Value::Object(fields) => Ok(fields.get(&self.key).cloned().unwrap_or_default()),
            Value::Array(items) => Ok(items[index(&self.key, items.len())?].clone()),
            _ => Err(OperationFailed),
        }
    }

    /// Returns the value for a change. Creates an absent field of an object as null.
    fn value_mut(self) -> Result<&'a mut Value, OperationFailed> {
        match self.container {
            Value::Object(fields) => Ok(fields.entry(self.key).or_insert(Value::Null)),
            Value::Array(items) => {
                let index = index(&self.key, items.len())?;
                Ok(&mut items[index])
            }
            _ => Err(OperationFailed),
        }
    }
}

/// Returns the position of a path, if its parent exists.
fn find<'a>(object: &'a mut Value, path: &str) -> Result<PatchPosition<'a>, OperationFailed> {
    // `~1` is decoded before `~0`; otherwise `~01` would become `/` (RFC 6901, 4).
    let mut keys = path.split('/').map(|key| key.replace("~1", "/").replace("~0", "~"));
    if keys.next() != Some(String::new()) {
        return Err(OperationFailed);
    }
    let mut keys: Vec<String> = keys.collect();
    let key = keys.pop().ok_or(OperationFailed)?;
    let container = keys.iter().try_fold(object, |container, key| match container {
        Value::Object(fields) => fields.get_mut(key).ok_or(OperationFailed),
        Value::Array(items) => {
            let index = index(key, items.len())?;
            Ok(&mut items[index])
        }
        _ => Err(OperationFailed),
    })?;
    Ok(PatchPosition { container, key })
}

/// Returns the index in a list of `count` items; a negative number counts from the end.
fn index(key: &str, count: usize) -> Result<usize, OperationFailed> {
    let number: i64 = key.parse().map_err(|_| OperationFailed)?;
    // Negative indexes count from the end, as in the library of the real server.
    let position = if number < 0 { number + i64::try_from(count).map_err(|_| OperationFailed)? } else { number };
    usize::try_from(position).ok().filter(|position| *position < count).ok_or(OperationFailed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{OperationFailed, apply};

    fn patched(operations: &Value) -> Result<Value, OperationFailed> {
        let mut object = json!({"labels": {"app": "web", "a/b": "x"}, "list": ["one", "two"]});
        apply(&mut object, operations.as_array().unwrap())?;
        Ok(object)
    }

    #[test]
    fn absent_field_only_passes_a_null_test() {
        assert_eq!(patched(&json!([{"op": "test", "path": "/labels/tier", "value": "front"}])), Err(OperationFailed));
        assert_eq!(patched(&json!([{"op": "test", "path": "/list/2", "value": "three"}])), Err(OperationFailed));
        assert_eq!(patched(&json!([{"op": "test", "path": "/nothing/deep", "value": null}])), Err(OperationFailed));
        assert!(patched(&json!([{"op": "test", "path": "/labels/tier", "value": null}])).is_ok());
        assert!(patched(&json!([{"op": "test", "path": "/labels/app", "value": "web"}])).is_ok());
        assert_eq!(patched(&json!([{"op": "test", "path": "/labels/app", "value": "api"}])), Err(OperationFailed));
        assert_eq!(patched(&json!([{"op": "test", "path": "/labels/app", "value": null}])), Err(OperationFailed));
    }

    #[test]
    fn absent_field_can_be_replaced_and_copied() {
        let replaced = patched(&json!([{"op": "replace", "path": "/labels/tier", "value": "front"}])).unwrap();
        assert_eq!(replaced["labels"]["tier"], "front");
        let copied = patched(&json!([{"op": "copy", "from": "/nothing", "path": "/labels/tier"}])).unwrap();
        assert_eq!(copied["labels"]["tier"], Value::Null);
        assert_eq!(patched(&json!([{"op": "move", "from": "/nothing", "path": "/labels/tier"}])), Err(OperationFailed));
        assert_eq!(patched(&json!([{"op": "remove", "path": "/nothing"}])), Err(OperationFailed));
        assert_eq!(patched(&json!([{"op": "add", "path": "/nothing/deep", "value": 1}])), Err(OperationFailed));
    }

    #[test]
    fn indexes_count_from_both_ends() {
        let list = |operations: Value| patched(&operations).map(|object| object["list"].clone());
        assert_eq!(list(json!([{"op": "add", "path": "/list/-", "value": 3}])), Ok(json!(["one", "two", 3])));
        assert_eq!(list(json!([{"op": "add", "path": "/list/0", "value": 0}])), Ok(json!([0, "one", "two"])));
        assert_eq!(list(json!([{"op": "replace", "path": "/list/-1", "value": 2}])), Ok(json!(["one", 2])));
        assert_eq!(list(json!([{"op": "remove", "path": "/list/0"}])), Ok(json!(["two"])));
        assert_eq!(list(json!([{"op": "add", "path": "/list/7", "value": 7}])), Err(OperationFailed));
        assert_eq!(list(json!([{"op": "remove", "path": "/list/2"}])), Err(OperationFailed));
    }

    #[test]
    fn repeated_copies_are_bounded() {
        let copy = |number: i32| json!({"op": "copy", "from": "/labels", "path": format!("/labels/{number}")});
        let ten_copies: Vec<Value> = (0..10).map(copy).collect();
        assert!(patched(&ten_copies.into()).is_ok());
        let thousand_copies: Vec<Value> = (0..1000).map(copy).collect();
        assert_eq!(patched(&thousand_copies.into()), Err(OperationFailed));
    }

    #[test]
    fn invalid_operation_is_rejected() {
        for operation in [
            json!({"op": "increment", "path": "/labels/app"}),
            json!({"op": "remove"}),
            json!({"op": "add", "path": "labels", "value": {}}),
            json!("remove"),
        ] {
            assert_eq!(patched(&json!([operation])), Err(OperationFailed), "{operation}");
        }
        let escaped = patched(&json!([{"op": "remove", "path": "/labels/a~1b"}])).unwrap();
        assert_eq!(escaped["labels"], json!({"app": "web"}));
    }
}
