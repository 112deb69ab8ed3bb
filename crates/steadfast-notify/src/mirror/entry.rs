//! Entries of mirrors, parsed and checked against the fields that the kind of mirror has.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::entry_fields::{EntryFields, FieldKind, KEY, READY, names};

/// One entry of a mirror.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Unique key: the key of the rule, or else the identity of the object.
    pub(crate) key: String,
    /// True if the entry receives traffic.
    pub(crate) is_ready: bool,
    fields: Map<String, Value>,
}

impl Entry {
    /// Returns the entry as a JSON value for expressions.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = self.fields.clone();
        fields.insert(KEY.name.to_owned(), self.key.clone().into());
        fields.insert(READY.name.to_owned(), self.is_ready.into());
        Value::Object(fields)
    }

    /// Returns the text of a field.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    /// Returns the value of a field. Null for an absent field.
    pub(crate) fn value(&self, field: &str) -> Value {
        self.fields.get(field).cloned().unwrap_or_default()
    }

    /// Returns true if the field is present.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Returns the number of a field, or `default` for an absent field.
    pub(crate) fn number(&self, field: &str, default: u16, range: RangeInclusive<u16>) -> Result<u16, String> {
        let Some(value) = self.fields.get(field) else { return Ok(default) };
        let number = value.as_u64().or_else(|| integral(value)).and_then(|number| u16::try_from(number).ok());
        let out_of_range = || format!("`{field}` is not from {} to {}", range.start(), range.end());
        number.filter(|number| range.contains(number)).ok_or_else(out_of_range)
    }

    /// Returns the socket address from `address` and `port`.
    pub(crate) fn address(&self) -> Result<SocketAddr, String> {
        let address: IpAddr = match self.text("address").map(str::parse) {
            Some(Ok(address)) => address,
            _ => return Err("`address` is not an IP address".to_owned()),
        };
        Ok(SocketAddr::new(address, self.number("port", 0, 1..=u16::MAX)?))
    }

    /// Returns the distinguishing suffix of this entry within an object: address and port of a server, type and data of
    /// a record.
    ///
    /// The first character occurs in no Kubernetes name, so that no other object has the same key.
    fn key_suffix(&self) -> String {
        match (self.address(), self.text("type"), self.text("data")) {
            (Ok(SocketAddr::V4(address)), _, _) => format!("_{}_{}", address.ip(), address.port()),
            // Hexadecimal without colons: some targets do not accept colons.
            (Ok(SocketAddr::V6(address)), _, _) => format!("_{:032x}_{}", address.ip().to_bits(), address.port()),
            (Err(_), Some(kind), Some(data)) => format!("_{kind}_{}_{data}", self.text("name").unwrap_or_default()),
            _ => String::new(),
        }
    }

    /// Returns the weight, 1 by default. Zero for an entry that is not ready.
    pub(crate) fn weight(&self) -> Result<u16, String> {
        let weight = self.number("weight", 1, 0..=256)?;
        Ok(if self.is_ready { weight } else { 0 })
    }
}

/// Converts a number without fraction. CEL integers may be floats in JSON: `80.0` is a valid port.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "the range is checked before")]
fn integral(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    (number.fract() == 0.0 && (0.0..=65_535.0).contains(&number)).then_some(number as u64)
}

