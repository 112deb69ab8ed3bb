//! User code may call the informer that runs it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde::Deserialize;
use steadfast::{Event, Index, Informer, Registration, Scope};
use steadfast_testing::{TestError, config_map};

use super::{EventLog, InformerFixture, names, settle};

/// Caller of every method of an informer, with the results of the calls.
#[derive(Clone, Default)]
struct ReentrantCaller(Arc<Mutex<Vec<CallResult>>>, EventLog);

type CallResult = (Index<ConfigMap, String>, Registration<ConfigMap>);

impl ReentrantCaller {
    fn call_all(&self, informer: &Informer<ConfigMap>) {
        let log = self.1.clone();
        let index = informer.index(|object: &ConfigMap| Some(object.name_any()));
        let registration = informer.on_event(move |event| log.record_event(&event)).expect("the informer is running");
        informer.on_diagnostic(|_| {});
        let _ = (informer.snapshot(), informer.freshness(), informer.handlers(), informer.lister());
        self.0.lock().push((index, registration));
    }

    /// Checks that the indexes and registrations from these calls work.
    fn check(&self, times: usize) {
        let results = self.0.lock();
        assert_eq!(results.len(), times);
        for (index, registration) in &*results {
            assert_eq!(names(&index.get("a")), ["a"]);
            assert!(registration.has_synced());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn index_function_may_call_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let (captured_informer, caller) = (informer.clone(), ReentrantCaller::default());
    let calling = caller.clone();
    let index = informer.index(move |object: &ConfigMap| {
        calling.call_all(&captured_informer);
        Some(object.name_any())
    });
    settle().await;
    caller.check(1);
    fixture.write("a", "2")?;
    settle().await;
    // Only the new state needs a call of the index function. The index stores the values of the old state.
    caller.check(2);
    assert_eq!(names(&index.get("a")), ["a"]);
    assert!(informer.freshness().is_fresh());
    informer.stop();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn transform_may_call_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let (informer_cell, caller) = (Arc::new(OnceLock::<Informer<ConfigMap>>::new()), ReentrantCaller::default());
    let (captured_cell, captured_caller) = (informer_cell.clone(), caller.clone());
    let transform = move |object: ConfigMap| {
        if let Some(informer) = captured_cell.get() {
            captured_caller.call_all(informer);
        }
        object
    };
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).transform(transform).start()?;
    drop(informer_cell.set(informer.clone()));
    settle().await;
    fixture.write("a", "2")?;
    settle().await;
    caller.check(2);
    assert_eq!(informer.snapshot().len(), 1);
    informer.stop();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn diagnostic_callback_may_add_handlers() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let (captured_informer, caller) = (informer.clone(), ReentrantCaller::default());
    let calling = caller.clone();
    let first_call = OnceLock::new();
    informer.on_diagnostic(move |_| {
        if first_call.set(()).is_ok() {
            calling.call_all(&captured_informer);
        }
    });
    fixture.server.faults().cut();
    settle().await;
    fixture.server.faults().heal();
    settle().await;
    caller.check(1);
    informer.stop();
    Ok(())
}

/// Object with a `Drop` that calls its informer.
#[derive(Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct CallsOnDrop {
    metadata: ObjectMeta,
}

static INFORMER: OnceLock<Informer<CallsOnDrop>> = OnceLock::new();
static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl Drop for CallsOnDrop {
    fn drop(&mut self) {
        if let Some(informer) = INFORMER.get() {
            let _ = (informer.handlers(), informer.snapshot(), informer.index(|_: &CallsOnDrop| Some(())));
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn object_drop_may_call_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let mut watch = steadfast::watch::<CallsOnDrop>(fixture.factory.connection(), Scope::all())?;
    assert!(matches!(watch.next().await, Some(Event::Added { .. })));
    assert!(INFORMER.set(watch.informer().clone()).is_ok());
    // The queue still holds the old state, until its event is merged or delivered.
    fixture.write("a", "2")?;
    settle().await;
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    fixture.server.delete(&config_map("a", "2"))?;
    settle().await;
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    assert!(matches!(watch.next().await, Some(Event::Deleted { .. })));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    Ok(())
}
