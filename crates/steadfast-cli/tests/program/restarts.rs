//! `steadfast notify` restarts, also after `SIGKILL`: changes during the downtime are delivered, and no change is delivered again
//! with another ID. The server's history is the oracle.
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
const EACH: &str = "[[rules]]\nname = \"each\"\nresources = [\"cm\"]\nnamespaces = [\"default\"]\ninitial = true\n\
                    send = \"{'old': old == null ? '' : old.metadata.resourceVersion, 'now': object.metadata.resourceVersion}\"\n\
                    to = [\"log\"]\n";

/// A cluster, and the configuration of a program that is started repeatedly.
struct World {
    runtime: Runtime,
    server: Arc<ApiServer>,
    folder: PathBuf,
}

impl World {
    fn start(name: &str, rules: &str) -> Self {
        let folder = PathBuf::from(temp_path(&format!("restarts-{name}")));
        // Remove files of an earlier test run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(ApiServer::start()).expect("the server starts");
        std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("the folder is writable");
        let world = Self { runtime, server: Arc::new(server), folder };
        world.configure(rules);
        world
    }

    fn configure(&self, rules: &str) {
        let text = format!("[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.log.stdout]\n{rules}");
        std::fs::write(self.folder.join("notify.toml"), text).expect("the folder is writable");
    }

    fn begin(&self) -> ProgramRun {
        ProgramRun::begin(self.folder.join("notify.toml").to_str().expect("the target's path is text"))
    }

    fn set(&self, name: &str, value: &str) {
        set(&self.server, name, value);
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

fn set(server: &ApiServer, name: &str, value: &str) {
    let object = config_map(name, value);
    server.replace(&object).or_else(|_| server.create(&object)).expect("the config map is stored");
}

/// One run of the program and its output.
struct ProgramRun {
    child: Child,
    lines: Arc<parking_lot::Mutex<Vec<Value>>>,
    readers: Vec<JoinHandle<()>>,
    said: Arc<parking_lot::Mutex<String>>,
}

impl ProgramRun {
    fn begin(configuration: &str) -> Self {
        let mut child = start(&["notify", "-c", configuration]);
        let (lines, said) =
            (Arc::<parking_lot::Mutex<Vec<Value>>>::default(), Arc::<parking_lot::Mutex<String>>::default());
        let (stdout, to) = (BufReader::new(child.stdout.take().expect("a piped stdout")), lines.clone());
        let out = std::thread::spawn(move || {
            // An incomplete last line is ignored.
            for line in stdout.lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line) {
                    to.lock().push(line);
                }
            }
        });
        let (stderr, to) = (BufReader::new(child.stderr.take().expect("a piped stderr")), said.clone());
        let err = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *to.lock() += &(line + "\n");
            }
        });
        Self { child, lines, readers: vec![out, err], said }
    }

    fn lines(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    fn said(&self) -> String {
        self.said.lock().clone()
    }

    /// Waits for `count` lines and returns all lines in a short form.
    fn told(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} lines"), || self.lines().len() >= count);
        self.lines().iter().map(short).collect()
    }

    /// Ends the program by the signal `name`; returns standard output and standard error.
    fn end(mut self, name: &str) -> (Vec<Value>, String) {
        signal(&self.child, name);
        let status = self.child.wait().expect("an exit status");
        self.readers.drain(..).for_each(|reader| reader.join().expect("no panic"));
        assert!(name == "KILL" || status.success(), "{status}: {}", self.said());
        (self.lines(), self.said())
    }
}

impl Drop for ProgramRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn short(line: &Value) -> String {
    let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text("rule"), text("type"), text("name"))
}

#[test]
fn restart_delivers_only_changes_during_downtime() {
    let world = World::start("down", EACH);
    for name in ["a", "b", "c", "d"] {
        world.set(name, "1");
    }
    let life = world.begin();
    assert_eq!(life.told(4).len(), 4);
    life.end("TERM");
    let lists = world.lists();

    world.set("a", "2");
    world.set("a", "3");
    world.delete("b");
    world.delete("c");
    world.set("c", "2");
    world.set("e", "1");
    world.set("f", "1");
    world.delete("f");
    let life = world.begin();
    let told: BTreeSet<String> = life.told(5).into_iter().collect();
    let expected = ["each Updated a", "each Deleted b", "each Deleted c", "each Added c", "each Added e"];
    assert_eq!(told, expected.map(str::to_owned).into());
    world.set("d", "2");
    assert_eq!(life.told(6)[5], "each Updated d");
    let (lines, _) = life.end("TERM");
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert_eq!(world.lists(), lists, "the watch resumed from the recorded version");
}

