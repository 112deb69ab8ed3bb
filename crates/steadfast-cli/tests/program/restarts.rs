//! `steadfast notify` restarts, also after `SIGKILL`: changes during the downtime are delivered, and no change is
//! delivered again with another ID. The server's history is the oracle.
//!
//! `STEADFAST_KILLS=100` sets the number of kills.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use steadfast::unstable::random::Random;
use steadfast_apiserver::{ApiServer, Verb};
use steadfast_contract::Change;
use steadfast_testing::config_map;
use tokio::runtime::Runtime;

use crate::haproxy::eventually;
use crate::run::{signal, start, temp_path};

/// Rule that sends the old and the new version of each config map.
const RULE_FOR_EACH_EVENT: &str = "[[rules]]\nname = \"each\"\nresources = [\"cm\"]\nnamespaces = [\"default\"]\ninitial = true\n\
                    send = \"{'old': old == null ? '' : old.metadata.resourceVersion, 'now': object.metadata.resourceVersion}\"\n\
                    to = [\"log\"]\n";

/// A cluster, and the configuration of a program that is started repeatedly.
struct Fixture {
    runtime: Runtime,
    server: Arc<ApiServer>,
    folder: PathBuf,
}

impl Fixture {
    fn start(name: &str, rules: &str) -> Self {
        let folder = PathBuf::from(temp_path(&format!("restarts-{name}")));
        // Remove files of an earlier test run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(ApiServer::start()).expect("the server starts");
        std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("the folder is writable");
        let fixture = Self { runtime, server: Arc::new(server), folder };
        fixture.configure(rules);
        fixture
    }

    fn configure(&self, rules: &str) {
        let text = format!("[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.log.stdout]\n{rules}");
        std::fs::write(self.folder.join("notify.toml"), text).expect("the folder is writable");
    }

    fn start_program(&self) -> ProgramRun {
        ProgramRun::start_program(self.folder.join("notify.toml").to_str().expect("the target's path is text"))
    }

    fn set_value(&self, name: &str, value: &str) {
        set_value(&self.server, name, value);
    }

    fn delete(&self, name: &str) {
        self.server.delete_named("configmaps", "default", name).expect("the object exists");
    }

    /// Returns the number of lists of config maps.
    fn lists(&self) -> usize {
        let requests = self.server.requests();
        let lists = requests.iter().filter(|request| matches!(request.verb, Verb::List | Verb::StreamedList));
        lists.filter(|request| request.path.ends_with("/configmaps")).count()
    }

    fn changes(&self) -> Vec<Change> {
        let history = steadfast_testing::history(&self.server, "", "configmaps").expect("a history");
        history.changes().iter().filter(|change| change.namespace.as_deref() == Some("default")).cloned().collect()
    }
}

fn set_value(server: &ApiServer, name: &str, value: &str) {
    let object = config_map(name, value);
    server.replace(&object).or_else(|_| server.create(&object)).expect("the config map is stored");
}

/// One run of the program and its output.
struct ProgramRun {
    child: Child,
    lines: Arc<parking_lot::Mutex<Vec<Value>>>,
    readers: Vec<JoinHandle<()>>,
    error_output: Arc<parking_lot::Mutex<String>>,
}

impl ProgramRun {
    fn start_program(configuration: &str) -> Self {
        let mut child = start(&["notify", "-c", configuration]);
        let (lines, error_output) =
            (Arc::<parking_lot::Mutex<Vec<Value>>>::default(), Arc::<parking_lot::Mutex<String>>::default());
        let (stdout, line_sink) = (BufReader::new(child.stdout.take().expect("a piped stdout")), lines.clone());
        let stdout_reader = std::thread::spawn(move || {
            // An incomplete last line is ignored.
            for line in stdout.lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line) {
                    line_sink.lock().push(line);
                }
            }
        });
        let (stderr, line_sink) = (BufReader::new(child.stderr.take().expect("a piped stderr")), error_output.clone());
        let stderr_reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *line_sink.lock() += &(line + "\n");
            }
        });
        Self { child, lines, readers: vec![stdout_reader, stderr_reader], error_output }
    }

    fn lines(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    fn stderr_text(&self) -> String {
        self.error_output.lock().clone()
    }

    /// Waits for `count` lines and returns all lines in a short form.
    fn wait_for_lines(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} lines"), || self.lines().len() >= count);
        self.lines().iter().map(summary).collect()
    }

    /// Ends the program by the signal `name`; returns standard output and standard error.
    fn end_by_signal(mut self, name: &str) -> (Vec<Value>, String) {
        signal(&self.child, name);
        let status = self.child.wait().expect("an exit status");
        self.readers.drain(..).for_each(|reader| reader.join().expect("no panic"));
        assert!(name == "KILL" || status.success(), "{status}: {}", self.stderr_text());
        (self.lines(), self.stderr_text())
    }
}

