//! Running mirrors, the dry run, and approvals of removals.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use steadfast_notify::config::sinks::SinkConfig;
use steadfast_notify::engine_event::escaped;
use steadfast_notify::state_folder::{self, StateFolder};
use steadfast_notify::{
    ApprovalRequest, Approvals, MirrorContext, MirrorFeed, MirrorMemory, MirrorPreview, OpenedMirrors, Plan,
    SupervisedMirror, Supervisor, TermGate, preview_mirrors,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::connections::{CONNECT_TIMEOUT, connect_all, sources};
use super::follow::start_inputs;
use super::replicas::shared_instance;
use super::reporter::MirrorStatusFn;
use crate::console::{self, print};
use crate::failure::Failure;

/// Maximum time to wait until a running program has processed an approval.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time to wait until the leader has processed an approval that was given to a standby.
const FORWARDED_APPROVAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The running mirrors and their state folder.
pub(super) struct Mirrors {
    tasks: BTreeMap<String, RunningMirror>,
    /// The state folder. Absent before a mirror needs it, and in simulations.
    state: Option<Arc<StateFolder>>,
    is_simulated: bool,
    supervisor: Supervisor,
    /// Permission to write to the targets.
    gate: TermGate,
}

/// A running mirror and the configuration that it was started with.
struct RunningMirror {
    sink: SinkConfig,
    fingerprint: u64,
    task: SupervisedMirror,
}

impl Mirrors {
    /// Creates an empty set. With `is_simulated`, mirrors simulate their actions.
    pub(super) fn new(is_simulated: bool, supervisor: &Supervisor) -> Self {
        let (tasks, gate) = (BTreeMap::new(), TermGate::always());
        Self { tasks, state: None, is_simulated, supervisor: supervisor.clone(), gate }
    }

    /// Sets the gate of mirrors that start from now on: these mirrors write only while `gate` is open.
    pub(super) fn set_gate(&mut self, gate: TermGate) {
        self.gate = gate;
    }

    /// Locks the state folder if the plan needs one: for checkpoints, pending deliveries or mirrors.
    pub(super) fn prepare(&mut self, plan: &Plan) -> Result<(), Failure> {
        if (plan.has_checkpoint || plan.mirrors().next().is_some()) && !self.is_simulated && self.state.is_none() {
            // Excludes a second process with this state folder, which would write to the same targets.
            self.state = Some(Arc::new(StateFolder::lock(&plan.state_folder).map_err(Failure::run)?));
        }
        Ok(())
    }

    /// Starts the mirrors of `plan` without waiting for a cluster. Unchanged mirrors continue without interruption.
    /// Entries of mirrors that were removed from the plan remain in their targets. Returns the feed of each mirror, by
    /// name.
    pub(super) fn apply_plan(&mut self, plan: &Arc<Plan>) -> BTreeMap<String, MirrorFeed> {
        let mut previous = std::mem::take(&mut self.tasks);
        let (mut feeds, mut to_start) = (BTreeMap::new(), Vec::new());
        for name in plan.mirrors() {
            let Some(sink) = plan.sinks.get(name) else { continue };
            let fingerprint = plan.fingerprint(name);
            let existing = previous.remove(name);
            match existing {
                Some(existing) if existing.sink == *sink && existing.fingerprint == fingerprint => {
                    feeds.insert(name.to_owned(), existing.task.feed().clone());
                    self.tasks.insert(name.to_owned(), existing);
                }
                existing => {
                    // The mirror that replaces `existing` continues with the sources that the feed already has.
                    let feed = existing.as_ref().map(|existing| existing.task.feed().clone()).unwrap_or_default();
                    previous.extend(existing.map(|existing| (name.to_owned(), existing)));
                    feeds.insert(name.to_owned(), feed.clone());
                    to_start.push((name, sink.clone(), fingerprint, feed));
                }
            }
        }
        // Expected clusters are recorded before any cluster task runs. Each counts as missing until its first report.
        for (name, feed) in &feeds {
            feed.expect(plan.clusters_of_mirror(name));
        }
        // Two mirrors must never write to one target, even under different names: new ones start after the old ones
        // have ended.
        let (stop_guard, wait) = watch::channel(());
        let stopping: Vec<_> = previous.into_values().map(|running| running.task.stop()).collect();
        if !stopping.is_empty() {
            tokio::spawn(async move {
                join_all(stopping).await;
                drop(stop_guard);
            });
        }
        for (name, sink, fingerprint, feed) in to_start {
            let task = SupervisedMirror::start(plan, name, feed, wait.clone(), self.context(plan), &self.supervisor);
            self.tasks.insert(name.to_owned(), RunningMirror { sink, fingerprint, task });
        }
        feeds
    }

    fn context(&self, plan: &Plan) -> MirrorContext {
        MirrorContext {
            memory: self.state.as_ref().map_or_else(MirrorMemory::volatile, |state| state.mirror_memory().clone()),
            approvals: self.state.as_ref().map(|state| state.approvals()),
            report_commands: self.is_simulated.then(|| Arc::new(report_simulated) as Arc<_>),
            report: Arc::new(console::report),
            gate: self.gate.clone(),
            instance: shared_instance(plan),
        }
    }

    /// Returns functions that return the status of each mirror.
    pub(super) fn status_fns(&self) -> Vec<(String, MirrorStatusFn)> {
        self.tasks.iter().map(|(name, running)| (name.clone(), running.task.status())).collect()
    }

    /// Returns the state folder, if one is in use.
    pub(super) fn state(&self) -> Option<&Arc<StateFolder>> {
        self.state.as_ref()
    }

    /// Stops all mirrors after their current actions. Returns the names of those that are still running at `deadline`.
    pub(super) async fn stop(&mut self, deadline: Instant) -> Vec<String> {
        let stopping = std::mem::take(&mut self.tasks)
            .into_iter()
            .map(async |(name, running)| timeout_at(deadline, running.task.stop()).await.is_err().then_some(name));
        join_all(stopping).await.into_iter().flatten().collect()
    }
}

fn report_simulated(mirror: &str, commands: Vec<String>) {
    for line in commands {
        console::report(format_args!("{mirror} | {line}"));
    }
}

/// Prints the actions of each mirror without running them.
pub(super) async fn dry_run(file: &Path) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    let opened_mirrors = OpenedMirrors::open_all(&plan).await.map_err(Failure::config)?;
    if opened_mirrors.is_empty() {
        return Err(Failure::usage(format!(
            "{} has no mirror, and --dry-run supports only mirrors; use `explain` for rules that send to streams",
            file.display()
        )));
    }
    let connected_clusters = connect_all(&plan, None).await?;
    let sources = sources(&plan, &connected_clusters).await.map_err(Failure::config)?;
    // The memory is read without the lock of the state folder, because a running program holds this lock.
    let memory = state_folder::read_mirror_memory(&plan.state_folder).map_err(Failure::run)?;
    let inputs = start_inputs(&plan, &connected_clusters, &sources)?;
    let (mut text, mut unreadable) = (String::new(), Vec::new());
    for (name, preview) in preview_mirrors(&opened_mirrors, inputs, &memory, CONNECT_TIMEOUT).await {
        match preview {
            Ok(preview) => text.push_str(&preview_text(&name, &preview)),
            Err(reason) => unreadable.push(format!("mirror {name}: {reason}")),
        }
    }
    let printed = print(&text)?;
    if unreadable.is_empty() { Ok(printed) } else { Err(Failure::run(unreadable.join("\n"))) }
}

