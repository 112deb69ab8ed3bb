//! Checks of a parsed configuration across its parts.

mod bodies;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config::secret::UrlFrom;
use crate::config::sinks::{MIRROR_KINDS, STREAM_KINDS, SinkConfig, WebhookConfig};
use crate::config::{Config, ConfigDuration, DEFAULT_CLUSTER, EventKind, ReplicasConfig, RuleConfig};
use crate::document::{Document, Incomplete};
use crate::endpoints::EndpointSource;
use crate::expression::{Expression, ExpressionError, Purpose};
use crate::mirror::constants::rejected_constants;
use crate::mirror::drivers;
use crate::mirror::grouping::GROUP_NAMES;
use crate::problem::Problem;
use crate::rule::CompiledRule;
use crate::template::{TemplatePart, is_placeholder_name, parts};

/// Minimum audit interval. Each audit lists the versions of all objects.
const MIN_AUDIT_INTERVAL: Duration = Duration::from_secs(1);

/// Checks of a configuration, and the detected problems.
pub(super) struct Checks<'a> {
    document: &'a Document,
    pub(super) problems: Vec<Problem>,
    incomplete: Incomplete,
}

impl<'a> Checks<'a> {
    pub(super) fn new(document: &'a Document, incomplete: Incomplete) -> Self {
        Self { document, problems: Vec::new(), incomplete }
    }

    fn report(&mut self, path: &str, description: impl Into<String>, remedy: impl Into<String>) {
        // The parser has already reported the mistake in a part that it replaced. Further errors in this part would
        // only be consequences of the mistake.
        if !self.incomplete.covers(path) {
            self.problems.push(self.document.problem(path, description, remedy));
        }
    }

    /// Checks everything except expressions.
    pub(super) fn check(&mut self, config: &Config) {
        for (name, cluster) in &config.clusters {
            self.check_name(&format!("clusters.{name}"), name);
            if cluster.audit_interval() < MIN_AUDIT_INTERVAL {
                let remedy = "set at least `1s`: each audit lists the versions of all objects";
                self.report(&format!("clusters.{name}.audit"), "the audit interval is too short", remedy);
            }
        }
        for (name, _) in config.clusters.iter().filter(|(_, cluster)| cluster.memory_limit == Some(0)) {
            self.report(
                &format!("clusters.{name}.memory_limit"),
                "the memory limit is 0 bytes",
                "set at least one byte",
            );
        }
        for (name, sink) in &config.sinks {
            self.check_name(&format!("sinks.{name}"), name);
            self.check_sink(&format!("sinks.{name}"), sink);
            if let Some(webhook) = &sink.webhook {
                self.check_webhook(name, webhook, config);
            }
        }
        if config.sinks.is_empty() {
            self.report("sinks", "no sink is configured", "add a sink, such as `[sinks.log.stdout]`");
        }
        if config.rules.is_empty() {
            self.report("rules", "no rule is configured", "add a rule, `[[rules]]`");
        }
        let mut names = BTreeSet::new();
        for (number, rule) in config.rules.iter().enumerate() {
            let path = format!("rules[{number}]");
            self.check_name(&format!("{path}.name"), &rule.name);
            if !names.insert(&rule.name) {
                let description = format!("an earlier rule has the name {:?}", rule.name);
                self.report(
                    &format!("{path}.name"),
                    description,
                    "use a unique name: the state folder identifies sent messages by the name",
                );
            }
            self.check_rule(&path, rule, config);
        }
        self.check_mirrors(config);
        if let Some(replicas) = &config.replicas {
            self.check_replicas(replicas, config);
        }
        if config.dead_letters.max_letters == 0 {
            self.report("dead_letters.max_letters", "the limit is 0", "set at least 1");
        }
    }

