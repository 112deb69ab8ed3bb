//! Each fault is found within its bound, and no other finding is reported.

use std::time::Duration;

use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_audit::AuditFindingKind::{
    HistoryReset, LostEvents, MissingBookmarks, NotAudited, ReadsFailing, ReplicaBehind, StalledStream, Unresponsive,
};
use steadfast_testing::TestError;
use steadfast_testing::proxy::Direction;
use tokio::time::sleep;

use crate::fixture::Fixture;

const FROZEN_BOUND: Duration = Duration::from_secs(15);
const STALLED_BOUND: Duration = Duration::from_secs(120);
const BEHIND_BOUND: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn frozen_endpoint_is_found_within_15s() -> Result<(), TestError> {
    let fixture = Fixture::start(3, 4).await?;
    // With each pause, the fault starts at another point between two probes.
    for pause in [0, 1, 2, 3, 4] {
        sleep(Duration::from_secs(10) + Duration::from_millis(pause * 1300)).await;
        fixture.server.faults().replica(1).freeze(true);
        fixture.wait_for(Unresponsive, 1, FROZEN_BOUND).await;
        fixture.create(0, &format!("while-frozen-{pause}"));
        sleep(Duration::from_secs(120)).await;
        fixture.server.faults().replica(1).freeze(false);
        fixture.wait_for_end(Unresponsive, 1, FROZEN_BOUND).await;
    }
    sleep(PERIOD * 2).await;
    assert!(fixture.started().iter().all(|(kind, endpoint, _)| *kind == Unresponsive && endpoint == "endpoint-1"));
    assert_eq!(fixture.started().len(), 5, "{:#?}", fixture.finding_texts());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unreachable_endpoint_is_found_within_15s() -> Result<(), TestError> {
    let fixture = Fixture::start(2, 2).await?;
    fixture.server.faults().replica(0).cut();
    fixture.wait_for(Unresponsive, 0, FROZEN_BOUND).await;
    sleep(Duration::from_secs(300)).await;
    fixture.server.faults().replica(0).heal();
    fixture.wait_for_end(Unresponsive, 0, Duration::from_secs(60)).await;
    fixture.networks[1].black_hole(Direction::ToClient, true);
    fixture.wait_for(Unresponsive, 1, FROZEN_BOUND).await;
    fixture.networks[1].heal();
    fixture.wait_for_end(Unresponsive, 1, Duration::from_secs(60)).await;
    fixture.create(0, "after");
    sleep(PERIOD).await;
    assert_eq!(fixture.started().len(), 2, "{:#?}", fixture.finding_texts());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn restarted_endpoint_is_not_reported() -> Result<(), TestError> {
    let fixture = Fixture::start(2, 2).await?;
    for number in 0..5 {
        fixture.server.faults().replica(0).restart();
        fixture.create(0, &format!("after-{number}"));
        sleep(Duration::from_secs(100)).await;
    }
    sleep(PERIOD).await;
    assert_eq!(fixture.finding_texts(), Vec::<String>::new());
    Ok(())
}

/// Stalls the watch of configmaps on the last endpoint, and returns the time until the finding.
async fn stall(replicas: usize, resources: usize, bookmarks: bool) -> Result<Duration, TestError> {
    let fixture = Fixture::start(replicas, resources).await?;
    let last = replicas - 1;
    fixture.server.faults().no_bookmarks(!bookmarks);
    sleep(Duration::from_secs(30)).await;
    let requests = fixture.server.requests();
    let is_stream = |request: &&steadfast_apiserver::RequestRecord| {
        request.replica == last
            && request.path.contains("/configmaps")
            && request.verb == steadfast_apiserver::Verb::Watch
    };
    // The first watch of the resource is the open stream; later ones are short watches.
    let stream = requests.iter().find(is_stream).expect("a watch");
    fixture.server.faults().replica(last).stall_stream(stream.id, true);
    // A quiet stream is not stalled.
    sleep(Duration::from_secs(100)).await;
    assert!(fixture.started().is_empty(), "{:#?}", fixture.finding_texts());
    fixture.create(0, "stalled");
    let found = fixture.wait_for(StalledStream, last, STALLED_BOUND).await;
    fixture.wait_for_end(StalledStream, last, STALLED_BOUND).await;
    sleep(Duration::from_secs(60)).await;
    let name = format!("endpoint-{last}");
    assert_eq!(fixture.started(), [(StalledStream, name, Some("configmaps".to_owned()))]);
    Ok(found)
}

#[tokio::test(start_paused = true)]
async fn stalled_stream_is_found_within_120s() -> Result<(), TestError> {
    for (replicas, resources, bookmarks) in [(3, 4, true), (1, 4, true), (1, 4, false), (2, 1, false)] {
        let found = stall(replicas, resources, bookmarks).await?;
        assert!(found <= STALLED_BOUND, "{found:?}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lagging_replica_is_behind_not_stalled() -> Result<(), TestError> {
    let fixture = Fixture::start(3, 2).await?;
    fixture.server.faults().replica(2).lag(true);
    sleep(Duration::from_secs(60)).await;
    assert!(fixture.started().is_empty(), "nothing has changed: {:#?}", fixture.finding_texts());
    fixture.create(0, "new");
    fixture.wait_for(ReplicaBehind, 2, BEHIND_BOUND).await;
    sleep(Duration::from_secs(120)).await;
    fixture.server.faults().replica(2).lag(false);
    fixture.wait_for_end(ReplicaBehind, 2, BEHIND_BOUND).await;
    sleep(PERIOD).await;
    let expected = (ReplicaBehind, "endpoint-2".to_owned(), Some("configmaps".to_owned()));
    assert_eq!(fixture.started(), [expected], "{:#?}", fixture.finding_texts());
    let delays = &fixture.audit.stats().endpoints[2].streams[0].delays;
    assert!(delays.sum >= 120.0, "{delays:?}");
    Ok(())
}

/// Loses one event of configmaps on `replica`, or on all replicas, and checks that the loss alone is found.
async fn lose(replicas: usize, replica: Option<usize>, change: impl Fn(&Fixture)) -> Result<(), TestError> {
    let fixture = Fixture::start(replicas, 2).await?;
    fixture.create(0, "kept");
    sleep(Duration::from_secs(100)).await;
    let faults = fixture.server.faults();
    let faults = replica.map_or_else(|| faults.clone(), |replica| faults.replica(replica));
    faults.drop_next_event("configmaps");
    change(&fixture);
    let lossy: Vec<usize> = replica.map_or_else(|| (0..replicas).collect(), |replica| vec![replica]);
    let start = tokio::time::Instant::now();
    while fixture.started().len() < lossy.len() {
        assert!(start.elapsed() <= PERIOD, "found: {:#?}", fixture.finding_texts());
        sleep(Duration::from_secs(1)).await;
    }
    sleep(PERIOD * 3).await;
    let mut started = fixture.started();
    started.sort();
    let expected = lossy.iter().map(|at| (LostEvents, format!("endpoint-{at}"), Some("configmaps".to_owned())));
    assert_eq!(started, expected.collect::<Vec<_>>(), "{:#?}", fixture.finding_texts());
    for at in lossy {
        assert_eq!(fixture.audit.stats().endpoints[at].streams[0].lost_events, 1);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_change_is_found_within_period() -> Result<(), TestError> {
    for (replicas, replica) in [(3, Some(1)), (1, Some(0)), (2, None)] {
        lose(replicas, replica, |fixture| fixture.change(0, "kept", "2")).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_deletion_is_found_within_period() -> Result<(), TestError> {
    for (replicas, replica) in [(3, Some(1)), (1, Some(0)), (2, None)] {
        lose(replicas, replica, |fixture| fixture.delete(0, "kept")).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_creation_is_found_within_period() -> Result<(), TestError> {
    for (replicas, replica) in [(3, Some(1)), (1, Some(0)), (2, None)] {
        lose(replicas, replica, |fixture| fixture.create(0, "created")).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn missing_bookmarks_are_found() -> Result<(), TestError> {
    let fixture = Fixture::start(2, 2).await?;
    fixture.server.faults().replica(0).no_bookmarks(true);
    for number in 0..60 {
        fixture.create(0, &format!("new-{number}"));
        sleep(Duration::from_secs(10)).await;
    }
    let mut started = fixture.started();
    started.sort();
    let expected = ["configmaps", "secrets"];
    let expected = expected.map(|resource| (MissingBookmarks, "endpoint-0".to_owned(), Some(resource.to_owned())));
    assert_eq!(started, expected, "{:#?}", fixture.finding_texts());
    fixture.server.faults().replica(0).no_bookmarks(false);
    fixture.create(1, "other");
    fixture.wait_for_end(MissingBookmarks, 0, Duration::from_secs(180)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn frozen_etcd_fails_only_reads() -> Result<(), TestError> {
    let fixture = Fixture::start(3, 2).await?;
    fixture.server.faults().replica(1).freeze_etcd(true);
    fixture.wait_for(ReadsFailing, 1, Duration::from_secs(60)).await;
    fixture.server.faults().replica(1).freeze_etcd(false);
    fixture.wait_for_end(ReadsFailing, 1, Duration::from_secs(60)).await;
    let expected = (ReadsFailing, "endpoint-1".to_owned(), None);
    assert_eq!(fixture.started(), [expected], "{:#?}", fixture.finding_texts());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forbidden_resource_is_not_audited() -> Result<(), TestError> {
    let fixture = Fixture::start(1, 2).await?;
    let rule = RequestRule::any().resource("secrets");
    fixture.server.faults().respond(rule, InjectedResponse::Forbidden);
    fixture.wait_for(NotAudited, 0, PERIOD).await;
    fixture.server.faults().clear_rules();
    fixture.wait_for_end(NotAudited, 0, PERIOD).await;
    assert_eq!(fixture.started(), [(NotAudited, "endpoint-0".to_owned(), Some("secrets".to_owned()))]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn restored_history_is_reset() -> Result<(), TestError> {
    let fixture = Fixture::start_server(ApiServer::builder(), 2, 1).await?;
    let backup = fixture.server.revision();
    for number in 0..30 {
        fixture.create(0, &format!("after-backup-{number}"));
    }
    sleep(Duration::from_secs(60)).await;
    fixture.server.faults().restore(backup);
    let start = tokio::time::Instant::now();
    while !fixture.started().iter().any(|(kind, ..)| *kind == HistoryReset) {
        assert!(start.elapsed() <= Duration::from_secs(60), "{:#?}", fixture.finding_texts());
        sleep(Duration::from_secs(1)).await;
    }
    sleep(PERIOD * 2).await;
    fixture.create(0, "in-the-new-history");
    sleep(PERIOD).await;
    assert!(fixture.started().iter().all(|(kind, ..)| *kind == HistoryReset), "{:#?}", fixture.finding_texts());
    assert!(fixture.audit.stats().endpoints.iter().all(|endpoint| endpoint.streams[0].is_open));
    Ok(())
}
