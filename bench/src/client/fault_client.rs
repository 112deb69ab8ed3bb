//! A client under faults. It prints each event of its handler and each doubt that its library reports. On request, it
//! prints the contents of its cache. Each output is one line of JSON.
//!
//! All settings are the library's defaults.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::reflector;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steadfast::{Connection, Event, Freshness, Informer, InformerFactory, Scope};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{Duration, timeout};

use super::output::print_response;
use super::request::ClientLibrary;
use crate::BenchError;

/// Interval of the polls of the freshness: a proof can expire without an event.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the contents of the cache.
type ReadCache = Box<dyn Fn() -> Vec<Value> + Send>;

/// Watches config maps until standard input is closed. Each line of the input requests the contents of the cache.
pub(super) async fn run(config: kube::Config, library: ClientLibrary) -> Result<(), BenchError> {
    let read_cache = match library {
        ClientLibrary::Steadfast => start_steadfast(config)?,
        ClientLibrary::Kube => start_kube_runtime(config)?,
        ClientLibrary::Baseline => return Err("the baseline client has no events".into()),
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        print_response(&json!({ "cache": read_cache() }));
    }
    Ok(())
}

fn start_steadfast(config: kube::Config) -> Result<ReadCache, BenchError> {
    let factory = InformerFactory::new(&Connection::new(config)?);
    let informer = factory.informer::<ConfigMap>(Scope::all())?;
    let registration = informer.on_event(|event| match event {
        Event::Added { object, .. } | Event::Updated { new: object, .. } => print_event("applied", &object),
        Event::Deleted { last, .. } => print_event("deleted", &last),
        Event::Resynced { .. } => {}
    })?;
    tokio::spawn(print_doubts(informer.clone()));
    Ok(Box::new(move || {
        // Dropping these values would stop their tasks.
        let _ = (&factory, &registration);
        informer.snapshot().iter().filter_map(|entry| entry.last()).map(|object| describe(object)).collect()
    }))
}

/// Prints a line when a doubt about the cache starts, and when it ends.
async fn print_doubts(informer: Informer<ConfigMap>) {
    let mut changed = informer.changed();
    let mut previous_kind = "";
    // A timeout is the regular poll, and an error means that the informer was stopped.
    while !matches!(timeout(POLL_INTERVAL, changed.changed()).await, Ok(Err(_))) {
        let (kind, reason) = match informer.freshness() {
            Freshness::Fresh { tainted, .. } if tainted.is_empty() => ("fresh", String::new()),
            Freshness::Fresh { tainted, .. } => ("tainted", format!("unknown: {tainted:?}")),
            doubt @ Freshness::Starting(_) => ("starting", doubt.to_string()),
            doubt @ Freshness::Failed(_) => ("failed", doubt.to_string()),
            doubt => ("doubt", doubt.to_string()),
        };
        // Only changes of the kind are printed. The text of a doubt includes times, and would differ at each poll.
        if kind != previous_kind {
            print_response(&if kind == "fresh" { json!({ "fresh": true }) } else { json!({ "doubt": reason }) });
            previous_kind = kind;
        }
    }
}

fn start_kube_runtime(config: kube::Config) -> Result<ReadCache, BenchError> {
    let api = Api::<ConfigMap>::all(Client::try_from(config)?);
    let writer = reflector::store::Writer::new(());
    let store = writer.as_reader();
    let events = reflector::reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
    tokio::spawn(async move {
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    print_event("applied", &object);
                }
                Ok(watcher::Event::Delete(object)) => print_event("deleted", &object),
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                // kube-runtime reports errors only as items of this stream. Each error therefore counts as a
                // reported doubt.
                Err(error) => print_response(&json!({ "doubt": error.to_string() })),
            }
        }
    });
    Ok(Box::new(move || store.state().iter().map(|object| describe(object)).collect()))
}

fn print_event(event_type: &str, object: &ConfigMap) {
    let mut line = describe(object);
    line["event"] = event_type.into();
    print_response(&line);
}

fn describe(object: &ConfigMap) -> Value {
    json!({
        "name": object.name_any(), "namespace": object.namespace(), "uid": object.uid(), "version": object.resource_version(),
    })
}
