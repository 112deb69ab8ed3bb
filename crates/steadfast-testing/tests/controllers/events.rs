//! The recorder of events, in virtual time on an embedded server in memory, except for one test.

mod burst;
mod metrics;
mod outages;
mod rejections;
mod series;
mod subjects;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::ListParams;
use steadfast::Connection;
use steadfast::transport::Settings;
use steadfast_apiserver::{ApiServer, RequestRecord, Verb};
use steadfast_controller::{EventDraft, EventRecorder, EventSettings};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{InMemory, TestError, config_map};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Wall-clock time of the server at the start of the tests.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Resource of events in the rules of faults.
const EVENTS: &str = "events.events.k8s.io";

struct EventsFixture {
    server: Arc<ApiServer>,
    network: NetworkFaults,
    connection: Connection,
    events: EventRecorder,
}

impl EventsFixture {
    async fn new() -> Result<Self, TestError> {
        Self::with_settings(EventSettings::default()).await
    }

    async fn with_settings(settings: EventSettings) -> Result<Self, TestError> {
        let server = Arc::new(ApiServer::builder().in_memory().start().await?);
        let network = NetworkFaults::new();
        let settings_with_prior_knowledge = Settings { prior_knowledge: true, ..Settings::default() };
        let memory = InMemory {
            seed: 5,
            settings: settings_with_prior_knowledge,
            network: network.clone(),
            ..InMemory::default()
        };
        let connection = memory.connection(&server).await?;
        let start = Instant::now();
        let clock = move || START + SignedDuration::try_from(start.elapsed()).expect("the duration fits");
        let recorder = EventRecorder::builder(&connection, "example.com/web").instance("web-1");
        let events = recorder.settings(settings).wall_clock(clock).start()?;
        Ok(Self { server, network, connection, events })
    }

    /// Records an event with this note about the config map with this name.
    fn note(&self, name: &str, note: &str) {
        self.events.publish(&subject(name), EventDraft::normal("Changed", "Changing").note(note));
    }

    /// Returns the server's events, in the order of their names.
    async fn published_events(&self) -> Result<Vec<Event>, TestError> {
        let api: Api<Event> = Api::all(self.connection.client());
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Returns the events as text: the name of the object, the note, the count.
    async fn event_texts(&self) -> Result<Vec<String>, TestError> {
        Ok(self.published_events().await?.iter().map(event_text).collect())
    }

    /// Returns the requests for events, except for lists.
    fn requests(&self) -> Vec<RequestRecord> {
        let requests = self.server.requests().into_iter();
        requests.filter(|request| matches!(request.verb, Verb::Create | Verb::Patch)).collect()
    }

    async fn flush(&self) -> Result<(), TestError> {
        Ok(self.events.flush(MINUTE).await?)
    }
}

/// Returns the config map with this name in `default`, with a UID.
fn subject(name: &str) -> ConfigMap {
    let mut subject = config_map(name, "1");
    subject.metadata.uid = Some(format!("uid-of-{name}"));
    subject
}

/// Returns the count that an event states.
fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

fn event_text(event: &Event) -> String {
    let subject = event.regarding.as_ref().and_then(|subject| subject.name.as_deref()).unwrap_or_default();
    format!("{subject}: {} ×{}", event.note.as_deref().unwrap_or_default(), count(event))
}
