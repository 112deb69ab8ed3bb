//! Memory use of an informer, and its limit.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Cacheable, Freshness, Informer, Lazy, Scope};
use steadfast_testing::{TestError, config_map};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, settle};

const MEGABYTE: usize = 1_000_000;

impl InformerFixture {
    /// Creates config maps with these numbers, each with a value of `bytes` bytes.
    fn fill_large(&self, numbers: std::ops::Range<usize>, bytes: usize) -> Result<(), TestError> {
        for number in numbers {
            self.server.create(&config_map(&format!("large-{number}"), &"x".repeat(bytes)))?;
        }
        Ok(())
    }
}

async fn assert_memory_follows_contents<K: Cacheable>(
    informer: &Informer<K>,
    fixture: &InformerFixture,
) -> Result<(), TestError> {
    let empty = informer.memory();
    assert_eq!((empty.objects, empty.queues), (0, 0));
    fixture.fill_large(0..20, 100_000)?;
    settle().await;
    let full_memory = informer.memory();
    assert!((2 * MEGABYTE..2 * MEGABYTE + 40_000).contains(&full_memory.objects), "{full_memory:?}");
    assert!(full_memory.keys > empty.keys && full_memory.total() < full_memory.objects + 100_000, "{full_memory:?}");
    fixture.write("large-0", "short")?;
    settle().await;
    let remaining_bytes = informer.memory().objects;
    assert!(
        (full_memory.objects - 100_100..full_memory.objects - 99_000).contains(&remaining_bytes),
        "{remaining_bytes} of {full_memory:?}"
    );
    for number in 0..20 {
        fixture.server.delete_named("configmaps", "default", &format!("large-{number}"))?;
    }
    settle().await;
    assert_eq!(informer.memory().objects, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reported_memory_follows_cached_objects() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    assert_memory_follows_contents(&fixture.synced_informer().await?, &fixture).await?;
    let fixture = InformerFixture::new().await?;
    let lazy = fixture.factory.informer::<Lazy<ConfigMap>>(Scope::all())?;
    lazy.wait_for_sync(EVENT_TIMEOUT).await?;
    assert_memory_follows_contents(&lazy, &fixture).await
}

#[tokio::test(start_paused = true)]
async fn pending_handler_events_are_counted() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.fill_large(0..5, 100_000)?;
    let informer = fixture.synced_informer().await?;
    let (release, release_receiver) = tokio::sync::watch::channel(false);
    let _handler = informer.on_event_async(move |event| {
        let mut release_receiver = release_receiver.clone();
        let waits = event.name() == "Updated";
        async move {
            if waits {
                drop(release_receiver.wait_for(|is_released| *is_released).await);
            }
        }
    })?;
    settle().await;
    assert_eq!(informer.memory().queues, 0);
    for number in 0..5 {
        fixture.write(&format!("large-{number}"), "short")?;
    }
    settle().await;
    // One of the five events is being delivered, and its old state belongs to the call instead of the queue.
    let queues = informer.memory().queues;
    assert!((400_000..410_000).contains(&queues), "{queues}");
    release.send_replace(true);
    settle().await;
    assert_eq!(informer.memory().queues, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn oversized_list_is_rejected_until_it_fits() -> Result<(), TestError> {
    for streamed_lists in [true, false] {
        let fixture = InformerFixture::new().await?;
        fixture.fill_large(0..20, 100_000)?;
        let builder = fixture.factory.builder::<ConfigMap>(Scope::all()).streamed_lists(streamed_lists);
        let informer = builder.memory_limit(MEGABYTE).start()?;
        settle().await;
        let freshness = informer.freshness();
        assert!(matches!(freshness, Freshness::Failed(_)), "{freshness}");
        let log = freshness.to_string();
        assert!(log.contains("above the memory_limit of 1.0 MB") && log.contains("raise the limit"), "{log}");
        assert!(informer.snapshot().is_empty() && !informer.has_synced());

        for number in 5..20 {
            fixture.server.delete_named("configmaps", "default", &format!("large-{number}"))?;
        }
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(informer.has_synced() && informer.freshness().is_fresh(), "{}", informer.freshness());
        assert_eq!(informer.snapshot().len(), 5);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn oversized_watch_ends_and_cache_remains() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.fill_large(0..5, 100_000)?;
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).memory_limit(MEGABYTE).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let _handler = informer.on_event(move |event| captured_log.record_event(&event))?;
    for number in 5..20 {
        fixture.fill_large(number..number + 1, 100_000)?;
        settle().await;
    }
    assert!(matches!(informer.freshness(), Freshness::Failed(_)), "{}", informer.freshness());
    let cached_count = informer.snapshot().len();
    assert!((9..=11).contains(&cached_count), "{cached_count} objects of 100 KB each");
    assert!(informer.memory().objects < MEGABYTE + 200_000, "{:?}", informer.memory());
    assert_eq!(log.all().len(), cached_count, "only cached objects are delivered");

    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(informer.snapshot().len(), cached_count, "the cache must not change");
    for number in 0..15 {
        fixture.server.delete_named("configmaps", "default", &format!("large-{number}"))?;
    }
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    assert_eq!(informer.snapshot().len(), 5);
    Ok(())
}

/// Checks that a cache with a limit 10 % below its required size stays empty, although it lists repeatedly.
async fn assert_limited_cache_stays_empty<K: Cacheable<Resource = ConfigMap>>(packed: bool) -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for number in 0..100 {
        fixture.server.create(&config_map(&format!("alone{number}"), &number.to_string()))?;
    }
    let unlimited = fixture.factory.builder::<K>(Scope::all()).delta_compressed(packed).start()?;
    unlimited.wait_for_sync(EVENT_TIMEOUT).await?;
    let memory = unlimited.memory();
    unlimited.stop();
    settle().await;
    let limit = (memory.objects + memory.keys) * 9 / 10;
    let informer = fixture.factory.builder::<K>(Scope::all()).delta_compressed(packed).memory_limit(limit).start()?;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(informer.snapshot().is_empty(), "{} of {memory:?}", informer.snapshot().len());
    }
    assert!(matches!(informer.freshness(), Freshness::Failed(_)), "{}", informer.freshness());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn list_is_measured_like_cache() -> Result<(), TestError> {
    assert_limited_cache_stays_empty::<ConfigMap>(false).await?;
    assert_limited_cache_stays_empty::<Lazy<ConfigMap>>(false).await?;
    assert_limited_cache_stays_empty::<Lazy<ConfigMap>>(true).await
}
