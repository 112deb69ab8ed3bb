//! R9: a relist takes little more memory than what it changes. R8: an object that changes costs nothing for all those that
//! cannot be decoded.
//!
//! All that this program allocates is counted, the server's part too: what the informer has is what came after it
//! was started, and what a page costs is granted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, NotUsed, Object};
use peak_alloc::PeakAlloc;
use serde::Deserialize;
use steadfast::transport::Settings;
use steadfast::{Breach, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{Form, InMemory, WorldError, build_in_form, config_map};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Memory is everybody's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const OBJECTS: usize = 600;

/// The bytes of each object's only value.
const VALUE: usize = 20_000;

/// The objects of a page.
const PAGE: usize = 20;

/// What server, network and client together may hold of one page on its way, in a few forms.
const ON_ITS_WAY: usize = 4 * PAGE * (VALUE + 1_000);

const PATIENCE: Duration = Duration::from_secs(60);

/// What the informer holds, and by how much more the most of its relist was.
struct Taken {
    settled: usize,
    more: usize,
}

async fn relist(breach: Option<Breach>) -> Result<Taken, WorldError> {
    let server = ApiServer::builder().in_memory().protobuf(Form::of_this_run().protobuf).start().await?;
    for number in 0..OBJECTS {
        server.create(&config_map(&format!("object-{number}"), &"x".repeat(VALUE)))?;
    }
    let settings = Settings { prior_knowledge: true, ..Settings::default() };
    let connection = InMemory { settings, ..InMemory::default() }.connection(&server).await?;
    let factory = InformerFactory::new(&connection);
    let before = ALLOCATED.current_usage();
    let builder = build_in_form(&factory, Scope::all()).streamed_lists(false).page_size(u32::try_from(PAGE).ok());
    let informer = builder.breach(breach).start()?;
    informer.wait_for_sync(PATIENCE).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let settled = ALLOCATED.current_usage();
    let lists = server.request_counts().full_transfers();

    server.faults().cut();
    server.replace(&config_map("object-1", "changed"))?;
    server.compact();
    server.faults().expire_events();
    ALLOCATED.reset_peak_usage();
    server.faults().heal();
    informer.wait_for_version(&server.revision().to_string().as_str().into(), PATIENCE).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.request_counts().full_transfers(), lists + 1, "it was listed again, once");
    assert_eq!(informer.lister()?.len(), OBJECTS);
    Ok(Taken { settled: settled - before, more: ALLOCATED.peak_usage().saturating_sub(settled) })
}

/// In a runtime of its own, with which everything ends.
fn relisted(breach: Option<Breach>) -> Result<Taken, WorldError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(relist(breach))
}

#[test]
fn a_relist_takes_a_fifth_more_at_most_and_one_that_copies_is_caught() -> Result<(), WorldError> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Taken { settled, more } = relisted(None)?;
    assert!(settled > OBJECTS * VALUE, "{settled} bytes are held");
    let allowed = settled / 5 + ON_ITS_WAY;
    assert!(more <= allowed, "{more} bytes more than the {settled} that are held, of {allowed}");
    let copied = relisted(Some(Breach::CopiedRelist))?;
    assert!(copied.more > allowed, "a second copy took {} bytes", copied.more);
    Ok(())
}

/// A type that none of the objects fits.
#[derive(Clone, Debug, Deserialize)]
struct Strict {
    #[allow(dead_code)]
    replicas: u32,
}

/// The most that a change takes while it is on its way, above what there is.
async fn a_change_beside(undecodable: usize) -> Result<usize, WorldError> {
    let server = ApiServer::builder().in_memory().start().await?;
    for number in 0..undecodable {
        server.create(&config_map(&format!("object-{number}"), "1"))?;
    }
    let settings = Settings { prior_knowledge: true, ..Settings::default() };
    let connection = InMemory { settings, ..InMemory::default() }.connection(&server).await?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let informer = InformerFactory::new(&connection).informer_with::<Object<Strict, NotUsed>>(&kind, Scope::all())?;
    informer.wait_for_sync(PATIENCE).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(informer.snapshot().tainted().len(), undecodable);
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    for value in ["2", "3", "4"] {
        server.replace(&config_map("object-1", value))?;
        informer.wait_for_version(&server.revision().to_string().as_str().into(), PATIENCE).await?;
    }
    Ok(ALLOCATED.peak_usage().saturating_sub(before))
}

#[test]
fn a_change_costs_the_same_beside_many_objects_that_cannot_be_decoded_as_beside_few() -> Result<(), WorldError> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let measured = |undecodable| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(a_change_beside(undecodable))
    };
    let (few, many) = (measured(100)?, measured(4_000)?);
    assert!(many < few + 60_000, "{few} bytes beside 100, {many} beside 4000: a copy of their keys is 128000");
    Ok(())
}