fn preview_text(name: &str, preview: &MirrorPreview) -> String {
    let MirrorPreview { steps, commands, skipped, approvals, doubt } = preview;
    let mut text = match steps {
        0 => format!("mirror {name}: no changes\n"),
        1 => format!("mirror {name}: one step\n"),
        steps => format!("mirror {name}: {steps} steps\n"),
    };
    for line in commands {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(reason) = doubt {
        let _ = writeln!(text, "  the affected entries are not removed: {}", escaped(reason));
    }
    for (entry, reason) in skipped {
        let _ = writeln!(text, "  {} stays unchanged: {}", escaped(entry), escaped(reason));
    }
    for ApprovalRequest { id, group, names, serving } in approvals {
        let _ = writeln!(text, "  removing {} of {serving} entries of {group:?} needs approval ({id})", names.len());
    }
    text
}

/// Approves pending removals: all of them, those of one mirror, or the one with the given ID.
pub(super) async fn approve(file: &Path, sink: Option<&str>, id: Option<&str>) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    if let Some(sink) = sink.filter(|sink| !plan.sinks.get(*sink).is_some_and(SinkConfig::is_mirror)) {
        let mirrors = plan.sinks.iter().filter(|(_, sink)| sink.is_mirror()).map(|(name, _)| name.as_str());
        let mirrors = mirrors.collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("unknown mirror {sink:?}; configured mirrors: {mirrors}")));
    }
    // A standby forwards approvals to the leader, whose state it follows.
    let leader =
        state_folder::leader_of_standby(&plan.state_folder).map_err(Failure::run)?.filter(|_| plan.replicas.is_some());
    let leader = leader.map(|leader| if leader.is_empty() { "the next leader".to_owned() } else { escaped(&leader) });
    let read_pending =
        || state_folder::read_mirror_memory(&plan.state_folder).map(|memory| memory.approvals()).map_err(Failure::run);
    let selected = selected(read_pending()?, sink, id)?;
    let approvals = Approvals::new(&plan.state_folder);
    for (mirror, requests) in &selected {
        let ids: Vec<String> = requests.iter().map(|request| request.id.clone()).collect();
        approvals.add(mirror, &ids).map_err(Failure::run)?;
        for ApprovalRequest { names, serving, group, .. } in requests {
            let (count, names) = (names.len(), escaped(&names.join(", ")));
            console::report(format_args!(
                "mirror {mirror}: removing {count} of {serving} entries of {group:?}: {names}"
            ));
        }
    }
    if let Some(leader) = &leader {
        console::report(format_args!("this replica is a standby: the approval is forwarded to {leader}"));
    }
    let limit = if leader.is_some() { FORWARDED_APPROVAL_TIMEOUT } else { APPROVAL_TIMEOUT };
    let deadline = Instant::now() + limit;
    let mut pending = read_pending()?;
    // A running program first takes the approval file and then records the removal, so both must be checked.
    let is_unprocessed = |(mirror, requests): (&String, &Vec<ApprovalRequest>),
                          pending: &BTreeMap<String, Vec<ApprovalRequest>>| {
        let is_pending = |request: &ApprovalRequest| {
            pending.get(mirror).is_some_and(|requests| requests.iter().any(|other| other.id == request.id))
        };
        approvals.is_pending(mirror) || requests.iter().any(is_pending)
    };
    while selected.iter().any(|mirror| is_unprocessed(mirror, &pending)) && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
        pending = read_pending()?;
    }
    let mut failures = Vec::new();
    for (mirror, requests) in &selected {
        if approvals.is_pending(mirror) {
            let file = file.display();
            if leader.is_some() {
                failures.push(format!(
                    "mirror {mirror}: the approval was not forwarded within {limit:?}; the standby forwards it when it can use \
                     the shared state of the replicas"
                ));
            } else {
                console::report(format_args!(
                    "mirror {mirror}: no process runs {file} now; the approval applies when one starts"
                ));
            }
            continue;
        }
        // Requests of an approved group that are still pending. If the ID of such a request is new, its set of entries
        // has changed, and the approval does not apply to it.
        for request in pending
            .get(mirror)
            .into_iter()
            .flatten()
            .filter(|pending| requests.iter().any(|request| request.group == pending.group))
        {
            let id = &request.id;
            if let Some(leader) = leader.as_ref().filter(|_| requests.iter().any(|request| request.id == *id)) {
                failures.push(format!(
                    "mirror {mirror}: {leader} did not confirm the approval of {id} within {limit:?}; the approval stays, and \
                     `steadfast notify status` shows its effect"
                ));
                continue;
            }
            failures
                .push(format!("mirror {mirror}: other removals are pending now ({id}); check them, and approve again"));
        }
    }
    if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::run(failures.join("\n"))) }
}

