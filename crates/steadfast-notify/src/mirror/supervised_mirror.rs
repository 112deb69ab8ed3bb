//! Supervised task of one mirror: opens, runs and reopens the mirror.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::credentials::Credentials;
use super::driver::{BoxedFuture, MirrorSinkStatus};
use super::feed::MirrorFeed;
use super::manager::{MirrorContext, MirrorManager};
use super::open::{OpenedMirror, UnopenedMirror, open};
use crate::engine_event::EngineEvent;
use crate::plan::Plan;
use crate::supervise::{Supervised, Supervisor};

/// Delay before the second attempt to open a mirror. Each further delay doubles.
const OPEN_INITIAL_DELAY: Duration = Duration::from_secs(1);

/// Maximum delay between attempts to open a mirror.
const OPEN_MAX_DELAY: Duration = Duration::from_secs(30);

/// Maximum time for an earlier run to finish the current step.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Function that opens the target of a mirror.
type Open = dyn Fn() -> BoxedFuture<'static, Result<OpenedMirror, UnopenedMirror>> + Send + Sync;

/// Functions to open a mirror and to read the credentials.
#[derive(Clone)]
struct MirrorOpener {
    open: Arc<Open>,
    credentials: Arc<dyn Fn() -> Credentials + Send + Sync>,
}

impl MirrorOpener {
    async fn read_credentials(&self) -> Credentials {
        let credentials = self.credentials.clone();
        // If the read panics, the files are not watched. The mirror works nevertheless.
        spawn_blocking(move || credentials()).await.unwrap_or_default()
    }
}

/// Running mirror of a plan. Dropping the value stops the mirror without waiting for the current step.
pub struct SupervisedMirror {
    name: String,
    feed: MirrorFeed,
    slot: Arc<MirrorSlot>,
    task: Supervised,
}

/// Mirror manager of the current run.
#[derive(Default)]
struct MirrorSlot {
    manager: Mutex<Option<Arc<MirrorManager>>>,
    /// Reason why the mirror is not open.
    open_failure: Mutex<Option<Arc<str>>>,
}

impl MirrorSlot {
    fn manager(&self) -> Option<Arc<MirrorManager>> {
        self.manager.lock().clone()
    }

    fn set(&self, manager: Option<Arc<MirrorManager>>) {
        *self.manager.lock() = manager;
    }

    fn status(&self) -> MirrorSinkStatus {
        if let Some(manager) = self.manager() {
            return manager.status();
        }
        let reason = self.open_failure.lock().clone();
        let reason = reason.unwrap_or_else(|| "the mirror has not been opened yet".into());
        MirrorSinkStatus::blocked(reason)
    }
}

impl SupervisedMirror {
    /// Starts the mirror `name` of `plan` on the current runtime after all senders of `earlier_stopped` have been
    /// dropped. The mirror follows later changes of `feed`.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start(
        plan: &Arc<Plan>,
        name: &str,
        feed: MirrorFeed,
        earlier_stopped: watch::Receiver<()>,
        context: MirrorContext,
        supervisor: &Supervisor,
    ) -> Self {
        let (plan, mirror_name) = (plan.clone(), name.to_owned());
        let credentials = {
            let (plan, name) = (plan.clone(), name.to_owned());
            move || plan.sinks.get(&name).map(|sink| Credentials::read(sink, &plan.folder)).unwrap_or_default()
        };
        let open = move || -> BoxedFuture<'static, Result<OpenedMirror, UnopenedMirror>> {
            let (plan, mirror_name) = (plan.clone(), mirror_name.clone());
            Box::pin(async move { open(&plan, &mirror_name).await })
        };
        Self::start_with(open, credentials, name, feed, earlier_stopped, context, supervisor)
    }

    fn start_with(
        open: impl Fn() -> BoxedFuture<'static, Result<OpenedMirror, UnopenedMirror>> + Send + Sync + 'static,
        credentials: impl Fn() -> Credentials + Send + Sync + 'static,
        name: &str,
        feed: MirrorFeed,
        earlier_stopped: watch::Receiver<()>,
        context: MirrorContext,
        supervisor: &Supervisor,
    ) -> Self {
        let slot = Arc::<MirrorSlot>::default();
        let opener = MirrorOpener { open: Arc::new(open), credentials: Arc::new(credentials) };
        let run = {
            let (name, feed, slot) = (name.to_owned(), feed.clone(), slot.clone());
            move || {
                let mut earlier_stopped = earlier_stopped.clone();
                let run = run(opener.clone(), name.clone(), feed.clone(), slot.clone(), context.clone());
                async move {
                    // Never run two writers for one target. The timeout bounds the wait for an earlier run that hangs.
                    let earlier_ended = async { while earlier_stopped.changed().await.is_ok() {} };
                    let _ = timeout(STOP_TIMEOUT, earlier_ended).await;
                    run.await
                }
            }
        };
        let task = supervisor.spawn(format!("mirror {name}"), run);
        Self { name: name.to_owned(), feed, slot, task }
    }

    /// Returns the name of the mirror's sink.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the feed of the mirror.
    pub fn feed(&self) -> &MirrorFeed {
        &self.feed
    }

    /// Returns a function that returns the current status.
    pub fn status(&self) -> Box<dyn Fn() -> MirrorSinkStatus + Send + Sync> {
        let slot = self.slot.clone();
        Box::new(move || slot.status())
    }

    /// Stops the mirror after the current step. The entries stay in the target.
    pub async fn stop(self) {
        let Self { slot, task, .. } = self;
        task.stop().await;
        if let Some(manager) = slot.manager() {
            manager.stop().await;
        }
    }
}

