//! R9: a relist needs little more memory than the changed objects. R8: the cost of a change does not depend on the
//! number of undecodable objects.
//!
//! All allocations of this program are counted, including those of the server. Memory that is allocated after the start
//! of the informer counts as the informer's, with an allowance for one page.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, NotUsed, Object};
use parking_lot::Mutex;
use peak_alloc::PeakAlloc;
use serde::Deserialize;
use steadfast::transport::Settings;
use steadfast::{InformerFactory, InjectedFault, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{CachedForm, InMemory, TestError, builder_with_form, config_map};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Memory is measured for the whole process, so the tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const OBJECTS: usize = 600;

/// Size of each object's only value in bytes.
const VALUE_BYTES: usize = 20_000;

/// Number of objects per page.
const PAGE_SIZE: usize = 20;

/// Allowance for one page in flight. Server, network and client may have four copies of it.
const IN_FLIGHT_ALLOWANCE_BYTES: usize = 4 * PAGE_SIZE * (VALUE_BYTES + 1_000);

const TIMEOUT: Duration = Duration::from_secs(60);

/// Memory of the informer, and the additional peak of its relist.
struct RelistMemory {
    settled_bytes: usize,
    additional_bytes: usize,
}

async fn relist(fault: Option<InjectedFault>) -> Result<RelistMemory, TestError> {
    let server = ApiServer::builder().in_memory().protobuf(CachedForm::current().protobuf).start().await?;
    for number in 0..OBJECTS {
        server.create(&config_map(&format!("object-{number}"), &"x".repeat(VALUE_BYTES)))?;
    }
    let settings = Settings { prior_knowledge: true, ..Settings::default() };
    let connection = InMemory { settings, ..InMemory::default() }.connection(&server).await?;
    let factory = InformerFactory::new(&connection);
    let usage_before = ALLOCATED.current_usage();
    let builder =
        builder_with_form(&factory, Scope::all()).streamed_lists(false).page_size(u32::try_from(PAGE_SIZE).ok());
    let informer = builder.inject_fault(fault).start()?;
    informer.wait_for_sync(TIMEOUT).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let settled_usage = ALLOCATED.current_usage();
    let lists = server.request_counts().full_transfers();

    server.faults().cut();
    server.replace(&config_map("object-1", "changed"))?;
    server.compact();
    // Without the window of events, the reconnection needs a full relist.
    server.faults().expire_events();
    ALLOCATED.reset_peak_usage();
    server.faults().heal();
    informer.wait_for_version(&server.revision().to_string().as_str().into(), TIMEOUT).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.request_counts().full_transfers(), lists + 1, "exactly one relist was sent");
    assert_eq!(informer.lister()?.len(), OBJECTS);
    Ok(RelistMemory {
        settled_bytes: settled_usage - usage_before,
        additional_bytes: ALLOCATED.peak_usage().saturating_sub(settled_usage),
    })
}

/// Runs [`relist`] in a runtime of its own, so that all memory is released at the end.
fn measure_relist(fault: Option<InjectedFault>) -> Result<RelistMemory, TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(relist(fault))
}

#[test]
fn relist_needs_little_more_memory() -> Result<(), TestError> {
    let _guard = ONE_AT_A_TIME.lock();
    let RelistMemory { settled_bytes, additional_bytes } = measure_relist(None)?;
    assert!(settled_bytes > OBJECTS * VALUE_BYTES, "{settled_bytes} bytes are allocated");
    let allowed_bytes = settled_bytes / 5 + IN_FLIGHT_ALLOWANCE_BYTES;
    assert!(
        additional_bytes <= allowed_bytes,
        "{additional_bytes} bytes more than the allocated {settled_bytes}, with {allowed_bytes} allowed"
    );
    // The injected fault proves that the bound detects a second copy.
    let copied_relist = measure_relist(Some(InjectedFault::CopiedRelist))?;
    assert!(
        copied_relist.additional_bytes > allowed_bytes,
        "a second copy took {} bytes",
        copied_relist.additional_bytes
    );
    Ok(())
}

/// Type that cannot be decoded from any of the objects.
#[derive(Clone, Debug, Deserialize)]
struct Strict {
    #[allow(dead_code)]
    replicas: u32,
}

/// Returns the additional peak of memory during a change.
async fn measure_change(undecodable: usize) -> Result<usize, TestError> {
    let server = ApiServer::builder().in_memory().start().await?;
    for number in 0..undecodable {
        server.create(&config_map(&format!("object-{number}"), "1"))?;
    }
    let settings = Settings { prior_knowledge: true, ..Settings::default() };
    let connection = InMemory { settings, ..InMemory::default() }.connection(&server).await?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let informer = InformerFactory::new(&connection).informer_with::<Object<Strict, NotUsed>>(&kind, Scope::all())?;
    informer.wait_for_sync(TIMEOUT).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(informer.snapshot().tainted().len(), undecodable);
    let usage_before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    for value in ["2", "3", "4"] {
        server.replace(&config_map("object-1", value))?;
        informer.wait_for_version(&server.revision().to_string().as_str().into(), TIMEOUT).await?;
    }
    Ok(ALLOCATED.peak_usage().saturating_sub(usage_before))
}

#[test]
fn change_cost_is_independent_of_undecodable_objects() -> Result<(), TestError> {
    let _guard = ONE_AT_A_TIME.lock();
    let measure = |undecodable| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(measure_change(undecodable))
    };
    let (bytes_of_few, bytes_of_many) = (measure(100)?, measure(4_000)?);
    assert!(
        bytes_of_many < bytes_of_few + 60_000,
        "{bytes_of_few} bytes with 100, {bytes_of_many} with 4000: a copy of their keys needs 128000"
    );
    Ok(())
}