impl Drop for ProgramRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn summary(line: &Value) -> String {
    let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text("rule"), text("type"), text("name"))
}

#[test]
fn restart_delivers_only_changes_during_downtime() {
    let fixture = Fixture::start("down", RULE_FOR_EACH_EVENT);
    for name in ["a", "b", "c", "d"] {
        fixture.set_value(name, "1");
    }
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(4).len(), 4);
    run.end_by_signal("TERM");
    let lists = fixture.lists();

    fixture.set_value("a", "2");
    fixture.set_value("a", "3");
    fixture.delete("b");
    fixture.delete("c");
    fixture.set_value("c", "2");
    fixture.set_value("e", "1");
    fixture.set_value("f", "1");
    fixture.delete("f");
    let run = fixture.start_program();
    let delivered_lines: BTreeSet<String> = run.wait_for_lines(5).into_iter().collect();
    let expected = ["each Updated a", "each Deleted b", "each Deleted c", "each Added c", "each Added e"];
    assert_eq!(delivered_lines, expected.map(str::to_owned).into());
    fixture.set_value("d", "2");
    assert_eq!(run.wait_for_lines(6)[5], "each Updated d");
    let (lines, _) = run.end_by_signal("TERM");
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert_eq!(fixture.lists(), lists, "the watch resumed from the recorded version");
}

#[test]
fn unchanged_message_is_not_resent_after_restart() {
    let rule = RULE_FOR_EACH_EVENT.replace(
        "{'old': old == null ? '' : old.metadata.resourceVersion, 'now': object.metadata.resourceVersion}",
        "object.data.value",
    );
    let fixture = Fixture::start("same", &rule);
    fixture.set_value("a", "1");
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(1), ["each Added a"]);
    run.end_by_signal("TERM");
    // The object changes, but its message does not.
    let relabel = |label: &str| {
        let labels = json!({"metadata": {"labels": {"x": label}}});
        fixture.server.merge_patch("configmaps", "default", "a", labels).expect("the object exists");
    };
    relabel("y");
    fixture.set_value("b", "1");
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(1), ["each Added b"]);
    relabel("z");
    fixture.set_value("b", "2");
    assert_eq!(run.wait_for_lines(2)[1], "each Updated b");
    let (lines, error_output) = run.end_by_signal("TERM");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(error_output.contains("2 not resent because they were unchanged"), "{error_output}");
}

#[test]
fn undelivered_message_keeps_id_after_kill() {
    let fixture = Fixture::start("undelivered", "");
    let (flag, delivered_file) = (fixture.folder.join("flag"), fixture.folder.join("taken"));
    let rules = RULE_FOR_EACH_EVENT.replace("[\"log\"]", "[\"log\", \"program\"]");
    let program = format!(
        "[sinks.program]\nexec = {{command = [\"sh\", \"-c\", \"test -e {} && cat >> {}\"]}}\nretry = {{first = \"50ms\", longest = \"100ms\"}}\n",
        flag.display(),
        delivered_file.display(),
    );
    fixture.configure(&(program + &rules));
    fixture.set_value("a", "1");
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(1), ["each Added a"]);
    let (lines, _) = run.end_by_signal("KILL");
    std::fs::write(&flag, "").expect("the folder is writable");
    let run = fixture.start_program();
    let read = || std::fs::read_to_string(&delivered_file).unwrap_or_default();
    eventually("the message", || read().ends_with('\n'));
    let (repeated, _) = run.end_by_signal("TERM");
    let delivered: Value = serde_json::from_str(&read()).expect("a delivered message");
    assert_eq!(delivered["id"], lines[0]["id"]);
    assert_eq!(
        repeated.iter().map(|line| &line["id"]).collect::<Vec<_>>(),
        [&lines[0]["id"]],
        "every sink gets the message again"
    );
}