    fn check_replicas(&mut self, replicas: &ReplicasConfig, config: &Config) {
        if replicas.namespace_and_name().is_none() {
            let description = format!("{:?} is not a valid lease", replicas.lease);
            self.report("replicas.lease", description, "use \"NAMESPACE/NAME\" in lower case");
        }
        let configured: Vec<&str> = config.clusters.keys().map(String::as_str).collect();
        match &replicas.cluster {
            Some(name)
                if !configured.contains(&name.as_str()) && (name != DEFAULT_CLUSTER || !configured.is_empty()) =>
            {
                let names = if configured.is_empty() { DEFAULT_CLUSTER.to_owned() } else { configured.join(", ") };
                let remedy = format!("configured clusters: {names}");
                self.report("replicas.cluster", format!("unknown cluster {name:?}"), remedy);
            }
            None if configured.len() > 1 => {
                let remedy = format!("set `cluster` to one of {}", configured.join(", "));
                self.report(
                    "replicas",
                    "several clusters are configured, and the cluster of the lease is missing",
                    remedy,
                );
            }
            _ => {}
        }
        if !config.state.checkpoint {
            let remedy = "remove the setting: a standby stores unsettled changes in the checkpoint";
            self.report("state.checkpoint", "replicas need the checkpoint", remedy);
        }
    }

    /// Checks a name. Names are part of paths, variables and messages.
    fn check_name(&mut self, path: &str, name: &str) {
        let fits = |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '_';
        if name.is_empty() || !name.chars().all(fits) {
            self.report(path, format!("{name:?} is not a valid name"), "use letters, digits, `-` and `_`");
        }
    }

    fn check_rule(&mut self, path: &str, rule: &RuleConfig, config: &Config) {
        for (field, is_empty, remedy) in [
            (
                "resources",
                rule.resources.is_empty() && self.document.has_path(&format!("{path}.resources")),
                "add resources, such as [\"pods\"]",
            ),
            ("to", rule.to.is_empty(), "add the name of a sink"),
            ("events", rule.events.is_empty(), "add a kind of change, or remove `events` for all kinds"),
        ] {
            if is_empty {
                self.report(&format!("{path}.{field}"), format!("the list of `{field}` is empty"), remedy);
            }
        }
        self.check_source(path, rule, config);
        for (field, words) in [("resources", &rule.resources), ("namespaces", &rule.namespaces)] {
            for (number, word) in words.iter().enumerate() {
                if word.trim().is_empty()
                    || word.contains(|character: char| character.is_whitespace() || "/,".contains(character))
                {
                    let remedy = "use one name per item";
                    self.report(&format!("{path}.{field}[{number}]"), format!("{word:?} is not a valid name"), remedy);
                }
            }
        }
        for (number, name) in rule.to.iter().enumerate() {
            if !config.sinks.contains_key(name) {
                let configured: Vec<&str> = config.sinks.keys().map(String::as_str).collect();
                let remedy = format!("configured sinks: {}", configured.join(", "));
                self.report(&format!("{path}.to[{number}]"), format!("unknown sink {name:?}"), remedy);
            }
        }
        for (number, name) in rule.clusters.iter().enumerate() {
            if !config.clusters.contains_key(name) {
                let configured: Vec<&str> = config.clusters.keys().map(String::as_str).collect();
                let remedy = match configured[..] {
                    [] => "no cluster is configured: remove `clusters`, or add `[clusters.NAME]`".to_owned(),
                    _ => format!("configured clusters: {}", configured.join(", ")),
                };
                self.report(&format!("{path}.clusters[{number}]"), format!("unknown cluster {name:?}"), remedy);
            }
        }
        if let Some(labels) = &rule.labels
            && let Err(error) = steadfast::parse_selector(labels)
        {
            self.report(
                &format!("{path}.labels"),
                error.to_string(),
                "use the syntax of kubectl's -l: `app=web,tier in (a,b)`",
            );
        }
    }

