//! 500 informers after the restart of their server, and after a switch to a replica that is current.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_testing::TestError;

use crate::connections::world::World;

const INFORMERS: usize = 500;

#[tokio::test(start_paused = true)]
async fn restart_lists_once_each_four_concurrently() -> Result<(), TestError> {
    let world = World::new(None).await?;
    let _seen = world.start_informers(INFORMERS).await?;
    let before = world.lists();
    world.server.faults().stop();
    for index in 0..INFORMERS {
        world.update(index, "1")?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.server.faults().start();
    world.check_contract().await?;
    let lists = world.lists() - before;
    assert!((1..=INFORMERS).contains(&lists), "{lists} lists for {INFORMERS} informers");
    assert!(world.server.request_counts().most_concurrent_transfers <= 4);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn current_replica_avoids_all_lists() -> Result<(), TestError> {
    let world = World::of(ApiServer::builder().replicas(2), None).await?;
    let _seen = world.start_informers(INFORMERS).await?;
    let before = world.lists();
    world.memory.network.send_to(1);
    world.server.faults().replica(0).stop();
    for index in 0..INFORMERS {
        world.update(index, "1")?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.server.faults().replica(0).start();
    world.check_contract().await?;
    assert_eq!(world.lists(), before, "all resumed");
    Ok(())
}
