//! What a restart costs and shows.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Checkpoint, Freshness, InformerFactory, Lazy, Note, Scope};
use steadfast_apiserver::{Answer, ApiServer, RequestRule, Verb};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{InMemory, WorldError, config_map};

use crate::files::Folder;
use crate::life::{Life, lists, there};

/// A server, and the first life of a program that holds what is there.
async fn first_life(folder: &Folder, objects: usize) -> Result<(ApiServer, Life), WorldError> {
    let server = ApiServer::builder().in_memory().start().await?;
    for index in 0..objects {
        server.create(&config_map(&format!("a-{index:05}"), "1"))?;
    }
    let life = Life::begin(&server, &folder.file(), 1).await?;
    life.settle(&server).await?;
    assert_eq!(lists(&server), 1, "the first life lists once");
    Ok((server, life))
}

/// What happens while nobody looks: a change, an end, one that is recreated, one that is new.
fn change_unseen(server: &ApiServer) -> Result<(), WorldError> {
    server.replace(&config_map("a-00001", "2"))?;
    server.delete_named("configmaps", "default", "a-00002")?;
    server.delete_named("configmaps", "default", "a-00003")?;
    server.create(&config_map("a-00003", "3"))?;
    server.create(&config_map("b", "1"))?;
    Ok(())
}

fn names() -> impl Iterator<Item = String> {
    (0..5).map(|index| format!("a-{index:05}")).chain(["b".to_owned()])
}

#[tokio::test(start_paused = true)]
async fn a_restart_watches_on_without_a_list() -> Result<(), WorldError> {
    let folder = Folder::new("resume")?;
    let (server, life) = first_life(&folder, 5).await?;
    server.replace(&config_map("a-00000", "1b"))?;
    life.settle(&server).await?;
    let held = life.held();
    let path = life.die(&folder)?;
    change_unseen(&server)?;

    let life = Life::begin(&server, &path, 2).await?;
    life.informer.wait_for_sync(Duration::from_secs(5)).await?;
    life.settle(&server).await?;
    assert_eq!(lists(&server), 1, "no list but that of the first life");
    assert_eq!(life.held(), there(&server, names()));
    assert_ne!(life.held(), held);
    let told = life.told();
    assert_eq!(told[..5], ["= a-00000", "= a-00001", "= a-00002", "= a-00003", "= a-00004"], "first what was kept");
    let mut rest = told[5..].to_vec();
    rest.sort();
    assert_eq!(rest, ["+ a-00003", "+ b", "- a-00002 observed", "- a-00003 observed", "~ a-00001"]);
    assert_eq!(life.noted(|note| matches!(note, Note::Restored { .. })).len(), 1);
    assert_eq!(life.noted(|note| matches!(note, Note::NotRestored { .. } | Note::NotKept { .. })), [""; 0]);
    Ok(())
}

