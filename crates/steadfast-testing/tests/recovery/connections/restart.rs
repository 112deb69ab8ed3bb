//! 500 informers after a restart of their server, and after a move to a replica that has all changes.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_testing::TestError;

use crate::connections::fixture::ConnectionFixture;

const INFORMERS: usize = 500;

#[tokio::test(start_paused = true)]
async fn restart_lists_at_most_four_concurrently() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let _recordings = fixture.start_informers(INFORMERS).await?;
    let lists_before = fixture.lists();
    fixture.server.faults().stop();
    for index in 0..INFORMERS {
        fixture.update(index, "1")?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    fixture.server.faults().start();
    fixture.check_contract().await?;
    let lists = fixture.lists() - lists_before;
    assert!((1..=INFORMERS).contains(&lists), "{lists} lists for {INFORMERS} informers");
    assert!(fixture.server.request_counts().most_concurrent_transfers <= 4);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn current_replica_avoids_all_lists() -> Result<(), TestError> {
    let fixture = ConnectionFixture::with_builder(ApiServer::builder().replicas(2), None).await?;
    let _recordings = fixture.start_informers(INFORMERS).await?;
    let lists_before = fixture.lists();
    fixture.memory.network.send_to(1);
    fixture.server.faults().replica(0).stop();
    for index in 0..INFORMERS {
        fixture.update(index, "1")?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    fixture.server.faults().replica(0).start();
    fixture.check_contract().await?;
    assert_eq!(fixture.lists(), lists_before, "all resumed");
    Ok(())
}
