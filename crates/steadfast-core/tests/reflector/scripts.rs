//! Reflector scenarios in scripts that require no knowledge of Rust: `reflector_scripts/*.txt`.
//!
//! A line with `>` is an input of the reflector; the indented lines below it are its complete output. Every script runs
//! with many seeds and must hold for any jitter, so times are bounds.
//!
//! | line | input |
//! |---|---|
//! | `> start`, `granted`, `stop`, `reachable`, `seek proof` | the inputs of these names |
//! | `> opened 1`, `ended 1`, `unidentified 1` | request 1 receives a response head, its stream ends, the object of a record cannot be identified |
//! | `> ending 1`, `healthy 1` | the connection of stream 1 will end or may be dead; it is healthy after all |
//! | `> unresponsive 1`, `responsive 1` | the server does not respond to other requests on the connection of stream 1; it responds again |
//! | `> failed 1 unreachable`, `failed 1 503, retry after 20s` | request 1 fails |
//! | `> error 1 410 Expired` | the server sends an error within the stream |
//! | `> added 1 a@5`, `modified …`, `deleted …` | a record of a stream: object `a` in version 5 |
//! | `> bookmark 1 9`, `bookmark 1 9 end` | a bookmark, perhaps the end of the initial events |
//! | `> item 1 a@5`, `item 1 a@5 of b` | an entry of a list, with UID `a` or `b` |
//! | `> differs 1 a@5` | an entry of a metadata list that differs from the cache |
//! | `> complete 1 at 9`, `complete 1 at 9, more` | the end of a list, the end of a page; also the response to a probe |
//! | `> complete 1 at 9, sent 2s ago` | the response to a probe that another informer sent at that time |
//! | `> found 2` | a committed list differed from the cache in this number of objects |
//! | `> compared 2`, `compared 1, 9 became 7` | the cache differs from a list in this number of objects, one of them backwards |
//! | `> due 60s..66s` | the next timer is due within these bounds from now, and the time advances to it |
//! | `> pass 10s` | the time advances, and no timer is due before |
//! | `> freshness` | readers request the freshness |
//!
//! `STEADFAST_REWRITE=1 cargo test` writes the actual output into the scripts; check the diff.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use crate::monitor::Monitor;
use steadfast_core::record::{Bookmark, Identity, ListMeta, RecordKind, Status};
use steadfast_core::reflector::{
    ClusterMatch, Diagnostic, Differences, Failure, Input, ListFrom, ListHints, Output, ProbeMethod, Record,
    RecordAction, Reflector, ReflectorSettings, Request, RequestId,
};
use steadfast_core::{Freshness, Instant, ObjectKey, ResourceVersion, Uid};

const SEEDS: u64 = 60;

#[test]
fn scripts_hold_for_every_jitter_seed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reflector_scripts");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let failures: Vec<String> = files.iter().flat_map(check).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check(file: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    if env::var_os("STEADFAST_REWRITE").is_some() {
        fs::write(file, run(&text, 0)).unwrap();
        return Vec::new();
    }
    for seed in 0..SEEDS {
        let actual = run(&text, seed);
        if let Some((line, (expected, actual))) =
            text.lines().zip(actual.lines()).enumerate().find(|(_, (expected, actual))| expected != actual)
        {
            let name = file.file_name().unwrap().to_string_lossy();
            return vec![format!("{name}:{}, seed {seed}: expected `{expected}`, but it is `{actual}`", line + 1)];
        }
        assert_eq!(text, actual, "{}, seed {seed}", file.display());
    }
    Vec::new()
}

/// Returns the script with the actual output of the reflector.
fn run(script: &str, seed: u64) -> String {
    let mut run = String::new();
    let mut fixture = Fixture::new("", ":", seed);
    for line in script.lines() {
        if let Some(header) = line.strip_prefix("scenario") {
            fixture = Fixture::new(line, header, seed);
        }
        if line.starts_with("    ") {
            continue;
        }
        writeln!(run, "{line}").unwrap();
        if let Some(command) = line.strip_prefix("> ") {
            for answer in fixture.run_command(command) {
                writeln!(run, "    {answer}").unwrap();
            }
        }
    }
    run
}

