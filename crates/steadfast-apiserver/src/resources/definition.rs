//! `CustomResourceDefinition`s: the resource that a definition defines.

use std::sync::Arc;

use serde_json::Value;

use super::{Definition, GroupResource, ServedResource};

/// Returns the name of the resource that a definition defines.
pub(crate) fn defined_name(definition: &Value) -> Option<GroupResource> {
    let text = |place: &str| definition.pointer(place).and_then(Value::as_str);
    Some(GroupResource::new(text("/spec/group")?, text("/spec/names/plural")?))
}

/// Returns the resource that a definition defines; `None` if the definition names none.
pub(super) fn served_by(definition: &Value) -> Option<ServedResource> {
    let spec = definition.get("spec")?;
    let names = spec.get("names")?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let texts = |value: &Value, key: &str| -> Vec<String> {
        let items = value.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let group = text(spec, "group")?;
    let kind = text(names, "kind")?;
    let plural = text(names, "plural")?;
    let definition = Definition::parse(spec);
    let versions: Vec<&Value> = spec.get("versions").and_then(Value::as_array)?.iter().collect();
    let selectable = versions.iter().filter_map(|version| version.get("selectableFields").and_then(Value::as_array));
    let selectable_fields = selectable
        .flatten()
        .filter_map(|field| text(field, "jsonPath"))
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect();
    let served = || definition.versions.iter().filter(|version| version.is_served);
    Some(ServedResource {
        name: GroupResource::new(&group, &plural),
        versions: served().map(|version| version.name.clone()).collect(),
        list_kind: text(names, "listKind").unwrap_or_else(|| format!("{kind}List")),
        singular: text(names, "singular").unwrap_or_else(|| kind.to_lowercase()),
        short_names: texts(names, "shortNames"),
        categories: texts(names, "categories"),
        namespaced: text(spec, "scope").is_none_or(|scope| scope == "Namespaced"),
        status_subresource: served().any(|version| version.has_status),
        counts_generation: true,
        is_custom: true,
        selectable_fields,
        definition: Some(Arc::new(definition)),
        kind,
    })
}
