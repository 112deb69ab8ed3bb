//! Type check of objects, as in the decoder of a real server.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::table::{Field, FieldShape, ValueType, fields, type_for_kind};

/// Value of a wrong type.
struct TypeMismatch {
    path: String,
    actual: &'static str,
    expected: String,
}

impl TypeMismatch {
    /// Creates the error without the value itself, which may be a secret.
    fn new(actual: &Value, expected: String) -> Self {
        let actual = match actual {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Self { path: String::new(), actual, expected }
    }

    fn below_field(self, field: &str) -> Self {
        Self { path: format!(".{field}{}", self.path), ..self }
    }
}

/// Returns the first error for a value of a wrong type in an object of a built-in kind. `null` is valid for every type.
pub(crate) fn type_mismatch(api_version: &str, kind: &str, object: &Value) -> Option<String> {
    mismatch_message(type_for_kind(api_version, kind)?, kind, object)
}

/// Returns the first error for a value of a wrong type in the metadata of any object.
pub(crate) fn metadata_type_mismatch(metadata: &Value) -> Option<String> {
    mismatch_message("meta.v1.ObjectMeta", "ObjectMeta", metadata)
}

fn mismatch_message(name: &'static str, displayed_kind: &str, object: &Value) -> Option<String> {
    let TypeMismatch { path, actual, expected } = mismatch_in_value(ValueType::Named(name), object)?;
    Some(format!("json: cannot unmarshal {actual} into Go struct field {displayed_kind}{path} of type {expected}"))
}

fn mismatch_in_fields(fields: &[Field], values: &Map<String, Value>) -> Option<TypeMismatch> {
    values.iter().find_map(|(key, value)| {
        // `prune` reports unknown fields.
        let field = fields.iter().find(|field| field.name == key)?;
        mismatch_in_field(field.shape, value).map(|mismatch| mismatch.below_field(key))
    })
}

fn mismatch_in_field(shape: FieldShape, value: &Value) -> Option<TypeMismatch> {
    match (shape, value) {
        // Go decodes null as the zero value of any type.
        (_, Value::Null) => None,
        (FieldShape::One(kind), value) => mismatch_in_value(kind, value),
        (FieldShape::List(kind), Value::Array(items)) => items.iter().find_map(|item| mismatch_in_value(kind, item)),
        (FieldShape::List(kind), other) => Some(TypeMismatch::new(other, format!("[]{}", go_type(kind)))),
        (FieldShape::Map(kind), Value::Object(values)) => {
            values.values().find_map(|value| mismatch_in_value(kind, value))
        }
        (FieldShape::MapOfLists(kind), Value::Object(values)) => {
            values.values().find_map(|list| mismatch_in_field(FieldShape::List(kind), list))
        }
        (FieldShape::Map(kind), other) => Some(TypeMismatch::new(other, format!("map[string]{}", go_type(kind)))),
        (FieldShape::MapOfLists(kind), other) => {
            Some(TypeMismatch::new(other, format!("map[string][]{}", go_type(kind))))
        }
    }
}

fn mismatch_in_value(kind: ValueType, value: &Value) -> Option<TypeMismatch> {
    let is_int32 = || value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    let text = value.as_str();
    let is_valid = match kind {
        _ if value.is_null() => true,
        ValueType::Any | ValueType::Json(_) => true,
        ValueType::Named(name) => match value {
            Value::Object(values) => return mismatch_in_fields(fields(name)?, values),
            _ => false,
        },
        ValueType::Text | ValueType::Duration => value.is_string(),
        ValueType::Bool => value.is_boolean(),
        ValueType::Integer32 => is_int32(),
        ValueType::Integer64 => value.is_i64(),
        ValueType::Double => value.is_number(),
        ValueType::Bytes => text.is_some_and(|text| bytes(text).is_some()),
        // `metav1.Time` accepts RFC 3339 only.
        ValueType::Time => text.is_some_and(is_time),
        ValueType::MicroTime => text.is_some_and(|text| {
            // Go's format for microseconds requires exactly six digits.
            let fraction = text.split_once('.').map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
            fraction == Some(6) && is_time(text)
        }),
        // Quantities may be numbers in JSON, and surrounding spaces are trimmed.
        ValueType::Quantity => value.is_number() || text.is_some_and(|text| is_quantity(text.trim())),
        ValueType::IntOrString => value.is_string() || is_int32(),
    };
    (!is_valid).then(|| TypeMismatch::new(value, go_type(kind).to_owned()))
}

/// Returns the name of a type in Go.
fn go_type(kind: ValueType) -> &'static str {
    match kind {
        ValueType::Text => "string",
        ValueType::Bytes => "[]uint8",
        ValueType::Bool => "bool",
        ValueType::Integer32 | ValueType::IntOrString => "int32",
        ValueType::Integer64 => "int64",
        ValueType::Double => "float64",
        ValueType::Any => "interface {}",
        ValueType::Time => "v1.Time",
        ValueType::MicroTime => "v1.MicroTime",
        ValueType::Duration => "v1.Duration",
        ValueType::Quantity => "resource.Quantity",
        ValueType::Json(name) => name,
        ValueType::Named(name) => {
            // Go prints the last package and the name: `v1.ObjectMeta` for `meta.v1.ObjectMeta`.
            let package = name.rmatch_indices('.').nth(1).map_or(0, |(place, _)| place + 1);
            &name[package..]
        }
    }
}