/// Parses the entries in `value`: a map is one entry, a list contains several entries, and null means no entry. Nested
/// lists are flattened, since entries of an object are often the product of two lists.
///
/// `ready` defaults to the readiness of `object`. `key` defaults to the key of the object (`identity`), with the
/// distinguishing fields appended if the object has several entries.
///
/// # Errors
///
/// Returns an error if an entry does not match `entry_fields`, or two entries without `key` cannot be distinguished.
pub(crate) fn entries(
    value: &Value,
    entry_fields: EntryFields,
    object: &Value,
    identity: &str,
) -> Result<Vec<Entry>, String> {
    let (items, is_list) = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(fields) => (vec![fields], false),
        Value::Array(items) => {
            let mut maps = Vec::with_capacity(items.len());
            flatten(items, &mut maps)?;
            (maps, true)
        }
        _ => return Err("the result is neither a map nor a list of maps".to_owned()),
    };
    let mut entries = Vec::with_capacity(items.len());
    for fields in &items {
        let mut entry = entry(fields, entry_fields, object)?;
        if entry.key.is_empty() {
            identity.clone_into(&mut entry.key);
            if is_list && items.len() > 1 {
                // Several entries of one object need distinct keys that do not depend on their order.
                entry.key.push_str(&entry.key_suffix());
            }
        }
        entries.push(entry);
    }
    let mut keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    keys.sort_unstable();
    // Only generated keys can collide by mistake. Equal explicit keys are resolved as competing entries.
    let duplicate = keys.windows(2).find_map(|pair| (pair[0] == pair[1]).then_some(pair[0]));
    if let Some(duplicate) = duplicate.filter(|key| key.starts_with(identity)) {
        return Err(format!("two entries have the key {duplicate:?}; set a different `key` for each entry"));
    }
    Ok(entries)
}

/// Appends the maps in `items`, in order. The parser bounds the recursion depth.
fn flatten<'a>(items: &'a [Value], maps: &mut Vec<&'a Map<String, Value>>) -> Result<(), String> {
    for item in items {
        match item {
            Value::Object(fields) => maps.push(fields),
            Value::Array(items) => flatten(items, maps)?,
            _ => return Err("an item of the list is not a map".to_owned()),
        }
    }
    Ok(())
}

fn entry(fields: &Map<String, Value>, entry_fields: EntryFields, object: &Value) -> Result<Entry, String> {
    for (name, value) in fields {
        let Some(field) = entry_fields.iter().find(|field| field.name == name) else {
            let name = name.escape_debug();
            return Err(format!("unknown field `{name}` of an entry; known fields are {}", names(entry_fields)));
        };
        let (has_type, type_name) = match field.kind {
            FieldKind::Text => (value.is_string(), "text"),
            FieldKind::Number => (value.is_number(), "a number"),
            FieldKind::Bool => (value.is_boolean(), "true or false"),
            FieldKind::Any => (true, "anything"),
        };
        if !has_type {
            return Err(format!("`{name}` of an entry is not {type_name}"));
        }
    }
    if let Some(missing) = entry_fields.iter().find(|field| field.is_required && !fields.contains_key(field.name)) {
        return Err(format!("an entry has no `{}`", missing.name));
    }
    let key = fields.get(KEY.name).and_then(Value::as_str).unwrap_or_default().to_owned();
    if key.is_empty() && fields.contains_key(KEY.name) {
        return Err("`key` of an entry is empty".to_owned());
    }
    let is_ready = fields.get(READY.name).and_then(Value::as_bool).unwrap_or_else(|| is_ready(object));
    // `ready` is stored in `is_ready` only, so that equal entries compare equal.
    let fields = fields.iter().filter(|(name, _)| *name != READY.name);
    let fields = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(Entry { key, is_ready, fields })
}