    fn check_sink(&mut self, path: &str, sink: &SinkConfig) {
        match sink.kinds().count() {
            0 => {
                let remedy = format!("add one of {} and {}", STREAM_KINDS.join(", "), MIRROR_KINDS.join(", "));
                self.report(path, "the sink has no kind", remedy);
            }
            1 => {}
            _ => self.report(path, "the sink has several kinds", "add one sink for each kind, and list all in `to`"),
        }
        let (inapplicable, applicability) = if sink.is_mirror() {
            (["debounce", "rate", "retry", "concurrency"].as_slice(), "streams, and this sink is a mirror")
        } else {
            (["guard", "drain", "compare", "upsert_only"].as_slice(), "mirrors, and this sink is a stream")
        };
        for field in inapplicable.iter().filter(|field| self.document.has_path(&format!("{path}.{field}"))) {
            self.report(
                &format!("{path}.{field}"),
                format!("`{field}` applies to {applicability}"),
                "remove the setting",
            );
        }
        if let Some(guard) = &sink.guard {
            if guard.share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                self.report(&format!("{path}.guard.share"), "the share is out of range", "use a number from 0 to 1");
            }
            if let Some(window) = guard.window {
                self.require_nonzero(&format!("{path}.guard.window"), window);
            }
        }
        if let Some(compare) = sink.compare {
            self.require_nonzero(&format!("{path}.compare"), compare);
        }
        if sink.concurrency == 0 {
            self.report(&format!("{path}.concurrency"), "the limit is 0", "set at least 1");
        }
        if let Some(rate) = &sink.rate {
            if !(0.001..=1e6).contains(&rate.per_second) {
                self.report(
                    &format!("{path}.rate.per_second"),
                    "the rate is out of range",
                    "use a number from 0.001 to 1000000",
                );
            }
            if rate.burst == 0 {
                self.report(&format!("{path}.rate.burst"), "the limit is 0", "set at least 1");
            }
        }
        for (field, duration) in [("first", sink.retry.first), ("longest", sink.retry.longest)] {
            self.require_nonzero(&format!("{path}.retry.{field}"), duration);
        }
        if sink.retry.first.0 > sink.retry.longest.0 {
            self.report(&format!("{path}.retry"), "`first` is longer than `longest`", "swap `first` and `longest`");
        }
        if let Some(exec) = &sink.exec {
            if exec.command.first().is_none_or(|program| program.trim().is_empty()) {
                self.report(
                    &format!("{path}.exec.command"),
                    "the command is empty",
                    "set a command such as [\"/bin/tool\", \"argument\"]",
                );
            }
            for name in exec.env.keys().chain(exec.secret_env.keys()) {
                if name.is_empty() || name.contains(['=', '\0']) {
                    let field = if exec.env.contains_key(name) { "env" } else { "secret_env" };
                    let description = format!("{name:?} is not a valid name of a variable");
                    self.report(&format!("{path}.exec.{field}.{name}"), description, "use letters, digits and `_`");
                }
            }
            self.require_nonzero(&format!("{path}.exec.timeout"), exec.timeout);
        }
    }

    /// Checks mirrors across sinks and rules.
    fn check_mirrors(&mut self, config: &Config) {
        for (name, sink) in config.sinks.iter().filter(|(_, sink)| sink.is_mirror()) {
            if !config.rules.iter().any(|rule| rule.to.contains(name)) {
                let description = "no rule feeds the mirror, so all entries would be removed";
                self.report(
                    &format!("sinks.{name}"),
                    description,
                    "add the sink to `to` of a rule, or remove the sink",
                );
            }
            // Two mirrors of one target would remove each other's entries.
            let has_same_target = |other_name: &str, other: &SinkConfig| {
                target_of(name, sink) == target_of(other_name, other) && may_share_entries(sink, other)
            };
            let previous = config.sinks.iter().take_while(|(other, _)| *other != name);
            if let Some((other, _)) = previous.into_iter().find(|(name, other)| has_same_target(name, other)) {
                let description =
                    format!("the sink {other:?} has the same target, and each would remove the entries of the other");
                self.report(&format!("sinks.{name}"), description, "use one mirror for both rules");
            }
        }
        for (number, rule) in config.rules.iter().enumerate() {
            let mirror = rule.to.iter().find(|name| config.sinks.get(*name).is_some_and(SinkConfig::is_mirror));
            let Some(mirror) = mirror else { continue };
            let path = format!("rules[{number}]");
            if rule.send.is_none() && rule.endpoints.is_none() {
                let description = format!("the rule feeds the mirror {mirror:?} without `send`");
                let remedy = "add `send` with the entry of an object; docs/notify.md lists the fields";
                self.report(&path, description, remedy);
            }
            let every = [EventKind::Added, EventKind::Updated, EventKind::Deleted];
            if !every.iter().all(|kind| rule.events.contains(kind)) {
                let description = format!("the mirror {mirror:?} depends on all objects, not on kinds of changes");
                self.report(
                    &format!("{path}.events"),
                    description,
                    "remove `events`, or add a separate rule for the streams",
                );
            }
        }
    }

    fn require_nonzero(&mut self, path: &str, duration: ConfigDuration) {
        if duration.0.is_zero() {
            self.report(path, "the duration is zero", "set more than 0s");
        }
    }

    fn check_webhook(&mut self, name: &str, webhook: &WebhookConfig, config: &Config) {
        let path = &format!("sinks.{name}.webhook");
        if let UrlFrom::Text(url) = &webhook.url {
            self.check_url(path, url, webhook);
        }
        for name in webhook.secrets.keys().filter(|name| !is_placeholder_name(name)) {
            let description = format!("{name:?} is not a valid name of a secret");
            self.report(
                &format!("{path}.secrets.{name}"),
                description,
                "use letters, digits and `_`, starting with a letter",
            );
        }
        for (field, names) in [
            ("headers", webhook.headers.keys().collect::<Vec<_>>()),
            ("secret_headers", webhook.secret_headers.keys().collect()),
        ] {
            for name in names {
                if http::HeaderName::try_from(name).is_err() {
                    let description = format!("{name:?} is not a valid name of a header");
                    self.report(&format!("{path}.{field}.{name}"), description, "use letters, digits and `-`");
                }
            }
        }
        for (name, value) in &webhook.headers {
            if http::HeaderValue::try_from(value).is_err() {
                let description = format!("the value of {name} is not a valid header value");
                self.report(&format!("{path}.headers.{name}"), description, "use a single line");
            }
            let has_secret = parts(value)
                .iter()
                .any(|part| matches!(part, TemplatePart::Secret(name) if webhook.secrets.contains_key(*name)));
            if name.eq_ignore_ascii_case("authorization") && !has_secret {
                let remedy = "store the secret in a file, and refer to the file in `secret_headers`";
                self.report(&format!("{path}.headers.{name}"), "the configuration contains a secret", remedy);
            }
        }
        if let Some(text) = &webhook.body {
            let path = format!("{path}.body");
            let body = self.compile_expression(&path, Some(text), crate::sink::webhook::body_purpose(webhook.mode));
            if let Some(body) = &body {
                self.check_body_fields(&path, name, body, webhook, config);
            }
            if body.is_some_and(|body| body.compares_changes) {
                let remedy = "use `changed(…)` in `when` or `send` of a rule";
                self.report(&path, "a body depends on messages, not on changes", remedy);
            }
        }
        if let Some(content_type) = &webhook.content_type {
            let path = format!("{path}.content_type");
            if webhook.body.is_none() {
                let description = "CloudEvents have a fixed content type";
                self.report(&path, description, "remove the setting, or add a `body`");
            } else if http::HeaderValue::try_from(content_type).is_err() {
                self.report(&path, "the content type is invalid", "use a value such as application/json");
            }
        }
        if webhook.batch == 0 {
            self.report(&format!("{path}.batch"), "the limit is 0", "set at least 1");
        }
        if webhook.certificate_file.is_some() != webhook.key_file.is_some() {
            let description = "only one of certificate and key is set";
            self.report(path, description, "set both `certificate_file` and `key_file`");
        }
        self.require_nonzero(&format!("{path}.timeout"), webhook.timeout);
    }

    /// Checks a URL with unresolved placeholders.
    fn check_url(&mut self, path: &str, url: &str, webhook: &WebhookConfig) {
        let path = format!("{path}.url");
        let mut filled = String::new();
        for part in parts(url) {
            match part {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Secret(name) => {
                    if !webhook.secrets.contains_key(name) {
                        let description = format!("unknown secret {name:?} in `{{{name}}}`");
                        let remedy = format!("add a reference: secrets = {{{name} = {{file = \"{name}\"}}}}");
                        self.report(&path, description, remedy);
                    }
                    // A digit replaces each secret, since a secret may also be the port.
                    filled.push('1');
                }
            }
        }
        let url = filled.parse::<http::Uri>();
        let fits =
            url.as_ref().is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
        if !fits {
            self.report(&path, "the URL is invalid", "use a full URL such as https://example.com/hook");
        } else if url.is_ok_and(|url| url.authority().is_some_and(|authority| authority.as_str().contains('@'))) {
            let remedy = "store the secret in a file, and refer to the file in `secret_headers`";
            self.report(&path, "the URL contains a password", remedy);
        }
    }

    /// Compiles the expressions of all rules, and records the errors.
    pub(super) fn compile_rules(&mut self, config: &Config) -> Vec<Arc<CompiledRule>> {
        let compiled = config.rules.iter().enumerate().map(|(number, rule)| {
            let path = |field: &str| format!("rules[{number}].{field}");
            let entry_fields = rule.to.iter().find_map(|name| drivers::entry_fields(config.sinks.get(name)?));
            if let Some(endpoints) = EndpointSource::from_rule(rule, config, entry_fields) {
                let config = endpoints.watch_rule(rule);
                return Arc::new(CompiledRule { number, config, when: None, send: None, endpoints: Some(endpoints) });
            }
            let when = self.compile_expression(&path("when"), rule.when.as_deref(), Purpose::Condition);
            let mirror_fields: Vec<_> =
                rule.to.iter().filter_map(|name| drivers::entry_fields(config.sinks.get(name)?)).collect();
            let mut send = None;
            // Mirrors of different kinds need different entries: the result must fit all of them.
            for entry_fields in &mirror_fields {
                let before = self.problems.len();
                send = self.compile_expression(&path("send"), rule.send.as_deref(), Purpose::Entries(entry_fields));
                if self.problems.len() > before {
                    break;
                }
            }
            if mirror_fields.is_empty() {
                send = self.compile_expression(&path("send"), rule.send.as_deref(), Purpose::Value);
            } else {
                for (field, expression) in [("when", &when), ("send", &send)] {
                    if expression.as_ref().is_some_and(|expression| expression.compares_changes) {
                        let description =
                            "a mirror depends on current objects, and `old` and `changed(…)` depend on changes";
                        self.report(&path(field), description, "use only `object`");
                    }
                }
            }
            if let (Some(send), Some(text)) = (&send, &rule.send) {
                let sinks = rule.to.iter().filter_map(|name| config.sinks.get(name));
                self.check_constants(&path("send"), send, text, sinks);
            }
            Arc::new(CompiledRule { number, config: rule.clone(), when, send, endpoints: None })
        });
        compiled.collect()
    }

    /// Checks the constants of literal entries in `send`, by the targets of `sinks`.
    fn check_constants<'s>(
        &mut self,
        path: &str,
        send: &Expression,
        text: &str,
        sinks: impl Iterator<Item = &'s SinkConfig>,
    ) {
        for sink in sinks {
            for constants in &send.uses.maps {
                for (number, description) in rejected_constants(sink, constants) {
                    let (description, remedy) = (
                        format!("{path}: {description}"),
                        "correct the value; docs/notify.md lists the fields of entries",
                    );
                    let before = text.get(..constants[number].offset).unwrap_or_default();
                    let offset = before.chars().count();
                    let problem = self.document.problem_within(path, text, offset, description, remedy);
                    if !self.problems.contains(&problem) {
                        self.problems.push(problem);
                    }
                }
            }
        }
    }

    /// Compiles the group expressions of mirrors, and records the errors.
    pub(super) fn compile_groups(&mut self, config: &Config) -> BTreeMap<String, Arc<Expression>> {
        let mut groups = BTreeMap::new();
        for (name, sink) in &config.sinks {
            let text = sink.guard.as_ref().and_then(|guard| guard.group.as_deref());
            let path = format!("sinks.{name}.guard.group");
            if let Some(expression) = self.compile_expression(&path, text, Purpose::Body(&GROUP_NAMES)) {
                if let (Some(text), Some(entry_fields)) = (text, drivers::entry_fields(sink)) {
                    self.check_group_fields(&path, text, &expression, entry_fields);
                }
                groups.insert(name.clone(), Arc::new(expression));
            }
        }
        groups
    }

    fn compile_expression(&mut self, path: &str, text: Option<&str>, purpose: Purpose) -> Option<Expression> {
        let text = text?;
        match Expression::compile(text, purpose) {
            Ok(expression) => Some(expression),
            Err(errors) => {
                for ExpressionError { offset, description } in errors {
                    let before: String = text.chars().take(offset).collect();
                    let line = before.matches('\n').count() + 1;
                    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                    let description = format!("{path}: {description} (line {line}, column {column} of the expression)");
                    let remedy = "correct the expression; docs/notify.md describes expressions";
                    self.problems.push(self.document.problem_within(path, text, offset, description, remedy));
                }
                None
            }
        }
    }
}