/// Minimum length of an ID prefix.
const MIN_ID_PREFIX: usize = 6;

/// Returns the pending removals of `sink` whose ID equals `id` or starts with it.
fn selected(
    mut pending: BTreeMap<String, Vec<ApprovalRequest>>,
    sink: Option<&str>,
    id: Option<&str>,
) -> Result<BTreeMap<String, Vec<ApprovalRequest>>, Failure> {
    pending.retain(|mirror, _| sink.is_none_or(|sink| sink == mirror));
    let all: Vec<String> = pending.values().flatten().map(|request| request.id.clone()).collect();
    if let Some(id) = id {
        // A short prefix could match removals that the user has not seen.
        let is_named =
            |request: &ApprovalRequest| request.id == id || id.len() >= MIN_ID_PREFIX && request.id.starts_with(id);
        for requests in pending.values_mut() {
            requests.retain(is_named);
        }
        pending.retain(|_, requests| !requests.is_empty());
        if pending.values().map(Vec::len).sum::<usize>() > 1 {
            return Err(Failure::usage(format!(
                "several removals have an ID that starts with {id}; use a longer prefix"
            )));
        }
    }
    if pending.is_empty() {
        let reason = match (id, &all[..]) {
            (_, []) => "no removal needs approval".to_owned(),
            (None, _) => "no removal of this mirror needs approval".to_owned(),
            (Some(id), all) => format!("no removal with the ID {id} needs approval; pending are {}", all.join(", ")),
        };
        return Err(Failure::run(reason));
    }
    Ok(pending)
}
