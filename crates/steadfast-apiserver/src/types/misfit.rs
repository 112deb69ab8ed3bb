//! Whether the values of an object are of its fields' types, as a real server finds when it reads one.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::Value;

use super::{Field, Holds, Kind, fields, of_kind};

/// `1.5`, `100m`, `2Gi`, `1e3`: a number with a suffix, of powers of 10, of powers of 2 or an exponent.
static QUANTITY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("{text}: {error}"))
}

/// A value that is not of its field's type.
struct Misfit {
    path: String,
    found: &'static str,
    wanted: &'static str,
}

impl Misfit {
    /// The value itself is not told: it may be a secret.
    fn new(found: &Value, wanted: &'static str) -> Self {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Self { path: String::new(), found, wanted }
    }

    fn within(self, field: &str) -> Self {
        Self { path: format!(".{field}{}", self.path), ..self }
    }
}

/// What is wrong with a value of an object of a built-in kind that is not of its field's type; with the first, where
/// there are several. What is `null` is of every type.
pub(crate) fn misfit(api_version: &str, kind: &str, object: &Value) -> Option<String> {
    let fields = of_kind(api_version, kind).and_then(fields)?;
    let Misfit { path, found, wanted } = of_fields(fields, object)?;
    Some(format!("json: cannot unmarshal {found} into Go struct field {kind}{path} of type {wanted}"))
}

fn of_fields(fields: &[Field], object: &Value) -> Option<Misfit> {
    let Value::Object(values) = object else { return Some(Misfit::new(object, "a struct")) };
    values.iter().find_map(|(key, value)| {
        let field = fields.iter().find(|field| field.name == key)?;
        of_field(field.holds, value).map(|misfit| misfit.within(key))
    })
}

fn of_field(holds: Holds, value: &Value) -> Option<Misfit> {
    match (holds, value) {
        (_, Value::Null) => None,
        (Holds::One(kind), value) => of_value(kind, value),
        (Holds::List(kind), Value::Array(items)) => items.iter().find_map(|item| of_value(kind, item)),
        (Holds::List(_), other) => Some(Misfit::new(other, "a list")),
        (Holds::Map(kind), Value::Object(values)) => values.values().find_map(|value| of_value(kind, value)),
        (Holds::MapOfLists(kind), Value::Object(values)) => {
            values.values().find_map(|list| of_field(Holds::List(kind), list))
        }
        (Holds::Map(_) | Holds::MapOfLists(_), other) => Some(Misfit::new(other, "a map")),
    }
}

fn of_value(kind: Kind, value: &Value) -> Option<Misfit> {
    let is_int32 = || value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    let (fits, wanted) = match (kind, value) {
        (_, Value::Null) | (Kind::Any | Kind::Json(_), _) => return None,
        (Kind::Named(name), _) => return of_fields(fields(name)?, value),
        (Kind::Text, _) => (value.is_string(), "string"),
        (Kind::Bool, _) => (value.is_boolean(), "bool"),
        (Kind::Integer32, _) => (is_int32(), "int32"),
        (Kind::Integer64, _) => (value.is_i64(), "int64"),
        (Kind::Double, _) => (value.is_number(), "float64"),
        (Kind::Bytes, Value::String(text)) => (is_base64(text), "base64 data"),
        (Kind::Bytes, _) => (false, "base64 data"),
        (Kind::Time, Value::String(text)) => (is_time(text), "a time of RFC 3339"),
        (Kind::MicroTime, Value::String(text)) => {
            let micros = text.split_once('.').map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
            (micros == Some(6) && is_time(text), "a time of RFC 3339 in microseconds")
        }
        (Kind::Time | Kind::MicroTime, _) => (false, "a time"),
        (Kind::Duration, _) => (value.is_string(), "a length of time"),
        (Kind::Quantity, Value::String(text)) => (QUANTITY.is_match(text.trim()), "a quantity"),
        (Kind::Quantity, _) => (value.is_number(), "a quantity"),
        (Kind::IntOrString, _) => (value.is_string() || is_int32(), "int32"),
    };
    (!fits).then(|| Misfit::new(value, wanted))
}

/// Go's decoder passes over line breaks.
fn is_base64(text: &str) -> bool {
    let text: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
    STANDARD.decode(text).is_ok()
}

fn is_time(text: &str) -> bool {
    TIME.is_match(text) && text.replace(',', ".").parse::<jiff::Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::misfit;

    fn wrong(kind: &str, object: &Value) -> Option<String> {
        misfit("v1", kind, object)
    }

    #[test]
    fn a_value_of_another_type_than_its_field_is_told_by_its_path() {
        let container = |container: Value| json!({"spec": {"containers": [container]}});
        for (pod, told) in [
            (json!({"spec": "x"}), "string into Go struct field Pod.spec of type a struct"),
            (json!({"spec": {"containers": {}}}), "object into Go struct field Pod.spec.containers of type a list"),
            (container(json!({"name": 7})), "number into Go struct field Pod.spec.containers.name of type string"),
            (
                container(json!({"ports": [{"containerPort": 1.5}]})),
                "number into Go struct field Pod.spec.containers.ports.containerPort of type int32",
            ),
            (
                container(json!({"resources": {"limits": {"cpu": "much"}}})),
                "string into Go struct field Pod.spec.containers.resources.limits of type a quantity",
            ),
            (json!({"metadata": {"labels": ["a"]}}), "array into Go struct field Pod.metadata.labels of type a map"),
        ] {
            assert_eq!(wrong("Pod", &pod), Some(format!("json: cannot unmarshal {told}")));
        }
    }

    #[test]
    fn what_real_objects_have_fits() {
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
        assert_eq!(wrong("Pod", &pod), None);
        assert_eq!(wrong("Secret", &json!({"data": {"a": "c2Vj\ncmV0", "b": ""}})), None);
        assert_eq!(wrong("Nonsense", &json!({"spec": "x"})), None);
    }

    #[test]
    fn bytes_and_times_are_looked_at_too() {
        let told = wrong("Secret", &json!({"data": {"a": "no secret!"}})).unwrap();
        assert!(told.contains("Secret.data of type base64 data") && !told.contains("no secret"), "{told}");
        let lease =
            |time: &str| misfit("coordination.k8s.io/v1", "Lease", &json!({"spec": {"renewTime": time}})).is_some();
        assert!(lease("yesterday") && lease("2026-01-01T00:00:00Z") && lease("2026-13-01T00:00:00.000000Z"));
        assert!(!lease("2026-01-01T00:00:00.000000Z"));
    }
}
