//! `steadfast watch` on a real kube-apiserver that is killed and restarted: the checker compares its lines with
//! the history of the etcd.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use steadfast_contract::{
    Certainty, HandlerEvent, History, Key, ObjectVersionRef, Reason, Record, Scope, StoreContent, check,
};
use steadfast_testing::proxy::FaultProxy;
use steadfast_testing::reference::Reference;
use steadfast_testing::{Recorder, TestError, config_map};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

const LINE_TIMEOUT: Duration = Duration::from_secs(60);
const INFORMER: &str = "steadfast watch";
const HANDLER: &str = "its lines";

/// A line of `steadfast watch -o json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    certainty: Option<String>,
    reason: Option<String>,
    state: Option<String>,
}

/// A running program; killed when dropped.
struct RunningWatch {
    program: Child,
    lines: UnboundedReceiver<String>,
    stderr_text: Arc<Mutex<String>>,
    state: WatchState,
}

impl RunningWatch {
    fn start(kubeconfig: &Path, recorder: Recorder) -> Result<Self, TestError> {
        let mut program = Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .args(["watch", "configmaps", "-A", "-o", "json", "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (output, errors) = (program.stdout.take(), program.stderr.take());
        let (sender, lines) = unbounded_channel();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let stderr_text: Arc<Mutex<String>> = Arc::default();
        let stderr_sink = stderr_text.clone();
        thread::spawn(move || {
            for byte in errors.into_iter().flat_map(|errors| BufReader::new(errors).bytes()).map_while(Result::ok) {
                stderr_sink.lock().push(char::from(byte));
            }
        });
        Ok(Self { program, lines, stderr_text, state: WatchState::new(recorder) })
    }

    /// Processes lines until `is_expected` accepts a line.
    async fn process_until(&mut self, is_expected: impl Fn(&Line) -> bool) -> Result<(), TestError> {
        let read_lines = async {
            while let Some(line) = self.lines.recv().await {
                let line: Line = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
                self.state.apply_line(&line)?;
                if is_expected(&line) {
                    return Ok(());
                }
            }
            Err(TestError::from("the program has ended"))
        };
        let read = timeout(LINE_TIMEOUT, read_lines).await.unwrap_or_else(|_| Err("no such line came".into()));
        read.map_err(|error| format!("{error}; it complained:\n{}", self.stderr_text()).into())
    }

    fn stderr_text(&self) -> String {
        self.stderr_text.lock().clone()
    }
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// State after the lines read so far. Contains the kind, certainty and reason of each line, by object name.
struct WatchState {
    recorder: Recorder,
    objects: BTreeMap<Key, ObjectVersionRef>,
    events: BTreeMap<String, Vec<String>>,
    calls: u64,
    is_synced: bool,
    /// Reported states of freshness.
    states: Vec<String>,
}

impl WatchState {
    fn new(recorder: Recorder) -> Self {
        recorder.write(Record::informer(INFORMER, Scope::all()));
        recorder.write(Record::registered(HANDLER, INFORMER));
        Self {
            recorder,
            objects: BTreeMap::new(),
            events: BTreeMap::new(),
            calls: 0,
            is_synced: false,
            states: Vec::new(),
        }
    }

    fn apply_line(&mut self, line: &Line) -> Result<(), TestError> {
        assert_eq!(line.resource, "configmaps");
        match line.kind.as_str() {
            "Synced" => {
                self.is_synced = true;
                return Ok(());
            }
            "Freshness" => {
                self.states.push(line.state.clone().ok_or("a line of freshness without a state")?);
                return Ok(());
            }
            _ => {}
        }
        let key = Key::new(line.namespace.as_deref(), line.name.as_deref().ok_or("a line without a name")?);
        let texts = [Some(&line.kind), line.certainty.as_ref(), line.reason.as_ref()];
        let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
        self.events.entry(key.name.clone()).or_default().push(texts.join(" "));
        let delivery = self.delivery(&key, line)?;
        match &delivery {
            HandlerEvent::Deleted { .. } => drop(self.objects.remove(&key)),
            other => drop(self.objects.insert(key, other.object().clone())),
        }
        self.calls += 1;
        self.recorder.write(Record::entered(HANDLER, self.calls, delivery, StoreContent::NotRead));
        self.recorder.write(Record::returned(HANDLER, self.calls));
        Ok(())
    }

    /// Converts `line` to a record. The object last seen at `key` is the old state.
    fn delivery(&self, key: &Key, line: &Line) -> Result<HandlerEvent, TestError> {
        let uid = line.uid.as_deref().ok_or("a line without a UID")?;
        let version = line.resource_version.as_deref();
        let previous_object = self.objects.get(key).cloned();
        let object = ObjectVersionRef::new(key.namespace.as_deref(), &key.name, uid, version.unwrap_or_default());
        Ok(match line.kind.as_str() {
            "Added" => HandlerEvent::Added { object, initial: !self.is_synced },
            "Updated" => {
                HandlerEvent::Updated { old: previous_object.ok_or("an update of an unknown object")?, new: object }
            }
            "Deleted" => {
                let last_object = previous_object.ok_or("a deletion of an unknown object")?;
                assert_eq!(last_object.uid, uid, "{key} is another one");
                let certainty = match line.certainty.as_deref() {
                    Some("Observed") => Certainty::Observed,
                    Some("Inferred") => Certainty::Inferred,
                    other => return Err(format!("certainty {other:?}").into()),
                };
                let reason = match line.reason.as_deref() {
                    Some("Deleted") => Reason::Deleted,
                    Some("Replaced") => Reason::Replaced,
                    other => return Err(format!("reason {other:?} without a selector").into()),
                };
                HandlerEvent::Deleted { last: last_object, version: version.map(str::to_owned), certainty, reason }
            }
            other => return Err(format!("a line of the type {other:?}").into()),
        })
    }

    fn events_of(&self, name: &str) -> &[String] {
        self.events.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Returns the objects at the end of `history`.
fn final_objects(history: &History) -> BTreeMap<Key, ObjectVersionRef> {
    let mut objects = BTreeMap::new();
    for change in history.changes() {
        let version = change.version.to_string();
        let object = ObjectVersionRef::new(change.namespace.as_deref(), &change.name, &change.uid, &version);
        match change.object {
            Some(_) => drop(objects.insert(change.key(), object)),
            None => drop(objects.remove(&change.key())),
        }
    }
    objects
}

/// Writes config maps and other objects directly to the server, without the proxy.
struct Writer(Client);

impl Writer {
    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.0.clone(), "default")
    }

    async fn create(&self, name: &str, value: &str) -> Result<(), TestError> {
        self.config_maps().create(&PostParams::default(), &config_map(name, value)).await?;
        Ok(())
    }

    async fn set(&self, name: &str, value: &str) -> Result<(), TestError> {
        let patch = Patch::Merge(json!({ "data": { "value": value } }));
        self.config_maps().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), TestError> {
        self.config_maps().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn write_unrelated(&self) -> Result<(), TestError> {
        let metadata = ObjectMeta { generate_name: Some("other-".to_owned()), ..ObjectMeta::default() };
        let secrets: Api<Secret> = Api::namespaced(self.0.clone(), "default");
        secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_reports_all_changes_across_restarts() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let proxy = FaultProxy::start([reference.address(0)])?;
    let kubeconfig = reference.kubeconfig().with_file_name("by-proxy");
    let (direct, by_proxy) = (reference.address(0).to_string(), proxy.address().to_string());
    fs::write(&kubeconfig, fs::read_to_string(reference.kubeconfig())?.replace(&direct, &by_proxy))?;
    let writer = Writer(reference.connection().await?.client());
    for name in ["changed", "recreated", "deleted"] {
        writer.create(name, "1").await?;
    }

    let recorder = reference.recorder();
    let mut watch = RunningWatch::start(&kubeconfig, recorder.clone())?;
    watch.process_until(|line| line.kind == "Synced").await?;
    writer.set("changed", "2").await?;
    watch.process_until(|line| line.kind == "Updated").await?;

    // Restarted without a write in the meantime.
    reference.kill(0);
    reference.start_again(0).await?;
    writer.set("changed", "3").await?;
    watch.process_until(|line| line.kind == "Updated").await?;

    // Restarted with changes before the program can reconnect: the server's watch cache no longer has the program's
    // version.
    proxy.faults().refuse(true);
    writer.write_unrelated().await?;
    reference.kill(0);
    reference.start_again(0).await?;
    writer.delete("recreated").await?;
    writer.create("recreated", "2").await?;
    writer.delete("deleted").await?;
    proxy.faults().refuse(false);
    let is_recreated = |line: &Line| line.kind == "Added" && line.name.as_deref() == Some("recreated");
    watch.process_until(is_recreated).await?;
    writer.create("last", "1").await?;
    recorder.write(Record::Quiet);
    watch.process_until(|line| line.name.as_deref() == Some("last")).await?;
    recorder.write(Record::Settled);

    assert!(watch.program.try_wait()?.is_none(), "the watch still runs");
    assert_eq!(watch.state.events_of("changed"), ["Added", "Updated", "Updated"]);
    assert_eq!(watch.state.events_of("recreated"), ["Added", "Deleted Inferred Replaced", "Added"]);
    assert_eq!(watch.state.events_of("deleted"), ["Added", "Deleted Inferred Deleted"]);
    assert!(watch.stderr_text().contains("fresh again"), "{}", watch.stderr_text());
    assert!(watch.state.states.iter().any(|state| state == "Fresh"), "{:?}", watch.state.states);
    let history = reference.history("", "configmaps").await?;
    assert_eq!(watch.state.objects, final_objects(&history), "the lines add up to the existing objects");
    let verdict = check(&history, &recorder.trace())?.total();
    assert_eq!((verdict.lost, verdict.repeated, verdict.out_of_order), (0, 0, 0), "{verdict:?}");
    Ok(())
}