#[test]
fn unchanged_message_is_not_resent_after_restart() {
    let rule = EACH.replace(
        "{'old': old == null ? '' : old.metadata.resourceVersion, 'now': object.metadata.resourceVersion}",
        "object.data.value",
    );
    let world = World::start("same", &rule);
    world.set("a", "1");
    let life = world.begin();
    assert_eq!(life.told(1), ["each Added a"]);
    life.end("TERM");
    // The object changes, but its message does not.
    let relabel = |label: &str| {
        let labels = json!({"metadata": {"labels": {"x": label}}});
        world.server.merge_patch("configmaps", "default", "a", labels).expect("the object exists");
    };
    relabel("y");
    world.set("b", "1");
    let life = world.begin();
    assert_eq!(life.told(1), ["each Added b"]);
    relabel("z");
    world.set("b", "2");
    assert_eq!(life.told(2)[1], "each Updated b");
    let (lines, said) = life.end("TERM");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(said.contains("2 not resent because they were unchanged"), "{said}");
}

#[test]
fn undelivered_message_keeps_id_after_kill() {
    let world = World::start("undelivered", "");
    let (flag, taken) = (world.folder.join("flag"), world.folder.join("taken"));
    let rules = EACH.replace("[\"log\"]", "[\"log\", \"program\"]");
    let program = format!(
        "[sinks.program]\nexec = {{command = [\"sh\", \"-c\", \"test -e {} && cat >> {}\"]}}\nretry = {{first = \"50ms\", longest = \"100ms\"}}\n",
        flag.display(),
        taken.display(),
    );
    world.configure(&(program + &rules));
    world.set("a", "1");
    let life = world.begin();
    assert_eq!(life.told(1), ["each Added a"]);
    let (lines, _) = life.end("KILL");
    std::fs::write(&flag, "").expect("the folder is writable");
    let life = world.begin();
    let read = || std::fs::read_to_string(&taken).unwrap_or_default();
    eventually("the message", || read().ends_with('\n'));
    let (again, _) = life.end("TERM");
    let taken: Value = serde_json::from_str(&read()).expect("a delivered message");
    assert_eq!(taken["id"], lines[0]["id"]);
    assert_eq!(
        again.iter().map(|line| &line["id"]).collect::<Vec<_>>(),
        [&lines[0]["id"]],
        "every sink gets the message again"
    );
}

#[test]
fn readded_rule_starts_without_state() {
    let both = format!("{EACH}{}", EACH.replace("\"each\"", "\"other\""));
    let world = World::start("gone", &both);
    world.set("a", "1");
    let life = world.begin();
    assert_eq!(life.told(2).into_iter().collect::<BTreeSet<_>>().len(), 2);
    life.end("TERM");
    world.configure(EACH);
    let life = world.begin();
    world.set("a", "2");
    assert_eq!(life.told(1), ["each Updated a"]);
    // The program checks every 500 ms which rules exist, and then drops the state of others.
    std::thread::sleep(Duration::from_secs(1));
    life.end("TERM");
    world.configure(&both);
    let life = world.begin();
    assert_eq!(life.told(1), ["other Added a"]);
    assert_eq!(life.end("TERM").0.len(), 1);
}

#[test]
fn secrets_are_not_written_to_state_folder() {
    let rules = EACH.replace("[\"cm\"]", "[\"secrets\", \"cm\"]");
    let world = World::start("secrets", &rules);
    world.set("a", "1");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"},
        "data": {"password": "aHVudGVyMg=="}});
    world.server.create(&secret).expect("the secret is created");
    let life = world.begin();
    assert_eq!(life.told(2).len(), 2);
    life.end("TERM");
    let (mut files, mut checkpoints) = (0, 0);
    for file in std::fs::read_dir(world.folder.join("steadfast-state")).expect("the folder exists") {
        let path = file.expect("a readable folder").path();
        let mut bytes = Vec::new();
        std::fs::File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("a readable file");
        assert!(!bytes.windows(8).any(|part| part == b"aHVudGVy"), "{}", path.display());
        files += 1;
        checkpoints += usize::from(path.extension().is_some_and(|ending| ending == "checkpoint"));
    }
    assert!(files > checkpoints && checkpoints == 1, "{files} files");
    // Secrets have no checkpoint, so the rule starts with all objects.
    let life = world.begin();
    assert_eq!(life.told(1), ["each Added s"]);
    drop(world.runtime);
}

/// Deliveries of one name over all runs.
#[derive(Default)]
struct Name<'a> {
    last: Option<&'a Value>,
    ids: BTreeSet<&'a str>,
    life: usize,
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

