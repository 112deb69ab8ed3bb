//! Fields of an object that the `scale` subresource shows.

use serde_json::Value;

use crate::field_violation::FieldViolation;
use crate::go;
use crate::resources::ScalePaths;

/// Returns the violations of the fields that `scale` shows, in the order of the real server.
pub(super) fn violations(paths: &ScalePaths, object: &Value, is_status_only: bool) -> Vec<FieldViolation> {
    let mut causes = Vec::new();
    let mut count = |path: &str| match integer_at(object, path) {
        Err(detail) => causes.push(FieldViolation::invalid(path, &0.into(), &detail)),
        Ok(Some(count)) if count < 0 => {
            causes.push(FieldViolation::invalid(path, &count.into(), "should be a non-negative integer"));
        }
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            causes.push(FieldViolation::invalid(path, &count.into(), &detail));
        }
        Ok(_) => {}
    };
    if !is_status_only {
        count(&paths.spec_replicas);
    }
    count(&paths.status_replicas);
    if !paths.selector.is_empty() {
        let detail = match value_at(object, &paths.selector) {
            Ok(Some(Value::String(_)) | None) => None,
            Ok(Some(other)) => Some(accessor_error(&paths.selector, other, "string")),
            Err(detail) => Some(detail),
        };
        causes.extend(detail.map(|detail| FieldViolation::invalid(paths.selector.as_str(), &"".into(), &detail)));
    }
    causes
}

/// Returns the names of the fields on a path.
pub(super) fn path_steps(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.').split('.')
}

/// Returns the value at a path. Returns an error if a parent is not an object.
pub(super) fn value_at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked_path = String::new();
    for step in path_steps(path) {
        walked_path.push('.');
        walked_path.push_str(step);
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(step) {
                Some(inner) => value = inner,
                None => return Ok(None),
            },
            other => return Err(accessor_error(&walked_path, other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

/// Returns the integer at a path, if present.
pub(super) fn integer_at(object: &Value, path: &str) -> Result<Option<i64>, String> {
    match value_at(object, path)? {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| accessor_error(path, value, "int64")),
    }
}

fn accessor_error(path: &str, value: &Value, expected: &str) -> String {
    let kind = match value {
        Value::String(_) => "string",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Bool(_) => "bool",
        Value::Null => "<nil>",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let path = path.trim_start_matches('.');
    format!(".{path} accessor error: {} is of the type {kind}, expected {expected}", go::plain(value))
}
