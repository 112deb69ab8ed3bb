//! `--since`: the changes before the start of the program.
//!
//! First the facts whose time is recorded in an object or in an Event, in the order of their times. They are marked as
//! reconstructed, because a later change replaces the time of an earlier one. Then the exact changes since the oldest
//! version that a watch can start from. With `--related`, the history contains the relatives only, also those that no
//! longer exist.

mod facts;
mod replay;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;
use steadfast::unstable::cause::root_cause;
use steadfast::{Call, Certainty, Connection, DeleteReason, Informer, ResourceVersion, Scope};
use tokio::time::{Instant, timeout_at};

use super::gate::{Gate, PrintedHistory};
use super::json_line::{LineHead, to_line};
use super::line::{Format, Style};
use super::owners::OwnerChain;
use super::printer::Printer;
use super::related::{PastRelatives, Related};
use super::text_line::TextLine;
use super::watched::{CachedObject, DecodedEvent, Deletion, EventTime, Subject};
use crate::console;
use crate::discovery::{event_resource, objects};
use facts::{DatedFact, event_fact, event_subject, facts, last_write};
use replay::{MAX_OBJECTS, PastChange, ReplayError, ReplayTarget, replay, start_versions};

/// Maximum wait for the existing objects. The history of resources that are not listed by then is left out.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of Events that are read in a namespace.
const MAX_EVENTS: usize = 10_000;

/// Events in a page.
const EVENT_PAGE_SIZE: u32 = 500;

/// A watched resource whose lines wait for the history.
pub(super) struct HistorySubject {
    pub(super) subject: Arc<Subject>,
    pub(super) informer: Informer<CachedObject>,
    pub(super) gate: Gate,
}

/// Prints the history of a cluster.
pub(super) struct History {
    pub(super) connection: Connection,
    pub(super) since: Timestamp,
    pub(super) style: Style,
    pub(super) printer: Printer,
    /// With `--related`, the relatives. Other objects have no history.
    pub(super) related: Option<Related>,
}

/// The existing objects of a resource.
struct Existing {
    subject: Arc<Subject>,
    objects: Vec<Value>,
    version: Option<u64>,
}

/// Exact changes of a resource, or the reason why none are known.
struct Past {
    start: Result<u64, String>,
    changes: Vec<PastChange>,
}

/// Resources of a namespace whose exact changes start alike.
struct BoundaryGroup<'a> {
    namespace: Option<&'a str>,
    start: &'a Result<u64, String>,
    subjects: Vec<&'a Subject>,
}

impl History {
    /// Prints the history, and then opens all gates.
    pub(super) async fn print(self, subjects: Vec<HistorySubject>) {
        let deadline = Instant::now() + SYNC_TIMEOUT;
        if let Some(related) = &self.related {
            related.until_printed().await;
        }
        let existing = join_all(subjects.iter().map(|waiting| existing(waiting, deadline))).await;
        let listed: Vec<&Existing> = existing.iter().flatten().collect();
        let events = self.events(&listed).await;
        let mut dated: Vec<(Timestamp, u64)> = events.iter().filter_map(dated_version).collect();
        dated.extend(listed.iter().flat_map(|existing| &existing.objects).filter_map(dated_version));
        let replayed = join_all(existing.into_iter().map(async |existing| {
            let existing = existing?;
            let past = self.past(&existing, &dated).await;
            Some((existing, past))
        }));
        let replayed = replayed.await;
        let known: Vec<&(Existing, Past)> = replayed.iter().flatten().collect();
        let relatives = self.related.as_ref().map(|related| Arc::new(related.with_past(newest_states(&known))));
        let listed: Vec<&Existing> = known.iter().map(|(existing, _)| existing).collect();
        let mut lines = self.reconstructed(&listed, &events, relatives.as_deref());
        lines.extend(self.boundaries(&known));
        lines.extend(self.exact(&known, relatives.as_deref()));
        let (printer, related) = (self.printer.clone(), self.related.clone());
        let gates: Vec<(Gate, PrintedHistory)> = subjects
            .into_iter()
            .zip(&replayed)
            .map(|(waiting, replayed)| {
                let exact = replayed.as_ref().filter(|(_, past)| past.start.is_ok());
                let version = exact.and_then(|(existing, _)| existing.version);
                (waiting.gate, PrintedHistory { version, relatives: relatives.clone() })
            })
            .collect();
        // Printing blocks while the reader is slow.
        let outcome = tokio::task::spawn_blocking(move || {
            for line in lines {
                printer.print_uncounted(line);
            }
            if let (Some(related), Some(relatives)) = (related, relatives) {
                related.history_printed(&relatives);
            }
            for (gate, history) in gates {
                gate.open(history);
            }
        });
        if outcome.await.is_err() {
            console::report("error: the history cannot be printed; please report this as a bug");
        }
    }