#[test]
fn readded_rule_starts_without_state() {
    let both_rules = format!("{RULE_FOR_EACH_EVENT}{}", RULE_FOR_EACH_EVENT.replace("\"each\"", "\"other\""));
    let fixture = Fixture::start("gone", &both_rules);
    fixture.set_value("a", "1");
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(2).into_iter().collect::<BTreeSet<_>>().len(), 2);
    run.end_by_signal("TERM");
    fixture.configure(RULE_FOR_EACH_EVENT);
    let run = fixture.start_program();
    fixture.set_value("a", "2");
    assert_eq!(run.wait_for_lines(1), ["each Updated a"]);
    // The program checks every 500 ms which rules exist, and then drops the state of other rules.
    std::thread::sleep(Duration::from_secs(1));
    run.end_by_signal("TERM");
    fixture.configure(&both_rules);
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(1), ["other Added a"]);
    assert_eq!(run.end_by_signal("TERM").0.len(), 1);
}

#[test]
fn secrets_are_not_written_to_state_folder() {
    let rules = RULE_FOR_EACH_EVENT.replace("[\"cm\"]", "[\"secrets\", \"cm\"]");
    let fixture = Fixture::start("secrets", &rules);
    fixture.set_value("a", "1");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"},
        "data": {"password": "aHVudGVyMg=="}});
    fixture.server.create(&secret).expect("the secret is created");
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(2).len(), 2);
    run.end_by_signal("TERM");
    let (mut files, mut checkpoints) = (0, 0);
    for file in std::fs::read_dir(fixture.folder.join("steadfast-state")).expect("the folder exists") {
        let path = file.expect("a readable folder").path();
        let mut bytes = Vec::new();
        std::fs::File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("a readable file");
        assert!(!bytes.windows(8).any(|part| part == b"aHVudGVy"), "{}", path.display());
        files += 1;
        checkpoints += usize::from(path.extension().is_some_and(|ending| ending == "checkpoint"));
    }
    assert!(files > checkpoints && checkpoints == 1, "{files} files");
    // Secrets have no checkpoint, so the rule starts with all objects.
    let run = fixture.start_program();
    assert_eq!(run.wait_for_lines(1), ["each Added s"]);
    drop(fixture.runtime);
}

/// Deliveries of one name over all runs.
#[derive(Default)]
struct NameDeliveries<'a> {
    last: Option<&'a Value>,
    ids: BTreeSet<&'a str>,
    run: usize,
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

