//! Waits for writes without an event. On a server with bookmarks like those of a real one, such a wait must not put a
//! healthy cache in doubt. The tests also check the cost of these waits.

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast_apiserver::RequestRecord;

use super::*;

/// Runs ten waits for writes outside of the selector, with and without other writes in between. Returns their requests.
async fn run_ten_waits(
    fixture: &FreshnessFixture,
    builder: InformerBuilder<'_, ConfigMapInForm>,
) -> Result<Vec<RequestRecord>, TestError> {
    let informer = start_fresh(builder, None).await?;
    let notes = record_diagnostics(&informer);
    tokio::time::sleep(REACTION_TIME).await;
    let start = fixture.server.elapsed();
    for number in 0..10 {
        if number == 5 {
            fixture.write_periodically(REACTION_TIME / 4);
        }
        let created = fixture.server.create(&config_map(&format!("out-{number}"), "1"))?;
        let created: ConfigMap = serde_json::from_value(created)?;
        let wait_start = Instant::now();
        informer.wait_for(&created).await?;
        assert!(wait_start.elapsed() < 4 * REACTION_TIME, "wait {number} took {:?}", wait_start.elapsed());
        assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    }
    assert_eq!(note_count(&notes, |note| matches!(note, Diagnostic::Suspect { .. })), 0, "{:?}", notes.lock());
    let requests = fixture.server.requests();
    Ok(requests.into_iter().filter(|request| request.at >= start).collect())
}

#[tokio::test(start_paused = true)]
async fn waits_outside_selector_cause_no_doubt() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    let builder = builder_with_form(&fixture.factory, Scope::all().labels("app=web"));
    let requests = run_ten_waits(&fixture, builder).await?;
    let list_count = requests.iter().filter(|request| matches!(request.verb, Verb::List | Verb::StreamedList)).count();
    assert_eq!(list_count, 0, "no list is sent");
    // Each wait has a pair of short watches. With the first one, the client verifies that the server responds on the
    // same connection.
    let is_short =
        |query: &str| ["timeoutSeconds=4&", "timeoutSeconds=1&"].iter().any(|parameter| query.contains(parameter));
    let short_watches: Vec<_> = requests.iter().filter(|request| is_short(&request.query)).collect();
    assert!(short_watches.len() >= 16, "{}", short_watches.len());
    for pair in short_watches.chunks(2) {
        let [reach_request, short_watch] = pair else { panic!("each wait needs a short watch: {short_watches:?}") };
        assert!(
            reach_request.query.contains("sendInitialEvents=true") && reach_request.query.contains("metadata.name"),
            "{reach_request:?}"
        );
        assert!(!short_watch.query.contains("sendInitialEvents"), "{short_watch:?}");
        assert_eq!(reach_request.connection, short_watch.connection);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn waits_without_streamed_lists_cause_no_doubt() -> Result<(), TestError> {
    let fixture = FreshnessFixture::with_builder(ApiServer::builder().bookmark_period(PERIOD / 6)).await?;
    fixture.server.faults().refuse_streamed_lists(true);
    fixture.write_periodically(REACTION_TIME);
    let builder = builder_with_form(&fixture.factory, Scope::all().labels("app=web"));
    let requests = run_ten_waits(&fixture, builder).await?;
    assert!(
        requests.iter().all(|request| !matches!(request.verb, Verb::StreamedList)),
        "rejected once, and remembered"
    );
    assert!(requests.iter().all(|request| request.verb != Verb::List), "no list is sent: {requests:#?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn wait_tolerates_server_behind_probe() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    let informer = start_fresh(builder_with_form(&fixture.factory, Scope::all().labels("app=web")), None).await?;
    let notes = record_diagnostics(&informer);
    fixture.server.faults().lag(true);
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("out", "1"))?)?;
    let catch_up = async {
        tokio::time::sleep(6 * REACTION_TIME).await;
        fixture.server.faults().lag(false);
    };
    let wait_start = Instant::now();
    let (wait_result, ()) = tokio::join!(informer.wait_for(&created), catch_up);
    wait_result?;
    assert!(wait_start.elapsed() >= 6 * REACTION_TIME, "the wait ended too early, after {:?}", wait_start.elapsed());
    assert_eq!(note_count(&notes, |note| matches!(note, Diagnostic::Suspect { .. })), 0, "{:?}", notes.lock());
    Ok(())
}
