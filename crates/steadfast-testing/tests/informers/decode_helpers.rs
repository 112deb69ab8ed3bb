//! Caches with decode helpers have the same deliveries, objects and diagnostics as caches without helpers.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use steadfast::environment::HelperThreads;
use steadfast::{Event, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{InMemory, TestError, config_map};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, settle};

/// Returns a description of an event with its states.
fn event_text(event: &Event<ConfigMap>) -> String {
    let value = |object: &ConfigMap| object.data.as_ref().and_then(|data| data.get("value")).cloned();
    let from = if let Event::Updated { old, .. } = event { value(old) } else { None };
    format!("{} {} {:?} from {from:?}", event.name(), event.object().name_any(), value(event.object()))
}

/// Runs the history of `seed`: a list and bursts of changes with some undecodable objects, deletions, and relists
/// after missed changes. Returns each event, each undecodable object, and the final cache.
async fn run_with_helpers(seed: usize, helpers: HelperThreads) -> Result<[Vec<String>; 3], TestError> {
    let server = ApiServer::builder().in_memory().start().await?;
    let name = |number: usize| format!("c-{:02}", number % 40);
    for number in 0..40 {
        server.create(&config_map(&name(number), "0"))?;
        server.faults().undecodable("default", &name(number), number % 5 == seed % 5);
    }
    let memory = InMemory { seed: seed as u64, helpers, ..InMemory::default() };
    let fixture = InformerFixture { factory: InformerFactory::new(&memory.connection(&server).await?), server };
    let (log, undecodable_log) = (EventLog::default(), EventLog::default());
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let (captured_log, captured_undecodable) = (log.clone(), undecodable_log.clone());
    informer.on_diagnostic(move |note| {
        if let steadfast::Diagnostic::Undecodable { key, .. } = note {
            captured_undecodable.record(key.to_string());
        }
    });
    let _each =
        informer.handler().deliver_each(100_000).on_event(move |event| captured_log.record(event_text(&event)))?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    for round in 0..6 {
        for step in 0..60 {
            let number = seed * 7 + round * 13 + step * step;
            fixture.server.faults().undecodable("default", &name(number), number.is_multiple_of(7));
            fixture.write(&name(number), &format!("{round}-{step}"))?;
            if step % 20 == 19 {
                fixture.server.delete_named("configmaps", "default", &name(number))?;
                fixture.server.create(&config_map(&name(number), "again"))?;
            }
        }
        if round % 2 == 1 {
            fixture.server.faults().cut();
            fixture.write(&name(round), "missed")?;
            fixture.server.faults().expire_events();
            fixture.server.compact();
            fixture.server.faults().heal();
        }
        let written_object = fixture.write(&name(round), &format!("end of {round}"))?;
        informer.wait_for(&written_object).await?;
    }
    settle().await;
    let entries = informer.snapshot();
    let entries =
        entries.iter().map(|entry| format!("{} {} {}", entry.key(), entry.version(), entry.is_tainted())).collect();
    Ok([log.all(), undecodable_log.all(), entries])
}

#[tokio::test(start_paused = true)]
async fn helpers_do_not_change_results() -> Result<(), TestError> {
    for seed in 0..12 {
        let without_helpers = run_with_helpers(seed, HelperThreads::default()).await?;
        assert!(without_helpers.iter().all(|events| events.len() > 20), "seed {seed}");
        let helpers = HelperThreads { threads: 1 + seed % 3, min_bytes: [1, 2_000][seed % 2] };
        assert_eq!(run_with_helpers(seed, helpers).await?, without_helpers, "seed {seed}");
    }
    Ok(())
}
