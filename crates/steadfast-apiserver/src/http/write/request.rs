//! A write request: its target, its object, and its client.

use bytes::Bytes;
use serde_json::Value;

use super::duplicates;
use crate::http::options::Query;
use crate::http::payload;
use crate::http::target::Target;
use crate::status::Status;
use crate::storage::{FieldValidation, RequestProperties, RuleResults, Warnings, WriteTarget};
use crate::write_scope::{FieldManager, WriteScope};

/// Maximum length of a field manager's name in bytes.
const MAX_MANAGER_BYTES: usize = 128;

/// Content type of an apply.
const APPLY_CONTENT_TYPE: &str = "application/apply-patch+yaml";

/// Target, content type and body of a write.
pub(in crate::http) struct WriteRequest<'a> {
    pub(in crate::http) target: &'a Target,
    pub(in crate::http) name: &'a str,
    pub(in crate::http) write_scope: WriteScope,
    pub(in crate::http) query: &'a Query,
    pub(in crate::http) content_type: &'a str,
    /// User agent of the client.
    pub(in crate::http) user_agent: &'a str,
    pub(in crate::http) body: Bytes,
}

impl WriteRequest<'_> {
    /// Returns the target. `options` is the kind of the options, if they are in the query.
    pub(in crate::http) fn write_target(&self, options: Option<&str>) -> Result<WriteTarget, Status> {
        let field_validation =
            options.map_or(Ok(FieldValidation::Ignore), |options| self.query.field_validation(options))?;
        Ok(WriteTarget {
            resource: self.target.resource.clone(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.name.to_owned(),
            write_scope: self.write_scope,
            is_dry_run: options.map_or(Ok(false), |options| self.query.dry_run(options))?,
            request: RequestProperties {
                version: self.target.version.clone(),
                field_validation,
                body_violations: if field_validation == FieldValidation::Ignore {
                    Vec::new()
                } else {
                    self.body_violations()
                },
                warnings: Warnings::default(),
                rule_results: RuleResults::default(),
                manager: options.map(|options| self.manager(options)).transpose()?,
            },
        })
    }

    /// Returns violations in the body's text that the decoded object does not show.
    fn body_violations(&self) -> Vec<String> {
        match self.content_type {
            "" | "application/json" | "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                duplicates::duplicates(&self.body)
            }
            "application/json-patch+json" => duplicates::patch_violations(&self.body),
            APPLY_CONTENT_TYPE => duplicates::applied_duplicates(&self.body),
            _ => Vec::new(),
        }
    }

    /// Returns the field manager of the request. Defaults to the name in the user agent.
    fn manager(&self, options: &str) -> Result<FieldManager, Status> {
        let name = self.query.text("fieldManager");
        let is_apply = self.is_apply();
        let reject = |field: &str, detail: String| Err(Status::invalid("meta.k8s.io", options, "", &[(field, detail)]));
        if options == "PatchOptions" && is_apply && name.is_empty() {
            return reject("fieldManager", "Required value: is required for apply patch".to_owned());
        }
        if options == "PatchOptions" && !is_apply && self.query.flag("force").is_some() {
            return reject("force", "Forbidden: may not be specified for non-apply patch".to_owned());
        }
        if name.len() > MAX_MANAGER_BYTES {
            return reject("fieldManager", format!("Too long: may not be more than {MAX_MANAGER_BYTES} bytes"));
        }
        if let Some(character) = name.chars().find(|character| character.is_control()) {
            let detail =
                format!("Invalid value: {name:?}: should only contain printable characters, found {character:?}");
            return reject("fieldManager", detail);
        }
        // Without a given manager, the real server uses the client's name up to the first `/`.
        let name = if name.is_empty() { client_name(self.user_agent) } else { name.to_owned() };
        let force = self.query.flag("force") == Some(true);
        Ok(FieldManager { name, subresource: "", force })
    }

    /// Returns whether the write is an apply.
    pub(super) fn is_apply(&self) -> bool {
        self.content_type == APPLY_CONTENT_TYPE
    }

    /// Returns the object in the body.
    pub(in crate::http) fn object(&self) -> Result<Value, Status> {
        payload::decode_object(self.content_type, &self.body, &self.target.resource.kind)
    }
}

/// Returns the part of a user agent before the first slash.
fn client_name(user_agent: &str) -> String {
    let characters =
        user_agent.split('/').next().unwrap_or_default().chars().filter(|character| !character.is_control());
    let mut name = String::new();
    for character in characters {
        if name.len() + character.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        name.push(character);
    }
    name
}