async fn run(
    opener: MirrorOpener,
    name: String,
    feed: MirrorFeed,
    slot: Arc<MirrorSlot>,
    context: MirrorContext,
) -> String {
    // A restart after a panic may find the mirror of the previous run.
    stop_earlier(&slot).await;
    // Read before opening the mirror, so that a change in between is detected afterwards.
    let mut credentials = opener.read_credentials().await;
    let mut opened_mirror = open_with_retry(&*opener.open, &name, &slot, &context).await;
    loop {
        let (manager, mut ended) = MirrorManager::start(name.clone(), opened_mirror, feed.clone(), context.clone());
        slot.set(Some(Arc::new(manager)));
        let reopened = async {
            loop {
                credentials.wait_for_change().await;
                match (opener.open)().await {
                    Ok(opened_mirror) => return opened_mirror,
                    // Continue with the current credentials. A file may be partially written, and is read again later.
                    Err(unopened) => {
                        (context.report)(EngineEvent::CredentialsUnusable {
                            sink: name.clone(),
                            reason: unopened.problem.to_string(),
                        });
                    }
                }
            }
        };
        opened_mirror = tokio::select! {
            ended = &mut ended => match ended {
                Ok(reason) => return reason,
                // The supervisor reports the panic under the name of the mirror.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => return error.to_string(),
            },
            opened_mirror = reopened => opened_mirror,
        };
        // The old mirror stops before the new one starts, so that one writer acts at a time.
        stop_earlier(&slot).await;
        (context.report)(EngineEvent::CredentialsReplaced { sink: name.clone() });
    }
}

/// Stops the mirror of an earlier run, so that no two writers use one target.
async fn stop_earlier(slot: &MirrorSlot) {
    if let Some(earlier) = slot.manager() {
        // The future of `stop` owns the mirror. A timeout drops the future, which aborts the mirror with its steps in
        // flight.
        let _ = timeout(STOP_TIMEOUT, earlier.stop()).await;
        slot.set(None);
    }
}