/// Parses the settings and hints of a header, such as `scenario in pages: …`.
fn settings_of(header: &str) -> (ReflectorSettings, ListHints) {
    let words = header.split_once(':').expect("a scenario has a title").0;
    let settings = ReflectorSettings::default();
    // The default is a small cache, which is always relisted in full.
    let cached_objects = match words.trim() {
        "by difference" => 16,
        "by difference from many" => 3200,
        _ => 3,
    };
    let hints = ListHints { protobuf: words.trim() != "in JSON", cached_objects, ..ListHints::default() };
    let settings = match words.trim() {
        "" | "in JSON" => settings,
        "in pages" => ReflectorSettings { streamed_lists: Some(false), ..settings },
        // Both settings by difference allow 16 changed and 16 missing objects.
        "by difference" => ReflectorSettings {
            delta_relists: Some(true),
            delta_min_objects: 16,
            delta_objects_per_difference: 1,
            ..settings
        },
        "by difference from many" => ReflectorSettings { delta_relists: Some(true), ..settings },
        "with an audit" => ReflectorSettings { audit_every: Some(Duration::from_secs(100)), ..settings },
        "with a longer period" => ReflectorSettings { max_period: Some(Duration::from_secs(300)), ..settings },
        "with a short memory" => ReflectorSettings { paged_list_period: Duration::from_secs(40), ..settings },
        other => panic!("unknown settings `{other}`"),
    };
    (settings, hints)
}

struct Fixture {
    title: String,
    command: String,
    reflector: Reflector,
    monitor: Monitor,
    period: Duration,
    now: Instant,
    /// Requests in flight, with the times at which they were sent.
    sent: BTreeMap<RequestId, Instant>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in `{}`, at `{}`: {:?}", self.title, self.command, self.reflector);
        }
    }
}

impl Fixture {
    fn new(title: &str, header: &str, seed: u64) -> Self {
        let (settings, hints) = settings_of(header);
        let period = settings.max_period.unwrap_or(settings.period);
        let mut reflector = Reflector::new(settings, seed);
        reflector.set_list_hints(hints);
        Self {
            title: title.to_owned(),
            command: String::new(),
            reflector,
            monitor: Monitor::default(),
            period,
            now: Instant::ZERO,
            sent: BTreeMap::new(),
        }
    }

    fn run_command(&mut self, command: &str) -> Vec<String> {
        command.clone_into(&mut self.command);
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match verb {
            "due" | "pass" => {
                let in_bounds = if verb == "due" { self.due(rest) } else { self.pass(duration(rest)) };
                if let Err(error) = in_bounds {
                    return vec![error];
                }
            }
            "freshness" => return vec![self.freshness()],
            "found" => {
                self.reflector.list_differed(rest.parse().expect("a count"));
                return Vec::new();
            }
            "item" => {
                let (id, rest) = request(rest);
                let action = self.reflector.list_item(self.now, id, &identity(rest));
                return self.describe_action(action);
            }
            "added" | "modified" | "deleted" | "bookmark" | "error" => return self.record(verb, rest),
            _ => {}
        }
        let input = match verb {
            "due" => Input::Tick,
            "pass" => return Vec::new(),
            "start" => Input::Start,
            "restored" => {
                self.reflector.restore(self.now, rest.into());
                return Vec::new();
            }
            "restart" => Input::Restart(match rest {
                "on the same cluster" => ClusterMatch::Same,
                "on an unknown cluster" => ClusterMatch::Unsure("the cluster is unknown".into()),
                "on another cluster" => ClusterMatch::Other("another cluster".into()),
                _ => panic!("unknown outcome `{rest}`"),
            }),
            "granted" => {
                self.monitor.transfer_granted();
                Input::TransferGranted
            }
            "stop" => {
                self.monitor.reflector_stopped();
                Input::Stop
            }
            "reachable" => Input::Reachable,
            "seek" => Input::SeekProof,
            "opened" => Input::Opened(request(rest).0),
            "ended" => {
                self.monitor.response_ended(request(rest).0);
                Input::Ended(request(rest).0)
            }
            "ending" => Input::ConnectionEnding(request(rest).0),
            "healthy" => Input::ConnectionHealthy(request(rest).0),
            "unresponsive" => Input::ResponsivenessChanged(request(rest).0, false),
            "responsive" => Input::ResponsivenessChanged(request(rest).0, true),
            "differs" => {
                let (id, rest) = request(rest);
                Input::Differs(id, identity(rest))
            }
            "unidentified" => Input::Unidentified(request(rest).0, "it has no name".into()),
            "complete" => {
                let (id, rest) = request(rest);
                let (version, more) = rest.split_once(", ").unwrap_or((rest, ""));
                let open = self.monitor.open.get(&id).cloned();
                self.monitor.response_ended(id);
                let version = version.strip_prefix("at ").map(ResourceVersion::from);
                if let Some(Request::Probe { .. }) = open {
                    let ago = more.strip_prefix("sent ").and_then(|ago| ago.strip_suffix(" ago"));
                    let sent = ago.map_or(self.sent[&id], |ago| self.now - duration(ago));
                    Input::Probed(id, version, sent)
                } else {
                    let continue_token = (more == "more").then(|| "token".to_owned());
                    Input::ListEnded(id, ListMeta { version, continue_token })
                }
            }
            "compared" => {
                let (count, backwards) =
                    rest.split_once(", ").map_or((rest, None), |(count, rest)| (count, Some(rest)));
                let backwards = backwards.and_then(|text| text.split_once(" became "));
                self.monitor.comparison_judged();
                Input::Compared(Differences {
                    count: count.parse().expect("a count"),
                    backwards: backwards.map(|(held, listed)| (held.into(), listed.into())),
                })
            }
            "failed" => {
                let (id, rest) = request(rest);
                self.monitor.response_ended(id);
                Input::Failed(id, failure(rest))
            }
            _ => panic!("unknown command `{command}`"),
        };
        let outputs = self.reflector.step(self.now, input);
        self.describe(&outputs)
    }