/// Decodes base64 like Go's decoder, which ignores line breaks and surplus bits.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose =
        GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));
    LENIENT.decode(text.replace(['\r', '\n'], "")).ok()
}

/// Returns whether a text is a number with an optional decimal suffix, binary suffix or exponent, such as `1.5`,
/// `100m`, `2Gi` and `1e3`.
fn is_quantity(text: &str) -> bool {
    fn unsigned(text: &str) -> &str {
        text.strip_prefix(['+', '-']).unwrap_or(text)
    }
    let text = unsigned(text);
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    let is_unit = matches!(
        suffix,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    let exponent = suffix.strip_prefix(['e', 'E']).map(unsigned).unwrap_or_default();
    let is_exponent = !exponent.is_empty() && exponent.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (is_unit || is_exponent)
}

/// Returns whether bytes have the form of a pattern, in which `0` stands for any digit.
fn has_form(bytes: &[u8], pattern: &[u8]) -> bool {
    let matches =
        |(byte, expected): (&u8, &u8)| if *expected == b'0' { byte.is_ascii_digit() } else { byte == expected };
    bytes.len() == pattern.len() && bytes.iter().zip(pattern).all(matches)
}

/// Returns whether a text has the form of RFC 3339 that Go's parser accepts: with up to 59 seconds, and with a comma or
/// a point before the fraction.
fn has_time_form(text: &str) -> bool {
    let Some((time, rest)) = text.as_bytes().split_at_checked("0000-00-00T00:00:00".len()) else { return false };
    let zone = match rest {
        [b'.' | b',', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
        zone => zone,
    };
    let is_zone = zone == b"Z" || has_form(zone, b"+00:00") || has_form(zone, b"-00:00");
    has_form(time, b"0000-00-00T00:00:00") && time[17] <= b'5' && is_zone
}

fn is_time(text: &str) -> bool {
    has_time_form(text) && text.replace(',', ".").parse::<jiff::Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{has_time_form, is_quantity, type_mismatch};

    fn mismatch_of(kind: &str, object: &Value) -> Option<String> {
        type_mismatch("v1", kind, object)
    }

    #[test]
    fn wrong_type_is_reported_with_its_path() {
        let container = |container: Value| json!({"spec": {"containers": [container]}});
        for (pod, message) in [
            (json!({"spec": "x"}), "string into Go struct field Pod.spec of type v1.PodSpec"),
            (
                json!({"spec": {"containers": {}}}),
                "object into Go struct field Pod.spec.containers of type []v1.Container",
            ),
            (container(json!({"name": 7})), "number into Go struct field Pod.spec.containers.name of type string"),
            (
                container(json!({"ports": [{"containerPort": 1.5}]})),
                "number into Go struct field Pod.spec.containers.ports.containerPort of type int32",
            ),
            (
                container(json!({"resources": {"limits": {"cpu": "much"}}})),
                "string into Go struct field Pod.spec.containers.resources.limits of type resource.Quantity",
            ),
            (
                json!({"metadata": {"labels": ["a"]}}),
                "array into Go struct field Pod.metadata.labels of type map[string]string",
            ),
        ] {
            assert_eq!(mismatch_of("Pod", &pod), Some(format!("json: cannot unmarshal {message}")));
        }
    }

    #[test]
    fn real_objects_have_no_type_errors() {
        let pod = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "labels": {"a": null}},
            "spec": {
                "containers": [{
                    "resources": {"limits": {"cpu": "500m", "memory": "1.5Gi", "other": 3, "more": "1e3"}},
                    "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 10},
                    "readinessProbe": {"httpGet": {"port": 80}},
                }],
                "nodeSelector": null, "hostNetwork": false,
            },
            "nobody": {"knows": ["this"]},
        });
        assert_eq!(mismatch_of("Pod", &pod), None);
        assert_eq!(mismatch_of("Secret", &json!({"data": {"a": "c2Vj\ncmV0", "b": "", "c": "YR=="}})), None);
        assert_eq!(mismatch_of("Nonsense", &json!({"spec": "x"})), None);
    }

    #[test]
    fn quantities_have_a_number_and_a_unit() {
        for text in ["1", "+1.5", "-.5", "1.", "100m", "2Gi", "1e3", "1E-3", "1E", "0.1Ei"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["", ".", "1.2.3", "Gi", "1ki", "1e", "1e+", "1 m", "--1", "1e3m", "much"] {
            assert!(!is_quantity(text), "{text}");
        }
    }

    #[test]
    fn times_have_the_form_of_rfc_3339() {
        for text in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00,5Z", "2026-01-01T23:59:59.123456+02:00"] {
            assert!(has_time_form(text), "{text}");
        }
        for text in [
            "2026-01-01",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00+2:00",
        ] {
            assert!(!has_time_form(text), "{text}");
        }
    }

    #[test]
    fn bytes_and_times_are_checked() {
        let message = mismatch_of("Secret", &json!({"data": {"a": "no secret!"}})).unwrap();
        assert!(message.contains("Secret.data of type []uint8") && !message.contains("no secret"), "{message}");
        let lease = |time: &str| {
            type_mismatch("coordination.k8s.io/v1", "Lease", &json!({"spec": {"renewTime": time}})).is_some()
        };
        assert!(lease("yesterday") && lease("2026-01-01T00:00:00Z") && lease("2026-13-01T00:00:00.000000Z"));
        assert!(!lease("2026-01-01T00:00:00.000000Z"));
    }
}