/// Returns false if two mirrors with the same target cannot conflict: `HAProxy` backends with disjoint prefixes, or DNS
/// servers with different zones.
fn may_share_entries(first: &SinkConfig, second: &SinkConfig) -> bool {
    // Names are compared as DNS compares them: without case and final dot.
    if let (Some(first), Some(second)) = (&first.dns, &second.dns) {
        let name = |zone: &String| zone.trim_end_matches('.').to_ascii_lowercase();
        let names: Vec<_> = first.zone.names().iter().map(name).collect();
        return second.zone.names().iter().any(|zone| names.contains(&name(zone)));
    }
    let (Some(first), Some(second)) = (&first.haproxy, &second.haproxy) else { return true };
    // If one prefix starts with the other, the servers with the longer prefix also have the shorter prefix.
    first.prefix.starts_with(&second.prefix) || second.prefix.starts_with(&first.prefix)
}

/// Returns the target of a mirror. Two mirrors with the same target would conflict.
fn target_of(name: &str, sink: &SinkConfig) -> Option<String> {
    Some(if let Some(haproxy) = &sink.haproxy {
        format!("haproxy {} {}", haproxy.socket.display(), haproxy.backend)
    } else if let Some(nftables) = &sink.nftables {
        format!("nftables {}", nftables.name.as_deref().unwrap_or(name))
    } else if let Some(ipvs) = &sink.ipvs {
        format!("ipvs {:?} {}", ipvs.protocol, ipvs.address)
    } else if let Some(dns) = &sink.dns {
        format!("dns {} {}", dns.server, dns.mark)
    } else if let Some(etcd) = &sink.etcd {
        format!("etcd {:?} {:?} {:?}", etcd.endpoints, etcd.prefix, etcd.mark)
    } else if let Some(registry) = &sink.registry {
        format!("registry {} {}", registry.url, registry.mark)
    } else {
        return None;
    })
}