    fn record(&mut self, verb: &str, rest: &str) -> Vec<String> {
        let (id, rest) = request(rest);
        let action = match verb {
            "bookmark" => {
                let (version, end) = rest.split_once(' ').map_or((rest, false), |(version, _)| (version, true));
                let bookmark = Bookmark { version: version.into(), initial_events_end: end };
                self.reflector.record(self.now, id, Record::Bookmark(&bookmark))
            }
            "error" => {
                self.monitor.response_ended(id);
                self.reflector.record(self.now, id, Record::Error(&status(rest)))
            }
            kind => {
                let kind = match kind {
                    "added" => RecordKind::Added,
                    "modified" => RecordKind::Modified,
                    _ => RecordKind::Deleted,
                };
                self.reflector.record(self.now, id, Record::Object(kind, &identity(rest)))
            }
        };
        self.describe_action(action)
    }

    fn describe_action(&mut self, action: RecordAction) -> Vec<String> {
        match action {
            RecordAction::Apply => vec!["apply".to_owned()],
            RecordAction::Stage => vec!["stage".to_owned()],
            RecordAction::StageUnchanged => vec!["stage the cached object, or report a difference".to_owned()],
            RecordAction::Compare => vec!["compare".to_owned()],
            RecordAction::Skip | RecordAction::Older { .. } => vec!["skip".to_owned()],
            RecordAction::Perform(outputs) => self.describe(&outputs),
        }
    }

    fn describe(&mut self, outputs: &[Output]) -> Vec<String> {
        self.monitor.check_outputs(outputs);
        for output in outputs {
            if let Output::Send(id, _) = output {
                self.sent.insert(*id, self.now);
            }
        }
        Monitor::check(&self.reflector, self.now, self.period);
        outputs.iter().map(describe).collect()
    }

    /// Advances to the next timer. Returns an error if it is not within the bounds.
    fn due(&mut self, bounds: &str) -> Result<(), String> {
        let (min, max) = bounds.split_once("..").expect("two bounds");
        let due = self.reflector.wake_at().ok_or("nothing is due")?;
        let wait = due.since(self.now);
        if !(duration(min)..=duration(max)).contains(&wait) {
            return Err(format!("due in {wait:?}"));
        }
        self.now = due;
        Ok(())
    }

    /// Advances the time. Returns an error if a timer is due before.
    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        if let Some(due) = self.reflector.wake_at().filter(|due| *due <= end) {
            return Err(format!("due in {:?}", due.since(self.now)));
        }
        self.now = end;
        Monitor::check(&self.reflector, self.now, self.period);
        Ok(())
    }

    fn freshness(&self) -> String {
        let freshness = self.reflector.evidence().at(self.now);
        match (&freshness, freshness.doubt()) {
            (Freshness::Fresh { polled: Some(polled), .. }, _) => format!("fresh, {polled}"),
            (_, None) => freshness.name().to_owned(),
            (_, Some(doubt)) => format!("{}: {}", freshness.name(), doubt.reason),
        }
    }
}

/// Parses `a@5`, in the namespace `shop`. The UID equals the name, unless it is specified (`a@5 of b`) or missing (`a@5
/// by name`).
fn identity(text: &str) -> Identity {
    let (name, version) = text.split_once('@').expect("an object and its version");
    let key = ObjectKey::namespaced("shop", name);
    if let Some(version) = version.strip_suffix(" by name") {
        return Identity { uid: Uid::by_name(&key), key, version: version.into() };
    }
    let (version, uid) = version.split_once(" of ").unwrap_or((version, name));
    Identity { key, uid: uid.into(), version: version.into() }
}

