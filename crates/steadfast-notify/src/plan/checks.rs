//! What serde cannot see: whether the parts of a configuration go together.

mod bodies;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config::secret::UrlFrom;
use crate::config::sinks::{MIRRORS, STREAMS, Sink, Webhook};
use crate::config::{Config, DEFAULT_CLUSTER, EventKind, Replicas, Rule, Span};
use crate::document::{Document, Incomplete};
use crate::endpoints::EndpointSource;
use crate::expression::{Expression, Flaw, Purpose};
use crate::mirror::constants::rejected;
use crate::mirror::drivers;
use crate::mirror::grouping::GROUP_NAMES;
use crate::problem::Problem;
use crate::rule::Compiled;
use crate::template::{Part, is_name, parts};

/// Each audit lists the versions of all objects.
const SHORTEST_AUDIT: Duration = Duration::from_secs(1);

/// Looks through a configuration and keeps what it finds.
pub(super) struct Checks<'a> {
    document: &'a Document,
    pub(super) problems: Vec<Problem>,
    incomplete: Incomplete,
}

impl<'a> Checks<'a> {
    pub(super) fn new(document: &'a Document, incomplete: Incomplete) -> Self {
        Self { document, problems: Vec::new(), incomplete }
    }

    fn wrong(&mut self, path: &str, what: impl Into<String>, remedy: impl Into<String>) {
        if !self.incomplete.explains(path) {
            self.problems.push(self.document.problem(path, what, remedy));
        }
    }

    /// Whatever is not an expression.
    pub(super) fn look_through(&mut self, config: &Config) {
        for (name, cluster) in &config.clusters {
            self.name(&format!("clusters.{name}"), name);
            if cluster.audit_every() < SHORTEST_AUDIT {
                let remedy = "leave at least a second between two of them: each is a list of all versions";
                self.wrong(&format!("clusters.{name}.audit"), "the server would be asked without a pause", remedy);
            }
        }
        for (name, _) in config.clusters.iter().filter(|(_, cluster)| cluster.memory_limit == Some(0)) {
            self.wrong(
                &format!("clusters.{name}.memory_limit"),
                "no object fits into 0 bytes",
                "allow at least one byte",
            );
        }
        for (name, sink) in &config.sinks {
            self.name(&format!("sinks.{name}"), name);
            self.sink(&format!("sinks.{name}"), sink);
            if let Some(webhook) = &sink.webhook {
                self.webhook(name, webhook, config);
            }
        }
        if config.sinks.is_empty() {
            self.wrong("sinks", "there is no sink", "configure one, as `[sinks.log.stdout]`");
        }
        if config.rules.is_empty() {
            self.wrong("rules", "there is no rule", "write one, as `[[rules]]`");
        }
        let mut names = BTreeSet::new();
        for (number, rule) in config.rules.iter().enumerate() {
            let path = format!("rules[{number}]");
            self.name(&format!("{path}.name"), &rule.name);
            if !names.insert(&rule.name) {
                let what = format!("another rule before it is called {:?}", rule.name);
                self.wrong(
                    &format!("{path}.name"),
                    what,
                    "give each a name of its own: what it sent is remembered by it",
                );
            }
            self.rule(&path, rule, config);
        }
        self.mirrors(config);
        if let Some(replicas) = &config.replicas {
            self.replicas(replicas, config);
        }
        if config.dead_letters.most == 0 {
            self.wrong("dead_letters.most", "no dead letter may be kept", "allow one at least");
        }
    }

    fn replicas(&mut self, replicas: &Replicas, config: &Config) {
        if replicas.place().is_none() {
            let what = format!("{:?} is not the place of a lease", replicas.lease);
            self.wrong("replicas.lease", what, "write it as \"NAMESPACE/NAME\", in lower case");
        }
        let known: Vec<&str> = config.clusters.keys().map(String::as_str).collect();
        match &replicas.cluster {
            Some(name) if !known.contains(&name.as_str()) && (name != DEFAULT_CLUSTER || !known.is_empty()) => {
                let names = if known.is_empty() { DEFAULT_CLUSTER.to_owned() } else { known.join(", ") };
                let remedy = format!("there are {names}");
                self.wrong("replicas.cluster", format!("there is no cluster {name:?}"), remedy);
            }
            None if known.len() > 1 => {
                let remedy = format!("write `cluster` with one of {}", known.join(", "));
                self.wrong("replicas", "there are several clusters, and one has to have the lease", remedy);
            }
            _ => {}
        }
        if !config.state.checkpoint {
            let remedy = "leave it out: a standby keeps there what it may still have to send";
            self.wrong("state.checkpoint", "replicas need what `checkpoint` keeps", remedy);
        }
    }