    /// Lists the Events of the namespaces of the resources.
    async fn events(&self, listed: &[&Existing]) -> Vec<Value> {
        let mut namespaces: Vec<Option<&str>> =
            listed.iter().map(|existing| existing.subject.scope.in_namespace()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        if namespaces.contains(&None) {
            namespaces.truncate(1);
        }
        let mut events = Vec::new();
        for namespace in namespaces {
            match list_events(&self.connection, namespace).await {
                Ok(found) => events.extend(found),
                Err(error) => {
                    let scope = namespace.map_or_else(Scope::all, Scope::namespace);
                    let reason = root_cause(&error);
                    console::report(format_args!(
                        "# Events in {scope} cannot be listed, the history is without them: {reason}"
                    ));
                }
            }
        }
        events
    }

    /// Returns the lines of the facts whose time is recorded in an object or in an Event, in this order.
    fn reconstructed(&self, listed: &[&Existing], events: &[Value], relatives: Option<&PastRelatives>) -> Vec<String> {
        let subjects: HashSet<&str> = listed.iter().flat_map(|existing| &existing.objects).map(uid).collect();
        let mut about: HashMap<&str, Vec<DatedFact>> = HashMap::new();
        // Events that appear at the objects that they are about. If Events are watched too, they appear only there.
        let mut placed = HashSet::new();
        for event in events {
            if let (Some(subject), Some(fact)) = (event_subject(event), event_fact(event))
                && subjects.contains(subject)
            {
                about.entry(subject).or_default().push(fact);
                placed.insert(uid(event));
            }
        }
        let mut lines = Vec::new();
        for existing in listed {
            let is_shown =
                |object: &&Value| relatives.is_none_or(|relatives| relatives.contain(&existing.subject.name, object));
            for object in existing.objects.iter().filter(is_shown) {
                let mut known = match object["kind"].as_str() {
                    Some("Event") if placed.contains(uid(object)) => Vec::new(),
                    Some("Event") => event_fact(object).into_iter().collect(),
                    _ => facts(object),
                };
                known.extend(about.remove(uid(object)).into_iter().flatten());
                let recent = known.into_iter().filter(|fact| fact.time >= self.since);
                lines.extend(recent.map(|fact| (fact.time, self.fact_line(&existing.subject, object, &fact))));
            }
        }
        lines.sort_by_key(|(time, _)| *time);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    fn fact_line(&self, subject: &Subject, object: &Value, fact: &DatedFact) -> String {
        let field = |name: &str| object.get("metadata")?.get(name)?.as_str();
        match &self.style.format {
            Format::Json { .. } => to_line(&FactLine {
                head: LineHead::new(fact.time, "Reconstructed", subject, field("namespace")),
                name: field("name"),
                uid: field("uid"),
                source: fact.source,
                text: &fact.text,
            }),
            Format::Text { clock, color, width, .. } => {
                let path = field("namespace").into_iter().chain(field("name")).collect::<Vec<_>>().join("/");
                let mut line = TextLine::default();
                line.add(None, &clock.format_time_of_day(fact.time));
                line.add(None, &format!("≈ {} {path} {}", subject.title(), fact.text));
                line.add_dim(&format!("(reconstructed: {})", fact.source));
                line.render(*color, width.columns())
            }
            // The command line rejects this combination.
            Format::Objects { .. } => String::new(),
        }
    }

    /// Returns the lines between the reconstructed and the exact part: one for each resource. With `--related`, which
    /// watches many resources, one line covers the resources of a namespace with equal results.
    fn boundaries(&self, known: &[&(Existing, Past)]) -> Vec<String> {
        if self.related.is_none() {
            return known.iter().map(|(existing, past)| self.boundary(&existing.subject, &past.start)).collect();
        }
        let mut groups: Vec<BoundaryGroup<'_>> = Vec::new();
        for (existing, Past { start, .. }) in known {
            let (subject, namespace) = (&*existing.subject, existing.subject.scope.in_namespace());
            match groups.iter_mut().find(|group| group.namespace == namespace && group.start == start) {
                Some(group) => group.subjects.push(subject),
                None => groups.push(BoundaryGroup { namespace, start, subjects: vec![subject] }),
            }
        }
        let line = |BoundaryGroup { namespace, start, subjects }: &BoundaryGroup<'_>| {
            let is_only = groups.iter().filter(|group| group.namespace == *namespace).count() == 1;
            let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
            let names = if is_only { "related objects".to_owned() } else { names.join(", ") };
            let context = subjects.iter().find_map(|subject| subject.context.as_deref());
            let place = namespace.map(|namespace| format!("in {namespace}"));
            let title: Vec<&str> = context.into_iter().chain([names.as_str()]).chain(place.as_deref()).collect();
            boundary_text(&title.join(" "), start)
        };
        groups.iter().map(line).collect()
    }

    /// Returns the line between the reconstructed and the exact part of a resource.
    fn boundary(&self, subject: &Subject, start: &Result<u64, String>) -> String {
        if let Format::Json { .. } = self.style.format {
            return to_line(&BoundaryLine {
                head: LineHead::new(Timestamp::now(), "ExactSince", subject, subject.scope.in_namespace()),
                resource_version: start.as_ref().ok().map(u64::to_string),
                reason: start.as_ref().err().map(String::as_str),
            });
        }
        boundary_text(&subject.scoped_title(), start)
    }

    /// Replays the changes since the oldest possible version.
    async fn past(&self, existing: &Existing, dated: &[(Timestamp, u64)]) -> Past {
        match self.replayed(existing, dated).await {
            Ok((start, mut changes)) => {
                // A change of unknown time is shown.
                changes.retain(|change| change.time.is_none_or(|time| time >= self.since));
                Past { start: Ok(start), changes }
            }
            Err(reason) => Past { start: Err(reason), changes: Vec::new() },
        }
    }

    async fn replayed(
        &self,
        existing: &Existing,
        dated: &[(Timestamp, u64)],
    ) -> Result<(u64, Vec<PastChange>), String> {
        let subject = &existing.subject;
        let version = existing.version.ok_or("the versions of the server are not numbers")?;
        let versions = existing.objects.iter().map(|object| {
            let field = |name: &str| object.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            ((field("/metadata/namespace"), field("/metadata/name")), field("/metadata/resourceVersion"))
        });
        let target = ReplayTarget { version, objects: versions.collect() };
        let api = objects(&self.connection, &subject.api_resource, subject.scope.in_namespace());
        let mut reason = "no object or Event of that time has a version to start from".to_owned();
        for start in start_versions(dated, self.since, version) {
            match replay(&api, subject, start, &target).await {
                Ok(changes) => return Ok((start, changes)),
                Err(ReplayError::TooOld(detail)) => reason = format!("version {start} {detail}"),
                Err(ReplayError::Failed(detail)) => return Err(detail),
            }
        }
        Err(reason)
    }

    /// Returns the lines of the exact changes of all resources, in the order of their versions.
    fn exact(&self, known: &[&(Existing, Past)], relatives: Option<&PastRelatives>) -> Vec<String> {
        let mut changes: Vec<(&Subject, &PastChange)> = known
            .iter()
            .flat_map(|(existing, past)| past.changes.iter().map(|change| (&*existing.subject, change)))
            .filter(|(subject, change)| {
                relatives.is_none_or(|relatives| relatives.contain(&subject.name, &change.object))
            })
            .collect();
        changes.sort_by_key(|(_, change)| change.version);
        changes.into_iter().filter_map(|(subject, change)| self.exact_line(subject, change)).collect()
    }

    fn exact_line(&self, subject: &Subject, change: &PastChange) -> Option<String> {
        let version = ResourceVersion::from(change.version.to_string().as_str());
        let deletion = (change.name == "Deleted").then_some(Deletion {
            version: Some(&version),
            certainty: Certainty::Observed,
            reason: if subject.scope.label_selector().is_some() || subject.scope.field_selector().is_some() {
                DeleteReason::DeletedOrLeft
            } else {
                DeleteReason::Deleted
            },
        });
        let mut call = Call::default();
        call.changes = 1;
        let event = DecodedEvent {
            name: change.name,
            old: change.old.clone(),
            object: change.object.clone(),
            deletion,
            call,
            owners: OwnerChain::default(),
            time: EventTime::Past(change.time),
        };
        self.style.event(subject, &event, None).text
    }
}

/// Returns the text of the line between the reconstructed and the exact part.
fn boundary_text(title: &str, start: &Result<u64, String>) -> String {
    match start {
        Ok(version) => format!("── {title}: reconstructed until here, exact changes since version {version} below ──"),
        Err(reason) => format!("── {title}: reconstructed until here, exact changes from now on: {reason} ──"),
    }
}

/// Returns the states of all objects of the history with their resources, the newest state of each object first.
fn newest_states<'a>(known: &[&'a (Existing, Past)]) -> impl Iterator<Item = (&'a str, &'a Value)> {
    known.iter().flat_map(|(existing, past)| {
        let past = past.changes.iter().rev().map(|change| &change.object);
        existing.objects.iter().chain(past).map(move |object| (existing.subject.name.as_str(), object))
    })
}

