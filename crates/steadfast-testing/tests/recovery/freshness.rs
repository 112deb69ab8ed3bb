//! Tests of the freshness (C10, R2) and of the audit (R12), with the cost of each. The freshness is calibrated by the
//! behaviour of each stream. The tests run in virtual time on a server in memory. For each bound, the scenario must
//! fail for a library with an injected fault.

mod audit;
mod bookmarks;
mod clock;
mod contract;
mod lists;
mod probes;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::transport::Settings;
use steadfast::{Diagnostic, Freshness, Informer, InformerBuilder, InformerFactory, InjectedFault, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder, Verb};
use steadfast_testing::{CachedForm, ConfigMapInForm, InMemory, TestError, builder_with_form, config_map, until};
use tokio::time::Instant;

const PERIOD: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Time in which a client or the server reacts to a change.
const REACTION_TIME: Duration = Duration::from_secs(2);

struct FreshnessFixture {
    server: Arc<ApiServer>,
    factory: InformerFactory,
}

/// Number of requests in a time span.
#[derive(Debug)]
struct RequestCounts {
    lists: usize,
    probes: usize,
    /// Watches of four seconds, in addition to the regular watch.
    short_watches: usize,
    watches: usize,
}

impl FreshnessFixture {
    async fn with_builder(builder: ApiServerBuilder) -> Result<Self, TestError> {
        let server = Arc::new(builder.in_memory().protobuf(CachedForm::current().protobuf).start().await?);
        let settings = Settings { prior_knowledge: true, ..Settings::default() };
        let memory = InMemory { seed: 11, settings, ..InMemory::default() };
        let factory = InformerFactory::new(&memory.connection(&server).await?);
        Ok(Self { server, factory })
    }

    async fn new() -> Result<Self, TestError> {
        Self::with_builder(ApiServer::builder()).await
    }

    /// Creates a server like some aggregated ones: without streamed lists and bookmarks.
    async fn without_bookmarks() -> Result<Self, TestError> {
        let fixture = Self::new().await?;
        fixture.server.faults().refuse_streamed_lists(true);
        fixture.server.faults().no_bookmarks(true);
        Ok(fixture)
    }

    fn build(&self) -> InformerBuilder<'_, ConfigMapInForm> {
        builder_with_form(&self.factory, Scope::all())
    }

    async fn synced_informer(&self) -> Result<Informer<ConfigMapInForm>, TestError> {
        start_fresh(self.build(), None).await
    }

    /// Writes unrelated objects periodically, until the server is dropped.
    fn write_periodically(&self, interval: Duration) {
        let server = self.server.clone();
        tokio::spawn(async move {
            for number in 0_u32.. {
                tokio::time::sleep(interval).await;
                let name = format!("n-{number}");
                let secret = serde_json::json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "default", "name": name }
                });
                // A frozen server rejects writes.
                let _ = server.create(&secret);
            }
        });
    }

    fn requests_since(&self, begin: Duration) -> RequestCounts {
        let mut counts = RequestCounts { lists: 0, probes: 0, short_watches: 0, watches: 0 };
        for request in self.server.requests().iter().filter(|request| request.at >= begin) {
            match request.verb {
                Verb::List | Verb::StreamedList => counts.lists += 1,
                // Before a short watch, the client sends a request for no object on the same connection. It is not
                // counted.
                Verb::Watch | Verb::Probe if request.query.contains("metadata.name") => {}
                Verb::Probe => counts.probes += 1,
                Verb::Watch
                    if ["timeoutSeconds=4", "timeoutSeconds=1"]
                        .iter()
                        .any(|parameter| request.query.ends_with(parameter)) =>
                {
                    counts.short_watches += 1;
                }
                Verb::Watch => counts.watches += 1,
                _ => {}
            }
        }
        counts
    }
}

async fn start_fresh(
    builder: InformerBuilder<'_, ConfigMapInForm>,
    fault: Option<InjectedFault>,
) -> Result<Informer<ConfigMapInForm>, TestError> {
    let informer = builder.inject_fault(fault).start()?;
    informer.wait_for_sync(PERIOD).await?;
    until(REACTION_TIME, || informer.freshness().is_fresh()).await?;
    Ok(informer)
}

/// Observations of a reader within a time span: the sequence of states, the maximum age of a fresh state, and the
/// causes of doubt. `fresh_for` is the total time in the fresh state.
struct FreshnessObservations {
    states: Vec<&'static str>,
    max_age: Duration,
    causes: Vec<Arc<str>>,
    fresh_for: Duration,
}

async fn observe_freshness(informer: &Informer<ConfigMapInForm>, time: Duration) -> FreshnessObservations {
    const STEP: Duration = Duration::from_millis(100);
    let wait_start = Instant::now();
    let none = Duration::ZERO;
    let mut observed = FreshnessObservations { states: Vec::new(), max_age: none, causes: Vec::new(), fresh_for: none };
    while wait_start.elapsed() < time {
        let state = informer.freshness();
        if let Freshness::Fresh { age, .. } = &state {
            observed.max_age = observed.max_age.max(*age);
            observed.fresh_for += STEP;
        }
        if let Some(doubt) = state.doubt()
            && !observed.causes.contains(&doubt.reason)
        {
            observed.causes.push(doubt.reason.clone());
        }
        if observed.states.last() != Some(&state.name()) {
            observed.states.push(state.name());
        }
        tokio::time::sleep(STEP).await;
    }
    observed
}

/// Records all further diagnostics of `informer` in the returned list.
fn record_diagnostics(informer: &Informer<ConfigMapInForm>) -> Arc<Mutex<Vec<Diagnostic>>> {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let captured_notes = notes.clone();
    informer.on_diagnostic(move |note| captured_notes.lock().push(note.clone()));
    notes
}

fn note_count(notes: &Mutex<Vec<Diagnostic>>, is_wanted: impl Fn(&Diagnostic) -> bool) -> usize {
    notes.lock().iter().filter(|note| is_wanted(note)).count()
}

fn is_cached(informer: &Informer<ConfigMapInForm>, name: &str) -> bool {
    informer.snapshot().entry(Some("default"), name).is_some()
}

/// Creates a server with rising bookmarks every ten seconds, and an informer that has seen enough of them.
async fn start_with_regular_bookmarks(
    fault: Option<InjectedFault>,
) -> Result<(FreshnessFixture, Informer<ConfigMapInForm>), TestError> {
    let fixture = FreshnessFixture::with_builder(ApiServer::builder().bookmark_period(PERIOD / 6)).await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.write_periodically(REACTION_TIME);
    let informer = start_fresh(fixture.build(), fault).await?;
    tokio::time::sleep(PERIOD).await;
    Ok((fixture, informer))
}
