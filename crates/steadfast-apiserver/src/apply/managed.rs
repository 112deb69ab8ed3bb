//! Managers of fields: `metadata.managedFields`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;

/// Operation by which a manager owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Identity of a manager. A manager that applies is the same in every version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Version of the fields; empty for managers that apply.
    api_version: String,
    subresource: String,
}

impl Manager {
    pub(super) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        // A manager that applies is one manager in all API versions. A manager that updates is a separate manager in
        // each version.
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// Returns the manager's name for conflict messages.
    pub(super) fn description(&self) -> String {
        let subresource = match self.subresource.as_str() {
            "" => String::new(),
            subresource => format!(" with subresource {subresource:?}"),
        };
        let version = match self.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {}", self.api_version),
        };
        format!("{:?}{subresource}{version}", self.name)
    }
}

/// Fields of a manager.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManagedFields {
    pub(super) fields: FieldSet,
    pub(super) api_version: String,
    pub(super) time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub(super) BTreeMap<Manager, ManagedFields>);

impl Managers {
    /// Parses `managedFields`. Returns `None` if an entry is invalid.
    pub(super) fn decode(entries: Option<&Value>) -> Option<Self> {
        let entries = entries.and_then(Value::as_array).into_iter().flatten();
        let mut managers = BTreeMap::new();
        for entry in entries {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let mut identity = Manager::new(text("manager"), operation, text("apiVersion"), text("subresource"));
            // An empty name stays empty here, although `Manager::new` substitutes `unknown`.
            text("manager").clone_into(&mut identity.name);
            let managed = ManagedFields {
                fields: entry.get("fieldsV1").map_or_else(|| Some(FieldSet::default()), FieldSet::decode)?,
                api_version: text("apiVersion").to_owned(),
                time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            };
            // If several entries have an equal identity, only the last entry stays.
            managers.insert(identity, managed);
        }
        Some(Self(managers))
    }

    /// Returns whether the entries request a reset of the managers: a single empty entry or, for built-in kinds, an
    /// empty list. The server drops the empty list of a custom resource.
    pub(super) fn are_reset_by(entries: Option<&Value>, is_custom: bool) -> bool {
        let entries = entries.and_then(Value::as_array);
        entries.is_some_and(|entries| match entries.as_slice() {
            [] => !is_custom,
            [one] => one.as_object().is_some_and(Map::is_empty),
            _ => false,
        })
    }

    /// Encodes `managedFields`: first the managers that apply, then the others by time. Returns `None` if there are no
    /// managers.
    pub(super) fn encode(&self) -> Option<Value> {
        let mut entries: Vec<(&Manager, &ManagedFields)> = self.0.iter().collect();
        // The order is visible to clients and equal to the real server's: operation, time, name, version, subresource.
        entries.sort_by_cached_key(|(manager, managed)| {
            let (name, version) = (manager.name.clone(), managed.api_version.clone());
            (manager.operation, seconds(managed), name, version, manager.subresource.clone())
        });
        let encoded: Vec<Value> =
            entries.into_iter().map(|(identity, managed)| encode_entry(identity, managed)).collect();
        (!encoded.is_empty()).then_some(Value::Array(encoded))
    }

    /// Keeps at most ten managers that update. Merges the oldest managers beyond this limit into one manager per
    /// version.
    pub(super) fn merge_oldest(&mut self) {
        const MAX_UPDATERS: usize = 10;
        let updaters = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        let mut updaters: Vec<(Option<i64>, Manager)> =
            updaters.map(|(manager, managed)| (seconds(managed), manager.clone())).collect();
        let mut count = updaters.len();
        // The oldest updaters merge first, until at most ten remain.
        updaters.sort();
        let mut first_by_version: BTreeMap<String, Manager> = BTreeMap::new();
        for (_, manager) in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            // Fields of different versions cannot be merged, because their paths may differ.
            let Some(version) = self.0.get(&manager).map(|managed| managed.api_version.clone()) else { continue };
            // The first manager of a version is only recorded. The merge starts with the second manager of the version,
            // because the merge of a single manager would save nothing.
            let Some(first) = first_by_version.get(&version) else {
                first_by_version.insert(version, manager);
                continue;
            };
            let ancient = Manager::new("ancient-changes", Operation::Update, &version, "");
            if !self.0.contains_key(&ancient)
                && let Some(oldest) = self.0.remove(first)
            {
                self.0.insert(ancient.clone(), oldest);
            }
            if let (Some(merged), Some(bucket)) = (self.0.remove(&manager), self.0.get_mut(&ancient)) {
                bucket.fields.extend(&merged.fields);
                // The merged entry has the time of its newest manager.
                bucket.time = merged.time;
            }
            count -= 1;
        }
    }
}

fn seconds(managed: &ManagedFields) -> Option<i64> {
    managed.time.as_ref()?.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

fn encode_entry(identity: &Manager, managed: &ManagedFields) -> Value {
    let mut entry = json!({
        "manager": identity.name, "operation": identity.operation.as_str(), "apiVersion": managed.api_version,
        "fieldsType": "FieldsV1", "fieldsV1": managed.fields.encode(),
    });
    if let Some(time) = &managed.time {
        entry["time"] = time.as_str().into();
    }
    if !identity.subresource.is_empty() {
        entry["subresource"] = identity.subresource.as_str().into();
    }
    entry
}
