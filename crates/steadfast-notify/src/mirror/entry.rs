//! What a rule sends to a mirror: entries, read and held against the shape that its kind has.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::shape::{FieldKind, KEY, READY, Shape, names};

/// One entry, as a rule sends it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The key, as the rule gives it, or else the identity of its object: unique in the mirror.
    pub(crate) key: String,
    /// Whether it is in traffic.
    pub(crate) is_ready: bool,
    fields: Map<String, Value>,
}

impl Entry {
    /// Returns the entry as expressions see it.
    pub(super) fn json(&self) -> Value {
        let mut fields = self.fields.clone();
        fields.insert(KEY.name.to_owned(), self.key.clone().into());
        fields.insert(READY.name.to_owned(), self.is_ready.into());
        Value::Object(fields)
    }

    /// The text in a field, if there is one.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    /// What is in a field; nothing where nothing is.
    pub(crate) fn value(&self, field: &str) -> Value {
        self.fields.get(field).cloned().unwrap_or_default()
    }

    /// Whether it says anything in a field.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// The number in a field, or `unless` there is one.
    pub(crate) fn number(&self, field: &str, unless: u16, within: RangeInclusive<u16>) -> Result<u16, String> {
        let Some(value) = self.fields.get(field) else { return Ok(unless) };
        let number = value.as_u64().or_else(|| whole(value)).and_then(|number| u16::try_from(number).ok());
        let wrong = || format!("`{field}` is not from {} to {}", within.start(), within.end());
        number.filter(|number| within.contains(number)).ok_or_else(wrong)
    }

    /// Where it is: its `address` and its `port`.
    pub(crate) fn address(&self) -> Result<SocketAddr, String> {
        let address: IpAddr = match self.text("address").map(str::parse) {
            Some(Ok(address)) => address,
            _ => return Err("`address` is no IP address".to_owned()),
        };
        Ok(SocketAddr::new(address, self.number("port", 0, 1..=u16::MAX)?))
    }

    /// Returns what tells this entry from others of its object: address and port of a server, type and data of a record.
    ///
    /// The first character occurs in no name of Kubernetes, so that no other object has the same key.
    fn suffix(&self) -> String {
        match (self.address(), self.text("type"), self.text("data")) {
            (Ok(SocketAddr::V4(address)), _, _) => format!("_{}_{}", address.ip(), address.port()),
            // Written out, since not every target takes a colon.
            (Ok(SocketAddr::V6(address)), _, _) => format!("_{:032x}_{}", address.ip().to_bits(), address.port()),
            (Err(_), Some(kind), Some(data)) => format!("_{kind}_{}_{data}", self.text("name").unwrap_or_default()),
            _ => String::new(),
        }
    }

    /// How much of what comes it is given: its `weight`, 1 unless it says so, and nothing while it is not ready.
    pub(crate) fn weight(&self) -> Result<u16, String> {
        let weight = self.number("weight", 1, 0..=256)?;
        Ok(if self.is_ready { weight } else { 0 })
    }
}

/// CEL has numbers with and without a point, and JSON does not tell whether they were meant so.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "it is looked at before")]
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    (number.fract() == 0.0 && (0.0..=65_535.0).contains(&number)).then_some(number as u64)
}

/// Reads the entries in `value`: a map is one entry, a list several, and null none. Lists in lists are flattened: the entries of an
/// object are often the product of two of its lists.
///
/// An entry without `ready` is ready if its `object` is. An entry without `key` gets the key of its object (`identity`); if the
/// object gives several entries, their fields are appended.
///
/// # Errors
///
/// If an entry does not have the shape, or two entries without a key cannot be told apart.
pub(crate) fn entries(value: &Value, shape: Shape, object: &Value, identity: &str) -> Result<Vec<Entry>, String> {
    let (items, is_list) = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(fields) => (vec![fields], false),
        Value::Array(items) => {
            let mut maps = Vec::with_capacity(items.len());
            flatten(items, &mut maps)?;
            (maps, true)
        }
        _ => return Err("it is neither a map nor a list of maps".to_owned()),
    };
    let mut entries = Vec::with_capacity(items.len());
    for fields in &items {
        let mut entry = entry(fields, shape, object)?;
        if entry.key.is_empty() {
            identity.clone_into(&mut entry.key);
            if is_list && items.len() > 1 {
                entry.key.push_str(&entry.suffix());
            }
        }
        entries.push(entry);
    }
    let mut keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).find_map(|pair| (pair[0] == pair[1]).then_some(pair[0]));
    if let Some(twice) = twice.filter(|key| key.starts_with(identity)) {
        return Err(format!("two of its entries have the key {twice:?}: give each a `key` of its own"));
    }
    Ok(entries)
}

/// Appends the maps in `items`, in order. Parsers limit the depth of values.
fn flatten<'a>(items: &'a [Value], maps: &mut Vec<&'a Map<String, Value>>) -> Result<(), String> {
    for item in items {
        match item {
            Value::Object(fields) => maps.push(fields),
            Value::Array(items) => flatten(items, maps)?,
            _ => return Err("an item of its list is no map".to_owned()),
        }
    }
    Ok(())
}

