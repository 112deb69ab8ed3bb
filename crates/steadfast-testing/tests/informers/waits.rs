//! Waits for writes and deletions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{ResourceVersion, Scope, WaitError};
use steadfast_testing::{TestError, config_map, labelled_config_map};

use super::{EVENT_TIMEOUT, InformerFixture, settle};

#[tokio::test(start_paused = true)]
async fn write_wait_returns_when_cached() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all().labels("app=web"))?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let object_in_scope: ConfigMap =
        serde_json::from_value(fixture.server.create(&labelled_config_map("a", "1", ("app", "web")))?)?;
    informer.wait_for(&object_in_scope).await?;
    assert!(informer.lister()?.get("default", "a")?.is_some());

    let start = tokio::time::Instant::now();
    let object_outside_scope: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("b", "1"))?)?;
    informer.wait_for(&object_outside_scope).await?;
    assert!(start.elapsed() < Duration::from_secs(6), "a write outside the selector: {:?}", start.elapsed());

    fixture.server.delete_named("configmaps", "default", "a")?;
    informer.wait_for_deletion(&object_in_scope, EVENT_TIMEOUT).await?;
    assert!(informer.lister()?.get("default", "a")?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn impossible_waits_report_reason() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let mut unversioned = config_map("a", "1");
    assert_eq!(informer.wait_for(&unversioned).await, Err(WaitError::NoVersion));
    unversioned.metadata.resource_version = Some("v7-of-something".to_owned());
    unversioned.metadata.uid = Some("u".to_owned());
    assert!(matches!(informer.wait_for(&unversioned).await, Err(WaitError::Opaque { .. })));
    assert!(
        matches!(informer.wait_for_deletion(&unversioned, EVENT_TIMEOUT).await, Err(WaitError::Opaque { .. })),
        "an unordered version cannot distinguish a deletion from a later creation"
    );

    fixture.server.faults().cut();
    let Err(timeout_error) = informer.wait_for_version(&ResourceVersion::from("9999"), EVENT_TIMEOUT).await else {
        panic!("no client wrote this version");
    };
    assert!(
        timeout_error.to_string().starts_with("configmaps in all namespaces did not reach version 9999 within 2.0 s")
    );
    let captured_informer = informer.clone();
    let wait =
        tokio::spawn(
            async move { captured_informer.wait_for_version(&ResourceVersion::from("9999"), EVENT_TIMEOUT).await },
        );
    settle().await;
    informer.stop();
    assert!(matches!(wait.await?, Err(WaitError::Stopped { .. })), "a stop ends it");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deletion_wait_survives_new_epoch() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let backup = fixture.server.revision();
    fixture.server.create(&config_map("lost", "1"))?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all().labels("none=such"))?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    fixture.server.faults().cut();
    // The cache never reaches this version, because the restore removed its history.
    let object: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("newer", "1"))?)?;
    let captured_informer = informer.clone();
    let wait =
        tokio::spawn(async move { captured_informer.wait_for_deletion(&object, Duration::from_secs(120)).await });
    settle().await;
    fixture.server.faults().restore(backup);
    fixture.server.faults().heal();
    wait.await??;
    assert_eq!(informer.snapshot().epoch(), 1);
    Ok(())
}

/// Counter of wake-ups of a task.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn version_wait_ignores_earlier_changes() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let last: u64 = fixture.server.revision() + 100;
    let target_version = ResourceVersion::from(last.to_string().as_str());
    let mut wait = Box::pin(informer.wait_for_version(&target_version, EVENT_TIMEOUT * 60));
    let wake_count = Arc::new(WakeCounter::default());
    let waker = Waker::from(wake_count.clone());
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    for number in 0..99 {
        fixture.server.create(&config_map(&format!("map-{number}"), "1"))?;
        let version = ResourceVersion::from(fixture.server.revision().to_string().as_str());
        // The wait ensures that each change is published separately.
        informer.wait_for_version(&version, EVENT_TIMEOUT).await?;
    }
    assert_eq!(wake_count.0.load(Ordering::Relaxed), 0);
    fixture.server.create(&config_map("the-last", "1"))?;
    assert_eq!(fixture.server.revision(), last);
    informer.wait_for_version(&target_version, EVENT_TIMEOUT).await?;
    assert_eq!(wake_count.0.load(Ordering::Relaxed), 1);
    assert!(wait.as_mut().poll(&mut context).is_ready());
    Ok(())
}