    /// Names are part of paths, of variables and of what is sent.
    fn name(&mut self, path: &str, name: &str) {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if name.is_empty() || !name.chars().all(fits) {
            self.wrong(path, format!("{name:?} is no name"), "use letters, digits, `-` and `_`");
        }
    }

    fn rule(&mut self, path: &str, rule: &Rule, config: &Config) {
        for (field, is_empty, remedy) in [
            (
                "resources",
                rule.resources.is_empty() && self.document.has(&format!("{path}.resources")),
                "name what to look at, as [\"pods\"]",
            ),
            ("to", rule.to.is_empty(), "name a sink"),
            ("events", rule.events.is_empty(), "name a kind of event, or leave it out for all of them"),
        ] {
            if is_empty {
                self.wrong(&format!("{path}.{field}"), format!("the list of `{field}` is empty"), remedy);
            }
        }
        self.source(path, rule, config);
        for (field, words) in [("resources", &rule.resources), ("namespaces", &rule.namespaces)] {
            for (number, word) in words.iter().enumerate() {
                if word.trim().is_empty()
                    || word.contains(|letter: char| letter.is_whitespace() || "/,".contains(letter))
                {
                    let remedy = "write each name by itself";
                    self.wrong(&format!("{path}.{field}[{number}]"), format!("{word:?} names nothing"), remedy);
                }
            }
        }
        for (number, name) in rule.to.iter().enumerate() {
            if !config.sinks.contains_key(name) {
                let known: Vec<&str> = config.sinks.keys().map(String::as_str).collect();
                let remedy = format!("there are {}", known.join(", "));
                self.wrong(&format!("{path}.to[{number}]"), format!("there is no sink {name:?}"), remedy);
            }
        }
        for (number, name) in rule.clusters.iter().enumerate() {
            if !config.clusters.contains_key(name) {
                let known: Vec<&str> = config.clusters.keys().map(String::as_str).collect();
                let remedy = match known[..] {
                    [] => "none is configured: leave it out, or write `[clusters.NAME]`".to_owned(),
                    _ => format!("there are {}", known.join(", ")),
                };
                self.wrong(&format!("{path}.clusters[{number}]"), format!("there is no cluster {name:?}"), remedy);
            }
        }
        if let Some(labels) = &rule.labels
            && let Err(error) = steadfast::parse_selector(labels)
        {
            self.wrong(
                &format!("{path}.labels"),
                error.to_string(),
                "write it as kubectl's -l: `app=web,tier in (a,b)`",
            );
        }
    }