/// Compares the deliveries of all runs with the server's history. Returns the number of repetitions and of deletions.
fn judge(changes: &[Change], lives: &[Vec<Value>]) -> Result<(usize, usize), String> {
    let (mut names, mut again, mut ends) = (BTreeMap::<&str, Name<'_>>::new(), 0, 0);
    let versions = |uid: &str| -> Vec<u64> {
        changes
            .iter()
            .filter(|change| change.uid == uid && change.object.is_some())
            .map(|change| change.version)
            .collect()
    };
    let order = |uid: &str| changes.iter().position(|change| change.uid == uid);
    for (life, line) in lives.iter().enumerate().flat_map(|(life, lines)| lines.iter().map(move |line| (life, line))) {
        let name = names.entry(text(line, "name")).or_default();
        let wrong = |why: &str| Err(format!("life {life}: {why}: {line} after {:?}", name.last));
        let (id, uid) = (text(line, "id"), text(line, "uid"));
        if let Some(last) = name.last.filter(|last| text(last, "id") == id) {
            if name.life == life {
                return wrong("delivered twice in one run");
            }
            if (&last["type"], &last["data"]) != (&line["type"], &line["data"]) {
                return wrong("another message with the ID of an earlier one");
            }
            (name.life, again) = (life, again + 1);
            continue;
        }
        if !name.ids.insert(id) {
            return wrong("delivered again after a later message");
        }
        let version: u64 = text(&line["data"], "now").parse().map_err(|_| format!("no version: {line}"))?;
        let of = versions(uid);
        if !of.contains(&version) && text(line, "type") != "Deleted" {
            return wrong("the object never had this version");
        }
        let last = name.last.map(|last| (text(last, "type"), text(last, "uid"), text(&last["data"], "now")));
        let is_next = match (text(line, "type"), last) {
            ("Added", None) => true,
            ("Added", Some((kind, before, _))) => kind == "Deleted" && order(before) < order(uid),
            ("Updated", Some((kind, before, known))) => {
                kind != "Deleted" && before == uid && text(&line["data"], "old") == known
            }
            ("Deleted", Some((kind, before, _))) => {
                let has_ended = changes.iter().any(|change| change.uid == uid && change.object.is_none());
                kind != "Deleted" && before == uid && has_ended
            }
            _ => false,
        };
        if !is_next {
            return wrong("the type cannot follow the previous delivery");
        }
        ends += usize::from(text(line, "type") == "Deleted");
        (name.last, name.life) = (Some(line), life);
    }
    let mut there = BTreeMap::<&str, Option<u64>>::new();
    for change in changes {
        there.insert(&change.name, change.object.as_ref().map(|_| change.version));
    }
    for (name, version) in there {
        let last = names.get(name).and_then(|name| name.last);
        let known = last.filter(|last| text(last, "type") != "Deleted").map(|last| text(&last["data"], "now"));
        if known != version.map(|version| version.to_string()).as_deref() {
            return Err(format!("{name}: the server has {version:?}, but the last delivery is {last:?}"));
        }
    }
    Ok((again, ends))
}

#[test]
fn random_kills_lose_and_reorder_nothing() {
    let usually = 5;
    let kills: usize = std::env::var("STEADFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(usually);
    let world = World::start("killed", EACH);
    let ended = Arc::new(AtomicBool::new(false));
    let writer = {
        let (server, ended) = (world.server.clone(), ended.clone());
        std::thread::spawn(move || {
            let (mut random, mut there) = (Random::new(1), BTreeSet::new());
            for round in 0.. {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
                let name = format!("a-{}", random.below(40));
                if there.contains(&name) && random.below(4) == 0 {
                    server.delete_named("configmaps", "default", &name).expect("the object exists");
                    if random.below(2) == 0 {
                        there.remove(&name);
                        continue;
                    }
                }
                set(&server, &name, &round.to_string());
                there.insert(name);
            }
        })
    };
    let (mut random, mut written) = (Random::new(2), Vec::new());
    for _ in 0..kills {
        let life = world.begin();
        eventually("the first line of output", || !life.lines().is_empty());
        std::thread::sleep(Duration::from_millis(random.below(600)));
        let (lines, said) = life.end("KILL");
        assert!(!said.contains("listed again"), "{said}");
        written.push(lines);
    }
    ended.store(true, Ordering::Relaxed);
    writer.join().expect("no panic");
    let life = world.begin();
    let changes = world.changes();
    let so_far = |life: &ProgramRun| judge(&changes, &[&written[..], &[life.lines()]].concat());
    eventually("all messages", || so_far(&life).is_ok());
    let (lines, said) = life.end("TERM");
    assert!(said.contains("0 dead letters, 0 failed expressions"), "{said}");
    written.push(lines);
    let (again, ends) = judge(&changes, &written).unwrap_or_else(|wrong| panic!("{wrong}"));
    let told: usize = written.iter().map(Vec::len).sum();
    println!("{kills} kills: {told} messages, {again} repeated, {ends} deletions, {} lists", world.lists());
    assert!(ends * 2 > kills && told > 20 * kills, "{told} messages, {ends} deletions");
    // A run without a checkpoint leaves no state, so the next run lists again.
    assert!(world.lists() * 2 <= kills + 1, "{} lists", world.lists());
}
