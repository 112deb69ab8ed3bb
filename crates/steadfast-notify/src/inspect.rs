//! Inspection of local dependencies of a configuration: programs, secrets and certificates.
//!
//! Opens no connections and starts no programs.

mod certificate;
mod program;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use crate::config::secret::SecretFrom;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::secret::Secret;
use certificate::CertificateStatus;

/// Findings of an inspection, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct InspectionFindings {
    /// Errors: the configuration cannot work.
    pub problems: Vec<Problem>,
    /// Warnings: certificates that expire soon, and constant keys, which suit only a single object.
    pub warnings: Vec<Problem>,
}

const RENEWAL_REMEDY: &str = "renew the certificate, or configure another file";

impl Plan {
    /// Inspects the programs, secrets and certificates of all sinks.
    pub fn inspect(&self) -> InspectionFindings {
        let mut findings = InspectionFindings::default();
        self.inspect_programs(&mut findings);
        self.inspect_keys(&mut findings);
        for name in self.sinks.keys() {
            let Some(config_value) = self.document().value_at(&["sinks", name]) else { continue };
            self.inspect_part(name, config_value, &mut findings);
        }
        findings.problems.sort_by_key(|problem| problem.position);
        findings.warnings.sort_by_key(|problem| problem.position);
        findings
    }

    fn inspect_programs(&self, findings: &mut InspectionFindings) {
        for (name, sink) in &self.sinks {
            let exec = sink.exec.as_ref().map(|exec| {
                // The child process searches the `PATH` of the configured environment.
                let path = exec.env.get("PATH").map(Into::into);
                ("exec", &exec.command, self.folder.clone(), path)
            });
            let nftables = sink.nftables.as_ref().map(|nftables| ("nftables", &nftables.command, PathBuf::new(), None));
            for (kind, command, folder, path) in exec.into_iter().chain(nftables) {
                let Some(program) = command.first() else { continue };
                if let Err(reason) = program::check_program(program, &folder, path.or_else(|| std::env::var_os("PATH")))
                {
                    let path = format!("{name}.{kind}.command");
                    let remedy = "install the program, or correct the name";
                    findings.problems.push(self.problem_with_sink(&path, reason, remedy));
                }
            }
        }
    }

    /// Detects constant keys of entries, which all objects of a rule would share.
    fn inspect_keys(&self, findings: &mut InspectionFindings) {
        for rule in self.rules.iter().filter(|rule| self.mirrors_of(&rule.config).next().is_some()) {
            let (Some(send), Some(text)) = (&rule.send, &rule.config.send) else { continue };
            let selects_one_object =
                |fields: &String| fields.split(',').any(|field| field.trim().starts_with("metadata.name="));
            let has_one_object = rule.config.fields.as_ref().is_some_and(selects_one_object);
            // A fixed key is correct for a rule that selects exactly one object.
            if has_one_object && rule.config.namespaces.len() == 1 && self.clusters_of(&rule.config).len() == 1 {
                continue;
            }
            for constant in send.uses.maps.iter().flatten().filter(|constant| constant.field == "key") {
                let path = format!("rules[{}].send", rule.number);
                let description = format!(
                    "{path}: all objects of the rule share the key {}: only one object gets an entry",
                    constant.value
                );
                let offset = text.get(..constant.offset).map_or(0, |before| before.chars().count());
                let remedy = "remove `key`, build the key from `object.metadata`, or select one object by `fields` and `namespaces`";
                let problem = self.document().problem_within(&path, text, offset, description, remedy);
                if !findings.warnings.contains(&problem) {
                    findings.warnings.push(problem);
                }
            }
        }
    }

    /// Inspects the verbatim value of a sink, recursively: secrets and certificates can be anywhere.
    fn inspect_part(&self, path: &str, config_value: &Value, findings: &mut InspectionFindings) {
        if let Some(from) = secret_reference(config_value) {
            if let Err(reason) = Secret::read(&from, &self.folder) {
                let remedy = "store the secret there, or correct the reference";
                findings.problems.push(self.problem_with_sink(path, reason, remedy));
            }
            return;
        }
        if let Some(items) = config_value.as_array() {
            for (number, item) in items.iter().enumerate() {
                self.inspect_part(&format!("{path}[{number}]"), item, findings);
            }
        }
        let Some(fields) = config_value.as_object() else { return };
        for (field, value) in fields {
            self.inspect_part(&format!("{path}.{field}"), value, findings);
        }
        let file = |field: &str| fields.get(field).and_then(Value::as_str).map(|file| self.folder.join(file));
        let now = Timestamp::now();
        if let Some(file) = file("ca_file") {
            self.report_status(&format!("{path}.ca_file"), certificate::authorities(&file, now), findings);
        }
        if let Some(file) = file("certificate_file") {
            self.report_status(
                &format!("{path}.certificate_file"),
                certificate::client_certificate(&file, now),
                findings,
            );
        }
        if let (Some(certificate), Some(key)) = (file("certificate_file"), file("key_file"))
            && let Err(description) = certificate::check_key(&certificate, &key)
        {
            let remedy = "configure the key of the certificate";
            findings.problems.push(self.problem_with_sink(&format!("{path}.key_file"), description, remedy));
        }
    }

    fn report_status(&self, path: &str, status: CertificateStatus, findings: &mut InspectionFindings) {
        let (problem_list, description) = match status {
            CertificateStatus::Valid => return,
            CertificateStatus::ExpiresSoon(description) => (&mut findings.warnings, description),
            CertificateStatus::Unusable(description) => (&mut findings.problems, description),
        };
        problem_list.push(self.problem_with_sink(path, description, RENEWAL_REMEDY));
    }
}

/// Returns the reference if `config_value` is a reference to a secret: an object with only `file` or `env`.
fn secret_reference(config_value: &Value) -> Option<SecretFrom> {
    let fields = config_value.as_object().filter(|fields| fields.len() == 1)?;
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    let file = text("file").map(|file| SecretFrom::File(Path::new(file).to_owned()));
    file.or_else(|| text("env").map(|name| SecretFrom::Env(name.to_owned())))
}

#[cfg(test)]
mod tests;