    fn sink(&mut self, path: &str, sink: &Sink) {
        match sink.kinds().count() {
            0 => {
                let remedy = format!("give it one of {} and {}", STREAMS.join(", "), MIRRORS.join(", "));
                self.wrong(path, "the sink leads nowhere", remedy);
            }
            1 => {}
            _ => self.wrong(path, "the sink leads to several places", "write one sink for each, and name all in `to`"),
        }
        let (others, of) = if sink.is_mirror() {
            (
                ["debounce", "rate", "retry", "concurrency"].as_slice(),
                "streams, and a mirror is made equal to what there is",
            )
        } else {
            (["guard", "drain", "compare", "upsert_only"].as_slice(), "mirrors, and this is a stream")
        };
        for field in others.iter().filter(|field| self.document.has(&format!("{path}.{field}"))) {
            self.wrong(&format!("{path}.{field}"), format!("`{field}` is for {of}"), "take it out");
        }
        if let Some(guard) = &sink.guard {
            if guard.share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                self.wrong(&format!("{path}.guard.share"), "the share is no part of a whole", "write one from 0 to 1");
            }
            if let Some(window) = guard.window {
                self.not_zero(&format!("{path}.guard.window"), window);
            }
        }
        if let Some(compare) = sink.compare {
            self.not_zero(&format!("{path}.compare"), compare);
        }
        if sink.concurrency == 0 {
            self.wrong(&format!("{path}.concurrency"), "nothing may be under way", "allow one at least");
        }
        if let Some(rate) = &sink.rate {
            if !(0.001..=1e6).contains(&rate.per_second) {
                self.wrong(
                    &format!("{path}.rate.per_second"),
                    "the rate is no rate",
                    "write one from 0.001 to 1000000",
                );
            }
            if rate.burst == 0 {
                self.wrong(&format!("{path}.rate.burst"), "nothing may be sent", "allow one at least");
            }
        }
        for (field, span) in [("first", sink.retry.first), ("longest", sink.retry.longest)] {
            self.not_zero(&format!("{path}.retry.{field}"), span);
        }
        if sink.retry.first.0 > sink.retry.longest.0 {
            self.wrong(
                &format!("{path}.retry"),
                "the first wait is longer than the longest",
                "exchange `first` and `longest`",
            );
        }
        if let Some(exec) = &sink.exec {
            if exec.command.first().is_none_or(|program| program.trim().is_empty()) {
                self.wrong(
                    &format!("{path}.exec.command"),
                    "no program is named",
                    "write it as [\"/bin/tool\", \"argument\"]",
                );
            }
            for name in exec.env.keys().chain(exec.secret_env.keys()) {
                if name.is_empty() || name.contains(['=', '\0']) {
                    let at = if exec.env.contains_key(name) { "env" } else { "secret_env" };
                    let what = format!("{name:?} cannot be the name of a variable");
                    self.wrong(&format!("{path}.exec.{at}.{name}"), what, "take out what is no letter");
                }
            }
            self.not_zero(&format!("{path}.exec.timeout"), exec.timeout);
        }
    }

    /// What only all of a configuration together shows of its mirrors.
    fn mirrors(&mut self, config: &Config) {
        for (name, sink) in config.sinks.iter().filter(|(_, sink)| sink.is_mirror()) {
            if !config.rules.iter().any(|rule| rule.to.contains(name)) {
                let what = "no rule feeds the mirror, so that nothing would be left in it";
                self.wrong(&format!("sinks.{name}"), what, "name it in the `to` of a rule, or take it out");
            }
            let is_same = |other_name: &str, other: &Sink| {
                place(name, sink) == place(other_name, other) && share_servers(sink, other)
            };
            let before = config.sinks.iter().take_while(|(other, _)| *other != name);
            if let Some((other, _)) = before.into_iter().find(|(name, other)| is_same(name, other)) {
                let what = format!(
                    "it is the place of the sink {other:?} too, and each would take out what the other puts there"
                );
                self.wrong(&format!("sinks.{name}"), what, "have both rules feed one mirror");
            }
        }
        for (number, rule) in config.rules.iter().enumerate() {
            let mirror = rule.to.iter().find(|name| config.sinks.get(*name).is_some_and(Sink::is_mirror));
            let Some(mirror) = mirror else { continue };
            let path = format!("rules[{number}]");
            if rule.send.is_none() && rule.endpoints.is_none() {
                let what = format!("the rule feeds the mirror {mirror:?} and does not say with what");
                let remedy = "write with `send` which entry an object is there; docs/notify.md says what one has";
                self.wrong(&path, what, remedy);
            }
            let every = [EventKind::Added, EventKind::Updated, EventKind::Deleted];
            if !every.iter().all(|kind| rule.events.contains(kind)) {
                let what = format!("the mirror {mirror:?} is made equal to what there is, whatever has happened");
                self.wrong(&format!("{path}.events"), what, "take it out, or write a rule of its own for the streams");
            }
        }
    }

    fn not_zero(&mut self, path: &str, span: Span) {
        if span.0.is_zero() {
            self.wrong(path, "it is no time at all", "write more than 0s");
        }
    }

    fn webhook(&mut self, name: &str, webhook: &Webhook, config: &Config) {
        let path = &format!("sinks.{name}.webhook");
        if let UrlFrom::Text(url) = &webhook.url {
            self.url(path, url, webhook);
        }
        for name in webhook.secrets.keys().filter(|name| !is_name(name)) {
            let what = format!("{name:?} cannot be the name of a secret");
            self.wrong(&format!("{path}.secrets.{name}"), what, "use letters, digits and `_`, a letter first");
        }
        for (field, names) in [
            ("headers", webhook.headers.keys().collect::<Vec<_>>()),
            ("secret_headers", webhook.secret_headers.keys().collect()),
        ] {
            for name in names {
                if http::HeaderName::try_from(name).is_err() {
                    let what = format!("{name:?} cannot be the name of a header");
                    self.wrong(&format!("{path}.{field}.{name}"), what, "use letters, digits and `-`");
                }
            }
        }
        for (name, value) in &webhook.headers {
            if http::HeaderValue::try_from(value).is_err() {
                let what = format!("the value of {name} cannot be one of a header");
                self.wrong(&format!("{path}.headers.{name}"), what, "write it on one line");
            }
            let has_secret = parts(value)
                .iter()
                .any(|part| matches!(part, Part::Secret(name) if webhook.secrets.contains_key(*name)));
            if name.eq_ignore_ascii_case("authorization") && !has_secret {
                let remedy = "put it into a file, and that into `secret_headers`";
                self.wrong(&format!("{path}.headers.{name}"), "a secret is in the configuration", remedy);
            }
        }
        if let Some(text) = &webhook.body {
            let path = format!("{path}.body");
            let body = self.expression(&path, Some(text), crate::sink::webhook::purpose(webhook.mode));
            if let Some(body) = &body {
                self.body_fields(&path, name, body, webhook, config);
            }
            if body.is_some_and(|body| body.is_of_changes) {
                let remedy = "call `changed(…)` in the `when` or `send` of a rule";
                self.wrong(&path, "a body is of a message, and not of a change", remedy);
            }
        }
        if let Some(content_type) = &webhook.content_type {
            let path = format!("{path}.content_type");
            if webhook.body.is_none() {
                let what = "CloudEvents have a content type of their own";
                self.wrong(&path, what, "remove it, or write a `body`");
            } else if http::HeaderValue::try_from(content_type).is_err() {
                self.wrong(&path, "it is not a valid content type", "write it as application/json");
            }
        }
        if webhook.batch == 0 {
            self.wrong(&format!("{path}.batch"), "a request may have no message", "allow one at least");
        }
        if webhook.certificate_file.is_some() != webhook.key_file.is_some() {
            let what = "of a certificate and its key only one is given";
            self.wrong(path, what, "give both `certificate_file` and `key_file`");
        }
        self.not_zero(&format!("{path}.timeout"), webhook.timeout);
    }

    /// Checks a URL whose placeholders are not filled yet.
    fn url(&mut self, path: &str, url: &str, webhook: &Webhook) {
        let path = format!("{path}.url");
        let mut filled = String::new();
        for part in parts(url) {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Secret(name) => {
                    if !webhook.secrets.contains_key(name) {
                        let what = format!("there is no secret {name:?} for `{{{name}}}`");
                        let remedy = format!("write where it is: secrets = {{{name} = {{file = \"{name}\"}}}}");
                        self.wrong(&path, what, remedy);
                    }
                    // A port can be a secret too.
                    filled.push('1');
                }
            }
        }
        let url = filled.parse::<http::Uri>();
        let fits =
            url.as_ref().is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
        if !fits {
            self.wrong(&path, "it is no URL of a server", "write it whole, as https://example.com/hook");
        } else if url.is_ok_and(|url| url.authority().is_some_and(|authority| authority.as_str().contains('@'))) {
            let remedy = "put it into a file, and that into `secret_headers`";
            self.wrong(&path, "a password is in the URL", remedy);
        }
    }

    /// The rules with their expressions read; what is wrong with those is kept.
    pub(super) fn compiled(&mut self, config: &Config) -> Vec<Arc<Compiled>> {
        let compiled = config.rules.iter().enumerate().map(|(number, rule)| {
            let path = |field: &str| format!("rules[{number}].{field}");
            let shape = rule.to.iter().find_map(|name| drivers::shape(config.sinks.get(name)?));
            if let Some(endpoints) = EndpointSource::of(rule, config, shape) {
                let config = endpoints.watched(rule);
                return Arc::new(Compiled { number, config, when: None, send: None, endpoints: Some(endpoints) });
            }
            let when = self.expression(&path("when"), rule.when.as_deref(), Purpose::Condition);
            let shapes: Vec<_> = rule.to.iter().filter_map(|name| drivers::shape(config.sinks.get(name)?)).collect();
            let mut send = None;
            // Each of the mirrors has to understand what is sent.
            for shape in &shapes {
                let before = self.problems.len();
                send = self.expression(&path("send"), rule.send.as_deref(), Purpose::Entries(shape));
                if self.problems.len() > before {
                    break;
                }
            }
            if shapes.is_empty() {
                send = self.expression(&path("send"), rule.send.as_deref(), Purpose::Value);
            } else {
                for (field, expression) in [("when", &when), ("send", &send)] {
                    if expression.as_ref().is_some_and(|expression| expression.is_of_changes) {
                        let what =
                            "a mirror is made equal to what there is, and `old` and `changed(…)` are of what happened";
                        self.wrong(&path(field), what, "look at `object` alone");
                    }
                }
            }
            if let (Some(send), Some(text)) = (&send, &rule.send) {
                let sinks = rule.to.iter().filter_map(|name| config.sinks.get(name));
                self.constants(&path("send"), send, text, sinks);
            }
            Arc::new(Compiled { number, config: rule.clone(), when, send, endpoints: None })
        });
        compiled.collect()
    }

    /// Checks the constants of the entries that `send` writes out, by the targets of `sinks`.
    fn constants<'s>(&mut self, path: &str, send: &Expression, text: &str, sinks: impl Iterator<Item = &'s Sink>) {
        for sink in sinks {
            for constants in &send.uses.maps {
                for (number, what) in rejected(sink, constants) {
                    let (what, remedy) =
                        (format!("{path}: {what}"), "correct it; docs/notify.md lists what an entry has");
                    let before = text.get(..constants[number].offset).unwrap_or_default();
                    let offset = before.chars().count();
                    let problem = self.document.problem_within(path, text, offset, what, remedy);
                    if !self.problems.contains(&problem) {
                        self.problems.push(problem);
                    }
                }
            }
        }
    }

    /// The expressions that give the groups of mirrors; their problems are kept.
    pub(super) fn groups(&mut self, config: &Config) -> BTreeMap<String, Arc<Expression>> {
        let mut groups = BTreeMap::new();
        for (name, sink) in &config.sinks {
            let text = sink.guard.as_ref().and_then(|guard| guard.group.as_deref());
            let path = format!("sinks.{name}.guard.group");
            if let Some(expression) = self.expression(&path, text, Purpose::Body(&GROUP_NAMES)) {
                if let (Some(text), Some(shape)) = (text, drivers::shape(sink)) {
                    self.entry_fields(&path, text, &expression, shape);
                }
                groups.insert(name.clone(), Arc::new(expression));
            }
        }
        groups
    }

    fn expression(&mut self, path: &str, text: Option<&str>, purpose: Purpose) -> Option<Expression> {
        let text = text?;
        match Expression::compile(text, purpose) {
            Ok(expression) => Some(expression),
            Err(flaws) => {
                for Flaw { offset, what } in flaws {
                    let before: String = text.chars().take(offset).collect();
                    let line = before.matches('\n').count() + 1;
                    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                    let what = format!("{path}: {what} (line {line}, column {column} of the expression)");
                    let remedy = "correct the expression; docs/notify.md says what there is";
                    self.problems.push(self.document.problem_within(path, text, offset, what, remedy));
                }
                None
            }
        }
    }
}