fn uid(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the existing objects when all are known; `None` if they are not known at the deadline.
async fn existing(waiting: &HistorySubject, deadline: Instant) -> Option<Existing> {
    let HistorySubject { subject, informer, .. } = waiting;
    let mut changed = informer.changed();
    let synced = async {
        // An error means that the informer has stopped.
        while !informer.has_synced() && changed.changed().await.is_ok() {}
    };
    if timeout_at(deadline, synced).await.is_err() {
        let (title, seconds) = (subject.scoped_title(), SYNC_TIMEOUT.as_secs());
        console::report(format_args!("# {title} was not listed within {seconds} s: its history is left out"));
        return None;
    }
    let snapshot = informer.snapshot();
    if snapshot.len() > MAX_OBJECTS {
        let (title, count) = (subject.scoped_title(), snapshot.len());
        console::report(format_args!(
            "# {title}: {count} objects, and the history is limited to {MAX_OBJECTS}; use a selector"
        ));
        return None;
    }
    let objects = snapshot.decodable().map(|object| subject.decode(object)).collect();
    let version = snapshot.version().and_then(|version| version.as_str().parse().ok());
    Some(Existing { subject: subject.clone(), objects, version })
}

/// Returns the version of an object, with the time of its last write.
fn dated_version(object: &Value) -> Option<(Timestamp, u64)> {
    let version = object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()?;
    let time = if event_subject(object).is_some() { event_fact(object)?.time } else { last_write(object)? };
    Some((time, version))
}

async fn list_events(connection: &Connection, namespace: Option<&str>) -> kube::Result<Vec<Value>> {
    let api = objects(connection, &event_resource(), namespace);
    let mut parameters = ListParams::default().limit(EVENT_PAGE_SIZE);
    let mut events = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        events.extend(page.items.into_iter().filter_map(|event| serde_json::to_value(event).ok()));
        match page.metadata.continue_.filter(|token| !token.is_empty() && events.len() < MAX_EVENTS) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(events),
        }
    }
}

#[derive(Serialize)]
struct FactLine<'a> {
    #[serde(flatten)]
    head: LineHead<'a>,
    name: Option<&'a str>,
    uid: Option<&'a str>,
    source: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BoundaryLine<'a> {
    #[serde(flatten)]
    head: LineHead<'a>,
    resource_version: Option<String>,
    reason: Option<&'a str>,
}
