//! Containers of a pod or of a pod template: images, variables, resources.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, list, text, transition};
use crate::changes::value_text::{images, short};

/// Lists of containers, with the noun for each.
const CONTAINER_LISTS: [(&str, &str); 3] =
    [("containers", "container"), ("initContainers", "init container"), ("ephemeralContainers", "ephemeral container")];

/// Describes the containers of the pod's specification at `specification`, such as `spec/template/spec`.
pub(super) fn describe(description: &mut DescriptionBuilder<'_>, specification: &str) {
    for (list_name, noun) in CONTAINER_LISTS {
        let pattern = format!("{specification}/{list_name}");
        let (old, new) = (list(description.old, &pattern), list(description.new, &pattern));
        if old == new {
            continue;
        }
        let names = |list: &[Value]| -> BTreeSet<String> {
            list.iter().map(|container| text(container, "name").to_owned()).collect()
        };
        let (old_names, new_names) = (names(old), names(new));
        description.add_set_change(noun, &old_names, &new_names);
        for name in old_names.symmetric_difference(&new_names) {
            description.mark_element_described(&pattern, "name", name);
        }
        for container in new {
            let name = text(container, "name");
            if let Some(before) = old.iter().find(|before| text(before, "name") == name) {
                describe_container(description, name, before, container);
            }
        }
        for field in ["image", "env/[]/value", "resources"] {
            description.consume_changed(&format!("{pattern}/[]/{field}"));
        }
    }
    if description.consume_changed(&format!("{specification}/nodeSelector")) {
        let pattern = format!("{specification}/nodeSelector");
        let (old, new) = (short(at(description.old, &pattern)), short(at(description.new, &pattern)));
        description.add(HealthEffect::Neutral, transition("node selector", &old, &new));
    }
}

fn describe_container(description: &mut DescriptionBuilder<'_>, name: &str, old: &Value, new: &Value) {
    let (old_image, new_image) = (text(old, "image"), text(new, "image"));
    if old_image != new_image {
        let (old_image, new_image) = images(old_image, new_image);
        description.add(HealthEffect::Neutral, transition(&format!("image {name}"), &old_image, &new_image));
    }
    let (old_env, new_env) = (list(old, "env"), list(new, "env"));
    for variable in new_env {
        let variable_name = text(variable, "name");
        let Some(before) = old_env.iter().find(|before| text(before, "name") == variable_name) else { continue };
        let (old, new) = (before.get("value"), variable.get("value"));
        if old != new {
            description.add(
                HealthEffect::Neutral,
                transition(&format!("env {name} {variable_name}"), &short(old), &short(new)),
            );
        }
    }
    for kind in ["requests", "limits"] {
        let resources = |container| at(container, &format!("resources/{kind}")).and_then(Value::as_object);
        let (old, new) = (resources(old), resources(new));
        let names: BTreeSet<&String> = [old, new].into_iter().flatten().flat_map(|fields| fields.keys()).collect();
        for resource in names {
            let value = |fields: Option<&Map<String, Value>>| fields.and_then(|fields| fields.get(resource)).cloned();
            let (old, new) = (value(old), value(new));
            if old != new {
                let label = format!("{name} {} {resource}", kind.trim_end_matches('s'));
                description.add(HealthEffect::Neutral, transition(&label, &short(old.as_ref()), &short(new.as_ref())));
            }
        }
    }
}