/// Compares the deliveries of all runs with the server's history. Returns the number of repetitions and of deletions.
fn check_deliveries(changes: &[Change], runs: &[Vec<Value>]) -> Result<(usize, usize), String> {
    let (mut names, mut repeated, mut ends) = (BTreeMap::<&str, NameDeliveries<'_>>::new(), 0, 0);
    let versions = |uid: &str| -> Vec<u64> {
        changes
            .iter()
            .filter(|change| change.uid == uid && change.object.is_some())
            .map(|change| change.version)
            .collect()
    };
    let order = |uid: &str| changes.iter().position(|change| change.uid == uid);
    for (run, line) in runs.iter().enumerate().flat_map(|(run, lines)| lines.iter().map(move |line| (run, line))) {
        let name = names.entry(text(line, "name")).or_default();
        let fault_of = |reason: &str| Err(format!("run {run}: {reason}: {line} after {:?}", name.last));
        let (id, uid) = (text(line, "id"), text(line, "uid"));
        if let Some(last) = name.last.filter(|last| text(last, "id") == id) {
            if name.run == run {
                return fault_of("delivered twice in one run");
            }
            if (&last["type"], &last["data"]) != (&line["type"], &line["data"]) {
                return fault_of("another message with the ID of an earlier one");
            }
            (name.run, repeated) = (run, repeated + 1);
            continue;
        }
        if !name.ids.insert(id) {
            return fault_of("delivered again after a later message");
        }
        let version: u64 = text(&line["data"], "now").parse().map_err(|_| format!("no version: {line}"))?;
        let object_versions = versions(uid);
        if !object_versions.contains(&version) && text(line, "type") != "Deleted" {
            return fault_of("the object never had this version");
        }
        let last = name.last.map(|last| (text(last, "type"), text(last, "uid"), text(&last["data"], "now")));
        let is_next = match (text(line, "type"), last) {
            ("Added", None) => true,
            ("Added", Some((kind, before, _))) => kind == "Deleted" && order(before) < order(uid),
            ("Updated", Some((kind, before, last_version))) => {
                kind != "Deleted" && before == uid && text(&line["data"], "old") == last_version
            }
            ("Deleted", Some((kind, before, _))) => {
                let has_ended = changes.iter().any(|change| change.uid == uid && change.object.is_none());
                kind != "Deleted" && before == uid && has_ended
            }
            _ => false,
        };
        if !is_next {
            return fault_of("the type cannot follow the previous delivery");
        }
        ends += usize::from(text(line, "type") == "Deleted");
        (name.last, name.run) = (Some(line), run);
    }
    let mut expected = BTreeMap::<&str, Option<u64>>::new();
    for change in changes {
        expected.insert(&change.name, change.object.as_ref().map(|_| change.version));
    }
    for (name, version) in expected {
        let last = names.get(name).and_then(|name| name.last);
        let last_version = last.filter(|last| text(last, "type") != "Deleted").map(|last| text(&last["data"], "now"));
        if last_version != version.map(|version| version.to_string()).as_deref() {
            return Err(format!("{name}: the server has {version:?}, but the last delivery is {last:?}"));
        }
    }
    Ok((repeated, ends))
}

#[test]
fn random_kills_lose_and_reorder_nothing() {
    let default_kills = 5;
    let kills: usize =
        std::env::var("STEADFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(default_kills);
    let fixture = Fixture::start("killed", RULE_FOR_EACH_EVENT);
    let is_ended = Arc::new(AtomicBool::new(false));
    let writer = {
        let (server, is_ended) = (fixture.server.clone(), is_ended.clone());
        std::thread::spawn(move || {
            let (mut random, mut existing) = (Random::new(1), BTreeSet::new());
            for round in 0.. {
                if is_ended.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
                let name = format!("a-{}", random.below(40));
                if existing.contains(&name) && random.below(4) == 0 {
                    server.delete_named("configmaps", "default", &name).expect("the object exists");
                    if random.below(2) == 0 {
                        existing.remove(&name);
                        continue;
                    }
                }
                set_value(&server, &name, &round.to_string());
                existing.insert(name);
            }
        })
    };
    let (mut random, mut written) = (Random::new(2), Vec::new());
    for _ in 0..kills {
        let run = fixture.start_program();
        eventually("the first line of output", || !run.lines().is_empty());
        std::thread::sleep(Duration::from_millis(random.below(600)));
        let (lines, error_output) = run.end_by_signal("KILL");
        assert!(!error_output.contains("listed again"), "{error_output}");
        written.push(lines);
    }
    is_ended.store(true, Ordering::Relaxed);
    writer.join().expect("no panic");
    let run = fixture.start_program();
    let changes = fixture.changes();
    let so_far = |run: &ProgramRun| check_deliveries(&changes, &[&written[..], &[run.lines()]].concat());
    eventually("all messages", || so_far(&run).is_ok());
    let (lines, error_output) = run.end_by_signal("TERM");
    assert!(error_output.contains("0 dead letters, 0 failed expressions"), "{error_output}");
    written.push(lines);
    let (repeated, ends) = check_deliveries(&changes, &written).unwrap_or_else(|fault| panic!("{fault}"));
    let delivered_lines: usize = written.iter().map(Vec::len).sum();
    println!(
        "{kills} kills: {delivered_lines} messages, {repeated} repeated, {ends} deletions, {} lists",
        fixture.lists()
    );
    assert!(ends * 2 > kills && delivered_lines > 20 * kills, "{delivered_lines} messages, {ends} deletions");
    // A run without a checkpoint leaves no state, so the next run lists again.
    assert!(fixture.lists() * 2 <= kills + 1, "{} lists", fixture.lists());
}