/// Opens the mirror. Retries until success.
async fn open_with_retry(open: &Open, name: &str, slot: &MirrorSlot, context: &MirrorContext) -> OpenedMirror {
    let (mut last_reported, mut delay) = (None, OPEN_INITIAL_DELAY);
    loop {
        let reason = match open().await {
            Ok(opened_mirror) => {
                if last_reported.is_some() {
                    (context.report)(EngineEvent::SinkOpened { sink: name.to_owned() });
                }
                *slot.open_failure.lock() = None;
                return opened_mirror;
            }
            Err(unopened) => unopened.problem.to_string(),
        };
        // Report each reason only once, but show the current reason in the status.
        *slot.open_failure.lock() = Some(reason.as_str().into());
        if last_reported.as_ref() != Some(&reason) {
            (context.report)(EngineEvent::SinkNotOpened { sink: name.to_owned(), reason: reason.clone() });
            last_reported = Some(reason);
        }
        sleep(delay).await;
        delay = (delay * 2).min(OPEN_MAX_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use std::collections::BTreeMap;

    use steadfast_targets::{MirrorMemory, MirrorSettings, ObjectId, TermGate};

    use super::super::collect::CollectedEntries;
    use super::super::driver::{AnyDriver, AnyMirror, CommandsCallback, MirrorConditions, MirrorPreview};
    use super::super::grouping::Grouping;
    use super::*;
    use crate::entry_fields::SERVER;
    use crate::problem::{FilePosition, Problem};

    /// Mirror that panics in the first `panics` calls of `set_desired`.
    struct InjectedMirror {
        panics: Arc<AtomicU32>,
        desired: Arc<Mutex<Vec<String>>>,
        has_ended: bool,
    }

    impl AnyDriver for InjectedMirror {
        fn start(
            self: Box<Self>,
            _: &str,
            _: MirrorSettings,
            _: MirrorMemory,
            _: Option<CommandsCallback>,
        ) -> Arc<dyn AnyMirror> {
            Arc::new(*self)
        }

        fn preview<'a>(
            &'a self,
            _: &'a str,
            _: &'a MirrorSettings,
            _: &'a MirrorMemory,
            _: &'a CollectedEntries,
        ) -> BoxedFuture<'a, Result<MirrorPreview, Arc<str>>> {
            Box::pin(async { Ok(MirrorPreview::default()) })
        }
    }

    impl AnyMirror for InjectedMirror {
        fn set_desired(&self, collected_entries: &CollectedEntries) -> BTreeMap<ObjectId, Arc<str>> {
            let remaining =
                self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| remaining.checked_sub(1));
            assert!(remaining.is_err(), "injected");
            let uncertain_origins = collected_entries
                .uncertain_origins
                .clusters
                .iter()
                .map(|(cluster, reason)| format!("{cluster}: {reason}"));
            let uncertain_origins = uncertain_origins.chain(collected_entries.doubt.iter().map(ToString::to_string));
            self.desired.lock().push(uncertain_origins.collect::<Vec<_>>().join(", "));
            BTreeMap::new()
        }

        fn compare_now(&self) {}

        fn conditions(&self) -> MirrorConditions {
            MirrorConditions::default()
        }

        fn status(&self) -> MirrorSinkStatus {
            MirrorSinkStatus { is_settled: true, failing: None, ..MirrorSinkStatus::blocked("".into()) }
        }

        fn end_reason(&self) -> Option<String> {
            self.has_ended.then(|| "the task of the mirror panicked: injected".to_owned())
        }

        fn stop(&self) -> BoxedFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    struct Fixture {
        engine_events: Arc<Mutex<Vec<EngineEvent>>>,
        desired: Arc<Mutex<Vec<String>>>,
        feed: MirrorFeed,
        task: SupervisedMirror,
    }

    impl Fixture {
        /// Starts a mirror. The first `unopened` attempts to open it fail.
        fn start(unopened: u32, panics: u32, has_ended: bool) -> Self {
            Self::start_with_files(unopened, panics, has_ended, Credentials::default)
        }

        fn start_with_files(
            unopened: u32,
            panics: u32,
            has_ended: bool,
            credentials: impl Fn() -> Credentials + Send + Sync + 'static,
        ) -> Self {
            let (engine_events, desired) =
                (Arc::<Mutex<Vec<EngineEvent>>>::default(), Arc::<Mutex<Vec<String>>>::default());
            let (event_log, panics, remaining_failures) =
                (engine_events.clone(), Arc::new(AtomicU32::new(panics)), AtomicU32::new(unopened));
            let report: Arc<crate::engine_event::EventCallback> = Arc::new(move |event| event_log.lock().push(event));
            let desired_log = desired.clone();
            let open = move || -> BoxedFuture<'static, Result<OpenedMirror, UnopenedMirror>> {
                let remaining_failures =
                    remaining_failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining_failures| {
                        remaining_failures.checked_sub(1)
                    });
                let (panics, desired) = (panics.clone(), desired_log.clone());
                let driver = Box::new(InjectedMirror { panics, desired, has_ended });
                let opened_mirror = OpenedMirror {
                    driver,
                    settings: MirrorSettings::default(),
                    entry_fields: SERVER,
                    grouping: Grouping::default(),
                };
                let description = "the file key: no such file".to_owned();
                let problem = Problem {
                    file: "x.toml".to_owned(),
                    position: FilePosition::START,
                    description,
                    remedy: "write it".to_owned(),
                };
                Box::pin(async move {
                    if remaining_failures.is_ok() {
                        Err(UnopenedMirror { problem, has_external_cause: true })
                    } else {
                        Ok(opened_mirror)
                    }
                })
            };
            let (gate, instance) = (TermGate::always(), None);
            let context = MirrorContext {
                memory: MirrorMemory::volatile(),
                approvals: None,
                report_commands: None,
                report: report.clone(),
                gate,
                instance,
            };
            let (feed, supervisor) = (MirrorFeed::default(), Supervisor::new(report));
            feed.expect(["west"]);
            let earlier_stopped = watch::channel(()).1;
            let task = SupervisedMirror::start_with(
                open,
                credentials,
                "web",
                feed.clone(),
                earlier_stopped,
                context,
                &supervisor,
            );
            Self { engine_events, desired, feed, task }
        }

        fn last_doubt(&self) -> Option<String> {
            self.desired.lock().last().cloned()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn mirror_starts_before_clusters_respond() {
        let mirror = Fixture::start(0, 0, false);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(mirror.last_doubt().as_deref(), Some("west: the cluster has not responded yet"));
        mirror.feed.set("west", Vec::new(), None);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(mirror.last_doubt().as_deref(), Some("no rule feeds the mirror"), "the cluster is certain");
        assert!((mirror.task.status())().is_settled);
        mirror.task.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn unopened_mirror_is_retried_and_reported_once() {
        let mirror = Fixture::start(3, 0, false);
        sleep(Duration::from_millis(100)).await;
        let failing = (mirror.task.status())().failing.expect("the mirror is not open");
        assert!(failing.contains("the file key"), "{failing}");
        sleep(Duration::from_secs(8)).await;
        assert!((mirror.task.status())().failing.is_none());
        let engine_events = mirror.engine_events.lock();
        assert!(
            matches!(&engine_events[..], [EngineEvent::SinkNotOpened { .. }, EngineEvent::SinkOpened { sink }]
                if sink == "web"),
            "{engine_events:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn collector_panic_restarts_mirror() {
        let mirror = Fixture::start(0, 2, false);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(
            mirror.last_doubt().as_deref(),
            Some("west: the cluster has not responded yet"),
            "the mirror works again"
        );
        let engine_events = mirror.engine_events.lock();
        let ended = engine_events.iter().filter(|event| {
            matches!(event, EngineEvent::TaskEnded { task, reason, .. }
                if task == "mirror web" && reason == "panicked: injected")
        });
        assert_eq!(ended.count(), 2, "{engine_events:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn panicked_compare_task_is_restarted() {
        let mirror = Fixture::start(0, 0, true);
        sleep(Duration::from_millis(500)).await;
        let engine_events = mirror.engine_events.lock();
        assert!(matches!(&engine_events[..], [EngineEvent::TaskEnded { reason, .. }]
                if reason.contains("panicked: injected")));
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_certificate_reopens_the_mirror() {
        let folder = std::env::temp_dir().join(format!("steadfast-reopened-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("ca");
        std::fs::write(&file, "one").expect("a file");
        let text = "etcd = {endpoints = [\"https://127.0.0.1\"], prefix = \"/a/\", mark = \"m\", ca_file = \"ca\"}";
        let sink = toml::from_str(text).expect("a sink");
        let path = folder.clone();
        let mirror = Fixture::start_with_files(0, 0, false, move || Credentials::read(&sink, &path));
        mirror.feed.set("west", Vec::new(), None);
        sleep(Duration::from_secs(30)).await;
        let desired = mirror.desired.lock().len();
        std::fs::write(&file, "two").expect("a file");
        sleep(Duration::from_secs(30)).await;
        assert!(mirror.desired.lock().len() > desired, "the new mirror receives the desired entries");
        let engine_events = mirror.engine_events.lock().clone();
        assert!(
            matches!(&engine_events[..], [EngineEvent::CredentialsReplaced { sink }] if sink == "web"),
            "{engine_events:?}"
        );
        mirror.task.stop().await;
        std::fs::remove_dir_all(folder).expect("a folder");
    }
}
