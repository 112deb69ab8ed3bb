//! Checks of selected fields in bodies of requests and groups of entries.

use std::collections::BTreeSet;

use super::Checks;
use crate::config::sinks::WebhookConfig;
use crate::config::{Config, RuleConfig};
use crate::entry_fields::EntryFields;
use crate::expression::{Expression, Purpose, SelectedField, SelectionStep};
use crate::fields::{nearest, offset};
use crate::message::BODY_FIELDS;

/// Fields of `message.data` of a rule without `send`.
const DATA_FIELDS: [&str; 6] = ["apiVersion", "kind", "namespace", "name", "uid", "resourceVersion"];

impl Checks<'_> {
    /// Checks the fields of messages and secrets in the `body` of the sink `name`.
    pub(super) fn check_body_fields(
        &mut self,
        path: &str,
        name: &str,
        body: &Expression,
        webhook: &WebhookConfig,
        config: &Config,
    ) {
        let Some(text) = &webhook.body else { return };
        let secrets: BTreeSet<String> = webhook.secrets.keys().cloned().collect();
        let message: BTreeSet<String> = BODY_FIELDS.iter().map(|field| (*field).to_owned()).collect();
        let data = data_fields(name, config);
        for selected in &body.uses.selected_fields {
            let (known_fields, step) = match (selected.root.as_str(), selected.steps.as_slice()) {
                ("secrets", _) => (&secrets, 0),
                ("message", [SelectionStep::Field(field), _, ..]) if field == "data" => (&data, 1),
                ("message", _) => (&message, 0),
                ("messages", [SelectionStep::Item, SelectionStep::Field(field), _, ..]) if field == "data" => {
                    (&data, 2)
                }
                ("messages", [SelectionStep::Item, _, ..]) => (&message, 1),
                _ => continue,
            };
            self.check_known_field(path, text, selected, step, known_fields);
        }
    }

    /// Checks the fields of entries in `guard.group` of a mirror.
    pub(super) fn check_group_fields(&mut self, path: &str, text: &str, group: &Expression, known_fields: EntryFields) {
        let known_fields: BTreeSet<String> = known_fields.iter().map(|field| field.name.to_owned()).collect();
        for selected in group.uses.selected_fields.iter().filter(|selected| selected.root == "entry") {
            self.check_known_field(path, text, selected, 0, &known_fields);
        }
    }

    /// Reports the step `step_number` of `selected` if the field is not in `known_fields`. An empty set allows any
    /// field.
    fn check_known_field(
        &mut self,
        path: &str,
        text: &str,
        selected: &SelectedField,
        step_number: usize,
        known_fields: &BTreeSet<String>,
    ) {
        let Some(SelectionStep::Field(field)) = selected.steps.get(step_number) else { return };
        if known_fields.is_empty() && selected.root != "secrets" || known_fields.contains(field) {
            return;
        }
        let parent_path: Vec<&str> = [selected.root.as_str()]
            .into_iter()
            .chain(
                selected.steps[..step_number]
                    .iter()
                    .map(|step| if let SelectionStep::Field(field) = step { field } else { "[]" }),
            )
            .collect();
        let nearest = nearest(field, known_fields.iter());
        let nearest = nearest.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
        let description = format!("{path}: `{}` has no `{field}`{nearest}", parent_path.join(".").replace(".[]", "[]"));
        let names: Vec<&str> = known_fields.iter().map(String::as_str).collect();
        let remedy = match names[..] {
            [] => "add the secret to `secrets` of the webhook".to_owned(),
            _ => format!("known fields are {}", names.join(", ")),
        };
        let problem =
            self.document.problem_within(path, text, offset(text, selected, step_number), description, remedy);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Returns the fields of `message.data` over all rules of the sink `name`. Empty if any rule may send other fields.
fn data_fields(name: &str, config: &Config) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for rule in config.rules.iter().filter(|rule| rule.to.iter().any(|to| to == name)) {
        match sent_fields(rule) {
            Some(sent) => fields.extend(sent),
            None => return BTreeSet::new(),
        }
    }
    fields
}

/// Returns the fields of the map that a rule sends, if the map is a literal.
fn sent_fields(rule: &RuleConfig) -> Option<Vec<String>> {
    match &rule.send {
        None => Some(DATA_FIELDS.iter().map(|field| (*field).to_owned()).collect()),
        Some(send) => Expression::compile(send, Purpose::Value).ok()?.map_fields(),
    }
}
