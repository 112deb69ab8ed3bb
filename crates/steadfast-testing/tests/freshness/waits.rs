//! Waits for writes that no event tells of: a healthy cache is in no doubt over them, on a server that sends bookmarks as
//! a real one does, and at what cost.

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast_apiserver::RequestRecord;

use super::*;

/// Ten waits for writes outside of the selector, with other writes between them and without; what they cost.
async fn ten_waits(world: &World, builder: InformerBuilder<'_, InForm>) -> Result<Vec<RequestRecord>, WorldError> {
    let informer = started(builder, None).await?;
    let notes = notes(&informer);
    tokio::time::sleep(SOON).await;
    let since = world.server.elapsed();
    for number in 0..10 {
        if number == 5 {
            world.noise(SOON / 4);
        }
        let written = world.server.create(&config_map(&format!("out-{number}"), "1"))?;
        let written: ConfigMap = serde_json::from_value(written)?;
        let begun = Instant::now();
        informer.wait_for(&written).await?;
        assert!(begun.elapsed() < 4 * SOON, "wait {number} took {:?}", begun.elapsed());
        assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    }
    assert_eq!(noted(&notes, |note| matches!(note, Note::Suspect { .. })), 0, "{:?}", notes.lock());
    let requests = world.server.requests();
    Ok(requests.into_iter().filter(|request| request.at >= since).collect())
}

#[tokio::test(start_paused = true)]
async fn ten_waits_for_writes_outside_of_the_selector_leave_a_healthy_cache_in_no_doubt() -> Result<(), WorldError> {
    let world = World::new().await?;
    let builder = build_in_form(&world.factory, Scope::all().labels("app=web"));
    let requests = ten_waits(&world, builder).await?;
    let whole = requests.iter().filter(|request| matches!(request.verb, Verb::List | Verb::StreamedList)).count();
    assert_eq!(whole, 0, "nothing is listed");
    // The server is known to be there before it is asked what it has, by the same connection.
    let is_short = |query: &str| ["timeoutSeconds=4&", "timeoutSeconds=1&"].iter().any(|short| query.contains(short));
    let short: Vec<_> = requests.iter().filter(|request| is_short(&request.query)).collect();
    assert!(short.len() >= 16, "{}", short.len());
    for pair in short.chunks(2) {
        let [reach, watch] = pair else { panic!("a short watch for each: {short:?}") };
        assert!(reach.query.contains("sendInitialEvents=true") && reach.query.contains("metadata.name"), "{reach:?}");
        assert!(!watch.query.contains("sendInitialEvents"), "{watch:?}");
        assert_eq!(reach.connection, watch.connection);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn so_do_they_where_lists_are_not_streamed() -> Result<(), WorldError> {
    let world = World::of(ApiServer::builder().bookmark_period(PERIOD / 6)).await?;
    world.server.faults().refuse_streamed_lists(true);
    world.noise(SOON);
    let builder = build_in_form(&world.factory, Scope::all().labels("app=web"));
    let requests = ten_waits(&world, builder).await?;
    assert!(requests.iter().all(|request| !matches!(request.verb, Verb::StreamedList)), "refused once, and remembered");
    assert!(requests.iter().all(|request| request.verb != Verb::List), "nothing is listed: {requests:#?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_not_come_as_far_as_the_probe_is_waited_for() -> Result<(), WorldError> {
    let world = World::new().await?;
    let informer = started(build_in_form(&world.factory, Scope::all().labels("app=web")), None).await?;
    let notes = notes(&informer);
    world.server.faults().lag(true);
    let written: ConfigMap = serde_json::from_value(world.server.create(&config_map("out", "1"))?)?;
    let catching_up = async {
        tokio::time::sleep(6 * SOON).await;
        world.server.faults().lag(false);
    };
    let begun = Instant::now();
    let (waited, ()) = tokio::join!(informer.wait_for(&written), catching_up);
    waited?;
    assert!(begun.elapsed() >= 6 * SOON, "it was not there yet after {:?}", begun.elapsed());
    assert_eq!(noted(&notes, |note| matches!(note, Note::Suspect { .. })), 0, "{:?}", notes.lock());
    Ok(())
}