fn entry(fields: &Map<String, Value>, shape: Shape, object: &Value) -> Result<Entry, String> {
    for (name, value) in fields {
        let Some(field) = shape.iter().find(|field| field.name == name) else {
            return Err(format!("an entry has `{name}`, and may have {}", names(shape)));
        };
        let (fits, told) = match field.kind {
            FieldKind::Text => (value.is_string(), "a text"),
            FieldKind::Number => (value.is_number(), "a number"),
            FieldKind::Bool => (value.is_boolean(), "true or false"),
            FieldKind::Any => (true, "anything"),
        };
        if !fits {
            return Err(format!("`{name}` of an entry is not {told}"));
        }
    }
    if let Some(missing) = shape.iter().find(|field| field.is_needed && !fields.contains_key(field.name)) {
        return Err(format!("an entry has no `{}`", missing.name));
    }
    let key = fields.get(KEY.name).and_then(Value::as_str).unwrap_or_default().to_owned();
    if key.is_empty() && fields.contains_key(KEY.name) {
        return Err("`key` of an entry is empty".to_owned());
    }
    let is_ready = fields.get(READY.name).and_then(Value::as_bool).unwrap_or_else(|| is_ready(object));
    // It says no more than is said by now, and what is the same otherwise is the same.
    let fields = fields.iter().filter(|(name, _)| *name != READY.name);
    let fields = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(Entry { key, is_ready, fields })
}

/// Whether an object has ended for good: it is a pod that does not run any more, and its address may be another pod's by now.
pub(crate) fn has_ended(object: &Value) -> bool {
    object["kind"] == "Pod" && matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether an object is ready if the rule does not specify it: it is not being deleted, and its condition `Ready`, if there is one, is true.
fn is_ready(object: &Value) -> bool {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return false;
    }
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
    use crate::shape::SERVER;

    fn read(value: &Value, object: &Value) -> Result<Vec<Entry>, String> {
        entries(value, SERVER, object, "default.shop.web-0")
    }

    #[test]
    fn a_map_is_one_entry_a_list_several_and_null_none() {
        let one = json!({"key": "a", "address": "10.0.0.1", "port": 80});
        let other = json!({"key": "b", "address": "10.0.0.2", "port": 80, "ready": false});
        let keys = |value| {
            let entries = read(&value, &Value::Null).expect("it is what it has to be");
            entries.into_iter().map(|entry| (entry.key, entry.is_ready)).collect::<Vec<_>>()
        };
        assert_eq!(keys(one.clone()), [("a".to_owned(), true)]);
        assert_eq!(keys(json!([one, other])), [("a".to_owned(), true), ("b".to_owned(), false)]);
        assert_eq!(keys(json!([[one], [], [[other]]])), [("a".to_owned(), true), ("b".to_owned(), false)]);
        assert_eq!(keys(Value::Null), []);
    }

    #[test]
    fn what_is_no_entry_is_told_without_any_of_its_values() {
        for (value, why) in [
            (json!("hunter2"), "neither a map nor a list"),
            (json!(["hunter2"]), "no map"),
            (json!({"key": "hunter2"}), "no `address`"),
            (json!({"key": "", "address": "hunter2", "port": 1}), "`key` of an entry is empty"),
            (json!({"key": 1, "address": "hunter2", "port": 1}), "`key` of an entry is not a text"),
            (json!({"key": "a", "adress": "hunter2", "port": 1}), "has `adress`, and may have key, address, port"),
            (json!({"key": "a", "address": "hunter2", "port": "80"}), "`port` of an entry is not a number"),
        ] {
            let told = read(&value, &Value::Null).expect_err("it is none");
            assert!(told.contains(why) && !told.contains("hunter2"), "{value}: {told}");
        }
    }

    #[test]
    fn a_place_is_an_address_with_a_port_and_a_weight_is_nothing_while_it_is_not_ready() {
        let entry = |address: &str, port: Value, weight: Value| {
            let value = json!({"key": "a", "address": address, "port": port, "weight": weight});
            read(&value, &Value::Null).expect("it is what it has to be").remove(0)
        };
        let good = entry("2001:db8::1", json!(80.0), json!(7));
        assert_eq!(good.address(), Ok("[2001:db8::1]:80".parse().expect("an address")));
        assert_eq!(good.weight(), Ok(7));
        assert_eq!(Entry { is_ready: false, ..good }.weight(), Ok(0));
        for (address, port, weight) in [("web", 80.0, 1), ("10.0.0.1", 0.0, 1), ("10.0.0.1", 65536.0, 1)] {
            assert!(entry(address, json!(port), json!(weight)).address().is_err(), "{address} {port}");
        }
        assert!(entry("10.0.0.1", json!(80.5), json!(1)).address().is_err());
        assert!(entry("10.0.0.1", json!(80), json!(257)).weight().is_err());
        assert!(entry("10.0.0.1", json!(80), json!(-1)).weight().is_err());
    }

    #[test]
    fn what_is_being_deleted_or_says_that_it_is_not_ready_is_not_unless_the_entry_says_so() {
        let value = json!({"key": "a", "address": "10.0.0.1", "port": 80});
        let is_ready = |value: &Value, object: Value| read(value, &object).expect("it is one")[0].is_ready;
        let ready = |is| json!({"status": {"conditions": [{"type": "Ready", "status": is}]}});
        assert!(is_ready(&value, json!({})) && is_ready(&value, ready("True")));
        assert!(!is_ready(&value, ready("False")) && !is_ready(&value, ready("Unknown")));
        let mut going = ready("True");
        going["metadata"] = json!({"deletionTimestamp": "2026-01-02T03:04:05Z"});
        assert!(!is_ready(&value, going.clone()));
        let said = json!({"key": "a", "address": "10.0.0.1", "port": 80, "ready": true});
        assert!(is_ready(&said, going));
    }
}
