//! What a request to write says: what it is aimed at, what it brings, and who sends it.

use bytes::Bytes;
use serde_json::Value;

use super::duplicates;
use crate::http::options::Query;
use crate::http::payload;
use crate::http::target::Target;
use crate::status::Status;
use crate::storage::{Asked, FieldManager, Part, Strictness, Verdicts, Warnings, WriteTarget};

/// The longest name that a manager of fields may have.
const MANAGER_BYTES: usize = 128;

/// The content type of what is applied.
const APPLY: &str = "application/apply-patch+yaml";

/// A write's target, content type and body.
pub(in crate::http) struct Write<'a> {
    pub(in crate::http) target: &'a Target,
    pub(in crate::http) name: &'a str,
    pub(in crate::http) part: Part,
    pub(in crate::http) query: &'a Query,
    pub(in crate::http) content_type: &'a str,
    /// The client's name for itself.
    pub(in crate::http) user_agent: &'a str,
    pub(in crate::http) body: Bytes,
}

impl Write<'_> {
    /// What it is aimed at; `options` is the kind of its options, where they are in the query.
    pub(in crate::http) fn aim(&self, options: Option<&str>) -> Result<WriteTarget, Status> {
        let strictness = options.map_or(Ok(Strictness::Ignore), |options| self.query.strictness(options))?;
        Ok(WriteTarget {
            resource: self.target.resource.clone(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.name.to_owned(),
            part: self.part,
            dry_run: options.map_or(Ok(false), |options| self.query.dry_run(options))?,
            asked: Asked {
                version: self.target.version.clone(),
                strictness,
                flaws: if strictness == Strictness::Ignore { Vec::new() } else { self.flaws() },
                warnings: Warnings::default(),
                verdicts: Verdicts::default(),
                manager: options.map(|options| self.manager(options)).transpose()?,
            },
        })
    }

    /// What is wrong with the text of the body that is not seen in what is read from it.
    fn flaws(&self) -> Vec<String> {
        match self.content_type {
            "" | "application/json" | "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                duplicates::duplicates(&self.body)
            }
            "application/json-patch+json" => duplicates::of_operations(&self.body),
            APPLY => duplicates::of_applied(&self.body),
            _ => Vec::new(),
        }
    }

    /// Who writes: as the request says, or else by the client's name for itself.
    fn manager(&self, options: &str) -> Result<FieldManager, Status> {
        let name = self.query.text("fieldManager");
        let applies = self.applies();
        let refuse = |field: &str, why: String| Err(Status::invalid("meta.k8s.io", options, "", &[(field, why)]));
        if options == "PatchOptions" && applies && name.is_empty() {
            return refuse("fieldManager", "Required value: is required for apply patch".to_owned());
        }
        if options == "PatchOptions" && !applies && self.query.flag("force").is_some() {
            return refuse("force", "Forbidden: may not be specified for non-apply patch".to_owned());
        }
        if name.len() > MANAGER_BYTES {
            return refuse("fieldManager", format!("Too long: may not be more than {MANAGER_BYTES} bytes"));
        }
        if let Some(letter) = name.chars().find(|letter| letter.is_control()) {
            let why = format!("Invalid value: {name:?}: should only contain printable characters, found {letter:?}");
            return refuse("fieldManager", why);
        }
        let name = if name.is_empty() { name_of_client(self.user_agent) } else { name.to_owned() };
        let force = self.query.flag("force") == Some(true);
        Ok(FieldManager { name, subresource: "", force })
    }

    /// Whether it is an apply.
    pub(super) fn applies(&self) -> bool {
        self.content_type == APPLY
    }

    /// The object that it brings.
    pub(in crate::http) fn object(&self) -> Result<Value, Status> {
        payload::object(self.content_type, &self.body, &self.target.resource.kind)
    }
}

/// What comes before the first slash of a user agent.
fn name_of_client(user_agent: &str) -> String {
    let letters = user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control());
    let mut name = String::new();
    for letter in letters {
        if name.len() + letter.len_utf8() > MANAGER_BYTES {
            break;
        }
        name.push(letter);
    }
    name
}