/// Returns true for a pod that has terminated. Another pod may have the address already.
pub(crate) fn has_ended(object: &Value) -> bool {
    // A finished Pod keeps its last conditions, but receives no traffic.
    object["kind"] == "Pod" && matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns the default readiness: not being deleted, and the condition `Ready` is true or absent.
fn is_ready(object: &Value) -> bool {
    // A terminating object is drained, even if it still reports readiness.
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return false;
    }
    // Objects without the condition, such as Services, count as ready.
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .filter(|condition| condition["type"] == "Ready")
        .all(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entry_fields::SERVER;

    fn read(value: &Value, object: &Value) -> Result<Vec<Entry>, String> {
        entries(value, SERVER, object, "default.shop.web-0")
    }

    #[test]
    fn map_list_and_null_are_accepted() {
        let first = json!({"key": "a", "address": "10.0.0.1", "port": 80});
        let second = json!({"key": "b", "address": "10.0.0.2", "port": 80, "ready": false});
        let keys = |value| {
            let entries = read(&value, &Value::Null).expect("valid entries");
            entries.into_iter().map(|entry| (entry.key, entry.is_ready)).collect::<Vec<_>>()
        };
        assert_eq!(keys(first.clone()), [("a".to_owned(), true)]);
        assert_eq!(keys(json!([first, second])), [("a".to_owned(), true), ("b".to_owned(), false)]);
        assert_eq!(keys(json!([[first], [], [[second]]])), [("a".to_owned(), true), ("b".to_owned(), false)]);
        assert_eq!(keys(Value::Null), []);
    }

    #[test]
    fn errors_contain_no_values() {
        for (value, reason) in [
            (json!("hunter2"), "neither a map nor a list"),
            (json!(["hunter2"]), "not a map"),
            (json!({"key": "hunter2"}), "no `address`"),
            (json!({"key": "", "address": "hunter2", "port": 1}), "`key` of an entry is empty"),
            (json!({"key": 1, "address": "hunter2", "port": 1}), "`key` of an entry is not text"),
            (
                json!({"key": "a", "adress": "hunter2", "port": 1}),
                "unknown field `adress` of an entry; known fields are key, address, port",
            ),
            (json!({"key": "a", "line\nbreak": "hunter2"}), "unknown field `line\\nbreak` of an entry"),
            (json!({"key": "a", "address": "hunter2", "port": "80"}), "`port` of an entry is not a number"),
        ] {
            let reported = read(&value, &Value::Null).expect_err("invalid entries");
            assert!(reported.contains(reason) && !reported.contains("hunter2"), "{value}: {reported}");
        }
    }

    #[test]
    fn address_and_weight_are_checked() {
        let entry = |address: &str, port: Value, weight: Value| {
            let value = json!({"key": "a", "address": address, "port": port, "weight": weight});
            read(&value, &Value::Null).expect("a valid entry").remove(0)
        };
        let valid = entry("2001:db8::1", json!(80.0), json!(7));
        assert_eq!(valid.address(), Ok("[2001:db8::1]:80".parse().expect("an address")));
        assert_eq!(valid.weight(), Ok(7));
        assert_eq!(Entry { is_ready: false, ..valid }.weight(), Ok(0));
        for (address, port, weight) in [("web", 80.0, 1), ("10.0.0.1", 0.0, 1), ("10.0.0.1", 65536.0, 1)] {
            assert!(entry(address, json!(port), json!(weight)).address().is_err(), "{address} {port}");
        }
        assert!(entry("10.0.0.1", json!(80.5), json!(1)).address().is_err());
        assert!(entry("10.0.0.1", json!(80), json!(257)).weight().is_err());
        assert!(entry("10.0.0.1", json!(80), json!(-1)).weight().is_err());
    }

    #[test]
    fn readiness_defaults_to_object_conditions() {
        let value = json!({"key": "a", "address": "10.0.0.1", "port": 80});
        let is_ready = |value: &Value, object: Value| read(value, &object).expect("a valid entry")[0].is_ready;
        let ready = |is| json!({"status": {"conditions": [{"type": "Ready", "status": is}]}});
        assert!(is_ready(&value, json!({})) && is_ready(&value, ready("True")));
        assert!(!is_ready(&value, ready("False")) && !is_ready(&value, ready("Unknown")));
        let mut deleting = ready("True");
        deleting["metadata"] = json!({"deletionTimestamp": "2026-01-02T03:04:05Z"});
        assert!(!is_ready(&value, deleting.clone()));
        let explicit = json!({"key": "a", "address": "10.0.0.1", "port": 80, "ready": true});
        assert!(is_ready(&explicit, deleting));
    }
}