fn request(rest: &str) -> (RequestId, &str) {
    let (id, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    (RequestId(id.parse().expect("the number of a request")), rest)
}

fn duration(text: &str) -> Duration {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("`{text}` is not a valid time"));
    match &text[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        _ => panic!("`{text}` is not a valid time"),
    }
}

/// Parses `unreachable`, `unreadable`, `full`, or a status of the server.
fn failure(text: &str) -> Failure {
    match text {
        "unreachable" => Failure::unreachable("connection refused"),
        "unreadable" => Failure::unreadable("malformed"),
        "full" => Failure::full("too much"),
        answer => {
            let (answer, after) = match answer.split_once(", retry after ") {
                Some((answer, after)) => (answer, Some(duration(after))),
                None => (answer, None),
            };
            Failure::from_status(&status(answer), after)
        }
    }
}

/// Parses `410 Expired`, or `504 too large`, which has a cause.
fn status(text: &str) -> Status {
    let (code, reason) = text.split_once(' ').unwrap_or((text, ""));
    let (reason, causes) = match reason {
        "too large" => ("Timeout", vec!["ResourceVersionTooLarge".to_owned()]),
        reason => (reason, Vec::new()),
    };
    Status { code: code.parse().expect("a code"), reason: reason.to_owned(), causes, ..Status::default() }
}

fn describe(output: &Output) -> String {
    match output {
        Output::Send(id, request) => format!("send {}: {}", id.0, described_request(request)),
        Output::Cancel(id) => format!("cancel {}", id.0),
        Output::AwaitTransfer => "await a transfer".to_owned(),
        Output::ReleaseTransfer => "release the transfer".to_owned(),
        Output::BeginStaging { new_epoch: false } => "begin staging".to_owned(),
        Output::BeginStaging { new_epoch: true } => "start staging again".to_owned(),
        Output::DropStaging => "drop staging".to_owned(),
        Output::Commit { version, initial, new_epoch } => {
            let version = version.as_ref().map_or("no version", ResourceVersion::as_str);
            let (initial, epoch) =
                (if *initial { ", initial" } else { "" }, if *new_epoch { ", new epoch" } else { "" });
            format!("commit at {version}{initial}{epoch}")
        }
        Output::Advance(version) => format!("advance to {version}"),
        Output::BeginComparison => "begin a comparison".to_owned(),
        Output::CompareListed => "compare with the listed versions".to_owned(),
        Output::ReportDifferences => "name what was lost".to_owned(),
        Output::EndComparison => "end the comparison".to_owned(),
        Output::RememberPages { .. } => "remember pages".to_owned(),
        Output::RememberFull { .. } => "remember to list in full".to_owned(),
        // The delay is random and therefore omitted.
        Output::Diagnostic(Diagnostic::Failed { message, attempts, .. }) => {
            format!("diagnostic: {message}; attempt {attempts} failed")
        }
        Output::Diagnostic(diagnostic) => format!("diagnostic: {diagnostic}"),
    }
}

fn described_request(request: &Request) -> String {
    let least = |from: &ListFrom| match from {
        ListFrom::Consistent => "consistent".to_owned(),
        ListFrom::NotOlderThan(version) => format!("not older than {version}"),
    };
    match request {
        Request::StreamedList { from, .. } => format!("streamed list, {}", least(from)),
        Request::Page { continue_token: Some(_), .. } => "next page".to_owned(),
        Request::Page { from, limit: Some(limit), .. } => format!("page of {limit}, {}", least(from)),
        Request::Page { from, limit: None, .. } => format!("whole list, {}", least(from)),
        Request::Watch { from, new_connection: false, .. } => format!("watch from {from}"),
        Request::Watch { from, new_connection: true, .. } => format!("watch from {from}, elsewhere"),
        Request::Probe { .. } => "probe".to_owned(),
        Request::Metadata { continue_token: Some(_), .. } => "next page of metadata".to_owned(),
        Request::Metadata { from, .. } => format!("metadata, {}", least(from)),
        Request::State { key, version } => format!("{key} as it was at {version}"),
        Request::Versions { continue_token: Some(_), .. } => "next page of versions".to_owned(),
        Request::Versions { limit, .. } => format!("versions, {limit} at once"),
        Request::ShortWatch { from, target, method: ProbeMethod::Streamed, seconds } => {
            format!("{} watch from {from} where {target} is reached", if *seconds < 4 { "brief" } else { "short" })
        }
        Request::ShortWatch { from, target, method: ProbeMethod::Listed, seconds } => {
            let length = if *seconds < 4 { "brief" } else { "short" };
            format!("{length} watch from {from} where a list says that {target} is reached")
        }
        Request::ShortWatch { from, method: ProbeMethod::Unknown, .. } => format!("short watch from {from}"),
    }
}