/// Returns false if two mirrors in one place have nothing in common: in one `HAProxy` backend neither prefix begins with the other, and
/// on one DNS server no zone is the same.
fn share_servers(one: &Sink, other: &Sink) -> bool {
    if let (Some(one), Some(other)) = (&one.dns, &other.dns) {
        let name = |zone: &String| zone.trim_end_matches('.').to_ascii_lowercase();
        let names: Vec<_> = one.zone.names().iter().map(name).collect();
        return other.zone.names().iter().any(|zone| names.contains(&name(zone)));
    }
    let (Some(one), Some(other)) = (&one.haproxy, &other.haproxy) else { return true };
    one.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&one.prefix)
}

/// Where a mirror is: two in one place would be at odds.
fn place(name: &str, sink: &Sink) -> Option<String> {
    Some(if let Some(one) = &sink.haproxy {
        format!("haproxy {} {}", one.socket.display(), one.backend)
    } else if let Some(one) = &sink.nftables {
        format!("nftables {}", one.name.as_deref().unwrap_or(name))
    } else if let Some(one) = &sink.ipvs {
        format!("ipvs {:?} {}", one.protocol, one.address)
    } else if let Some(one) = &sink.dns {
        format!("dns {} {}", one.server, one.mark)
    } else if let Some(one) = &sink.etcd {
        format!("etcd {:?} {:?} {:?}", one.endpoints, one.prefix, one.mark)
    } else if let Some(one) = &sink.registry {
        format!("registry {} {}", one.url, one.mark)
    } else {
        return None;
    })
}