/// The first audit was due so long after the first list, of which there was none: what a server lost was never found (seed 9 of
/// the story of `steadfast notify`, which a restored backup and a restart come to).
#[tokio::test(start_paused = true)]
async fn a_cache_that_was_kept_is_audited_as_one_that_was_listed() -> Result<(), WorldError> {
    let folder = Folder::new("audited")?;
    let (server, life) = first_life(&folder, 2).await?;
    let path = life.die(&folder)?;
    let network = InMemory { seed: 2, ..InMemory::default() };
    let factory = InformerFactory::new(&network.connection(&server).await?);
    let (every, checkpoint) = (Duration::from_secs(60), Checkpoint::open(&path)?);
    let informer = factory.build::<Lazy<ConfigMap>>(Scope::namespace("default")).checkpoint(&checkpoint);
    let informer = informer.audit_every(every).start()?;
    informer.wait_for_version(&server.revision().to_string().as_str().into(), every).await?;
    server.faults().drop_next_event("configmaps");
    let changed = server.replace(&config_map("a-00000", "2"))?;
    // By which its watch is past what it never had.
    server.replace(&config_map("a-00001", "2"))?;
    tokio::time::sleep(every + Duration::from_secs(5)).await;
    let snapshot = informer.snapshot();
    let held = snapshot.decodable().find(|object| object.key().name() == "a-00000");
    let held = held.map(|object| object.version().to_string());
    assert_eq!(held.as_deref(), changed["metadata"]["resourceVersion"].as_str());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_forgotten_is_found_by_one_list_and_told_as_it_differs() -> Result<(), WorldError> {
    let folder = Folder::new("expired")?;
    let (server, life) = first_life(&folder, 5).await?;
    let path = life.die(&folder)?;
    change_unseen(&server)?;
    server.compact();
    server.faults().expire_events();

    let life = Life::begin(&server, &path, 2).await?;
    life.settle(&server).await?;
    assert_eq!(lists(&server), 2, "one list each");
    assert_eq!(life.held(), there(&server, names()));
    let mut rest = life.told()[5..].to_vec();
    rest.sort();
    assert_eq!(rest, ["+ a-00003", "+ b", "- a-00002 inferred", "- a-00003 inferred", "~ a-00001"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_away_the_cache_is_there_and_no_handler_is_called() -> Result<(), WorldError> {
    let folder = Folder::new("away")?;
    let (server, life) = first_life(&folder, 5).await?;
    let held = life.held();
    let path = life.die(&folder)?;

    let network = InMemory { seed: 2, network: NetworkFaults::default(), ..InMemory::default() };
    server.faults().refuse(true);
    let life = Life::begin_over(&server, &network, &path).await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(life.held(), held);
    assert!(life.informer.has_synced() && life.informer.lister().is_ok(), "it can be read");
    let state = life.informer.freshness();
    assert!(matches!(state, Freshness::Resuming(_)), "and says that it is in doubt: {state}");
    assert_eq!(life.told(), [""; 0], "which cluster it is of is not known");

    server.faults().refuse(false);
    life.settle(&server).await?;
    assert_eq!(life.told().len(), 5);
    assert_eq!(lists(&server), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn another_cluster_at_the_same_address_is_known_and_nothing_of_the_old_one_is_told() -> Result<(), WorldError> {
    let folder = Folder::new("other")?;
    let (server, life) = first_life(&folder, 5).await?;
    let path = life.die(&folder)?;
    let url = server.url(0);
    server.stop();

    let server = ApiServer::builder().in_memory().seed(77).start().await?;
    assert_eq!(server.url(0), url);
    // Beyond the version that was held: only the cluster's identity can tell.
    for round in 0..40 {
        server.create(&config_map(&format!("n-{round}"), "1"))?;
    }
    let life = Life::begin(&server, &path, 2).await?;
    life.settle(&server).await?;
    let mut told = life.told();
    told.sort();
    assert_eq!(told.len(), 40);
    assert!(told.iter().all(|told| told.starts_with("= n-")), "{told:?}");
    assert_eq!(life.held().len(), 40);
    let why = life.noted(|note| matches!(note, Note::NotRestored { .. }));
    assert_eq!(why, ["the checkpoint is of another cluster than the server is of now; listing it all"]);

    // From here on it is kept of the new one.
    let path = life.die(&folder)?;
    let listed = lists(&server);
    let life = Life::begin(&server, &path, 3).await?;
    life.settle(&server).await?;
    assert_eq!((lists(&server), life.held().len()), (listed, 40));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn where_the_cluster_cannot_be_told_a_list_is_compared_with_what_was_kept() -> Result<(), WorldError> {
    let folder = Folder::new("untold")?;
    let (server, life) = first_life(&folder, 5).await?;
    let path = life.die(&folder)?;
    change_unseen(&server)?;
    server.faults().answer_with(RequestRule::any().verb(Verb::Get).resource("namespaces"), Answer::Forbidden);

    let life = Life::begin(&server, &path, 2).await?;
    life.settle(&server).await?;
    assert_eq!(lists(&server), 2);
    assert_eq!(life.held(), there(&server, names()));
    let mut told = life.told();
    told.sort();
    assert_eq!(
        told,
        ["= a-00000", "= a-00001", "= a-00003", "= a-00004", "= b"],
        "what there is now, and nothing before"
    );
    let why = life.noted(|note| matches!(note, Note::NotRestored { .. })).join("");
    assert!(why.contains("403") && why.contains("`get`"), "{why}");

    // What was written by who does not know of which cluster it is says so to the next one, who may.
    let path = life.die(&folder)?;
    server.faults().answer_truly();
    let life = Life::begin(&server, &path, 3).await?;
    life.settle(&server).await?;
    assert_eq!(lists(&server), 3);
    let path = life.die(&folder)?;
    let life = Life::begin(&server, &path, 4).await?;
    life.settle(&server).await?;
    assert_eq!(lists(&server), 3, "now it is known");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_was_restored_meanwhile_is_another_history() -> Result<(), WorldError> {
    let folder = Folder::new("restored")?;
    let (server, life) = first_life(&folder, 5).await?;
    let backup = server.revision();
    server.create(&config_map("b", "1"))?;
    server.replace(&config_map("a-00001", "2"))?;
    life.settle(&server).await?;
    let path = life.die(&folder)?;
    server.faults().restore(backup);

    let life = Life::begin(&server, &path, 2).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(life.informer.freshness().is_fresh(), "{}", life.informer.freshness());
    assert_eq!(life.held(), there(&server, names()));
    assert_eq!(life.noted(|note| matches!(note, Note::NewEpoch { .. })).len(), 1);
    assert!(life.told().contains(&"- b inferred".to_owned()), "{:?}", life.told());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_program_that_ends_in_order_leaves_its_last_state() -> Result<(), WorldError> {
    let folder = Folder::new("ended")?;
    let (server, life) = first_life(&folder, 5).await?;
    server.replace(&config_map("a-00000", "last"))?;
    life.informer.wait_for_version(&server.revision().to_string().as_str().into(), Duration::from_secs(5)).await?;
    let held = life.held();
    life.factory.shutdown();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let path = life.die(&folder)?;
    server.faults().refuse(true);
    let life = Life::begin(&server, &path, 2).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(life.held(), held);
    Ok(())
}

/// So many objects; as many as `STEADFAST_CHECKPOINT_OBJECTS` says.
#[tokio::test]
async fn many_objects_are_there_at_once_and_are_not_listed() -> Result<(), WorldError> {
    let objects = std::env::var("STEADFAST_CHECKPOINT_OBJECTS").ok().and_then(|number| number.parse().ok());
    let objects: usize = objects.unwrap_or(2_000);
    let folder = Folder::new("many")?;
    let (server, life) = first_life(&folder, objects).await?;
    let counts = life.checkpoint.counts();
    assert!(counts.rows >= objects as u64 && counts.commits < 20, "{counts:?}");
    let path = life.die(&folder)?;
    let sent = server.request_counts().bytes;
    let begun = std::time::Instant::now();
    let life = Life::begin(&server, &path, 2).await?;
    life.informer.wait_for_sync(Duration::from_secs(20)).await?;
    let readable = begun.elapsed();
    assert_eq!(life.informer.snapshot().len(), objects);
    life.settle(&server).await?;
    assert_eq!(lists(&server), 1);
    let size = std::fs::metadata(&path)?.len();
    let sent = server.request_counts().bytes - sent;
    println!(
        "{objects} objects: readable after {readable:?}; the server sent {sent} bytes; the file has {size}; {counts:?}"
    );
    Ok(())
}
