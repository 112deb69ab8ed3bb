//! Lists that hang because of a dead conversion webhook (R7) delay no other list.

use std::time::Duration;

use steadfast::{Informer, Scope};
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_testing::{CachedConfigMap, ConfigMapInForm, TestError, builder_with_form, config_map_in};
use tokio::time::{Instant, sleep};

use crate::connections::fixture::{ConnectionFixture, ensure, until};

/// Timeout of an API server for a conversion webhook.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(29);

/// Returns the rule that selects the namespaces with hanging lists.
fn hanging_namespaces() -> RequestRule {
    RequestRule::any().namespace("hanging-")
}

impl ConnectionFixture {
    /// Starts informers with hanging lists, each in its own namespace.
    fn start_hanging(&self, count: usize) -> Result<Vec<Informer<ConfigMapInForm>>, TestError> {
        let scope = |index| Scope::namespace(format!("hanging-{index}"));
        (0..count).map(|index| Ok(builder_with_form(&self.factory, scope(index)).start()?)).collect()
    }

    /// Starts an unaffected informer, and returns the time until its sync.
    async fn time_to_sync(&self, index: usize) -> Result<Duration, TestError> {
        let start = Instant::now();
        let informer = self.informer(index)?;
        informer.wait_for_sync(Duration::from_secs(3600)).await?;
        Ok(start.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_lists_do_not_delay_first_list() -> Result<(), TestError> {
    for (hanging_count, limit) in [(4, 50), (8, 600), (20, 2000), (60, 4000)] {
        let fixture = ConnectionFixture::new(None).await?;
        fixture.server.faults().respond_after(hanging_namespaces(), WEBHOOK_TIMEOUT, InjectedResponse::code(500));
        let _hanging = fixture.start_hanging(hanging_count)?;
        sleep(Duration::from_secs(1)).await;
        let elapsed = fixture.time_to_sync(0).await?;
        let limit = Duration::from_millis(limit);
        ensure(elapsed < limit, || format!("next to {hanging_count} lists that hang, synced after {elapsed:?}"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn repeatedly_hanging_lists_leave_slots_free() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    fixture.server.faults().respond_after(hanging_namespaces(), WEBHOOK_TIMEOUT, InjectedResponse::code(500));
    let _hanging = fixture.start_hanging(60)?;
    sleep(Duration::from_secs(10)).await;
    for index in 0..60 {
        // The interval is not a divisor of the timeout, so each sync starts in another phase of the hanging lists.
        sleep(Duration::from_millis(3_700)).await;
        let elapsed = fixture.time_to_sync(index).await?;
        ensure(elapsed < Duration::from_millis(1_100), || format!("number {index} was synced after {elapsed:?}"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hanging_lists_block_no_relist() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let healthy = fixture.informer(0)?;
    healthy.wait_for_sync(Duration::from_secs(10)).await?;
    fixture.server.faults().respond_after(hanging_namespaces(), WEBHOOK_TIMEOUT, InjectedResponse::code(500));
    let _hanging = fixture.start_hanging(20)?;
    sleep(Duration::from_secs(1)).await;
    fixture.server.faults().cut();
    fixture.update(0, "1")?;
    fixture.server.faults().expire_events();
    fixture.server.faults().heal();
    let lister = healthy.lister()?;
    let has_update = || {
        lister
            .get("team-0", "a")
            .is_ok_and(|object| object.is_some_and(|object| object.value("value").as_deref() == Some("1")))
    };
    let elapsed = until(Duration::from_secs(60), "the relist is complete", has_update).await?;
    ensure(elapsed < Duration::from_secs(3), || format!("listed again after {elapsed:?}"))
}

#[tokio::test(start_paused = true)]
async fn stalled_list_delays_no_other_list() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    for index in 0..4 {
        let namespace = format!("hanging-{index}");
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        fixture.server.create(&object)?;
        for name in ["a", "b", "c"] {
            fixture.server.create(&config_map_in(&namespace, name, "0"))?;
        }
    }
    fixture.server.faults().respond_after(
        hanging_namespaces().verb(Verb::Page),
        WEBHOOK_TIMEOUT,
        InjectedResponse::code(500),
    );
    let mut half_listed = Vec::new();
    for index in 0..4 {
        let scope = Scope::namespace(format!("hanging-{index}"));
        half_listed.push(builder_with_form(&fixture.factory, scope).streamed_lists(false).page_size(Some(2)).start()?);
    }
    sleep(Duration::from_secs(1)).await;
    let elapsed = fixture.time_to_sync(0).await?;
    ensure(elapsed < Duration::from_millis(500), || format!("synced after {elapsed:?}"))?;
    fixture.server.faults().clear_rules();
    for informer in half_listed {
        informer.wait_for_sync(Duration::from_secs(60)).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn late_response_is_applied() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    fixture.server.faults().delay_matching(RequestRule::any().verb(Verb::StreamedList), Duration::from_secs(7));
    let start = Instant::now();
    let informers = (0..20).map(|index| fixture.informer(index)).collect::<Result<Vec<_>, _>>()?;
    for informer in &informers {
        informer.wait_for_sync(Duration::from_secs(60)).await?;
    }
    ensure(start.elapsed() < Duration::from_secs(12), || format!("all synced after {:?}", start.elapsed()))?;
    ensure(fixture.lists() == 20, || format!("{} lists for 20 informers", fixture.lists()))
}

#[tokio::test(start_paused = true)]
async fn probe_succeeds_while_other_lists_hang() -> Result<(), TestError> {
    // This server sends no bookmarks. Over HTTP/1.1, a short watch then proves nothing, so a probe needs a list.
    let fixture = ConnectionFixture::over_http1().await?;
    fixture.server.faults().no_bookmarks(true);
    let healthy = fixture.informer(0)?;
    healthy.wait_for_sync(Duration::from_secs(10)).await?;
    fixture.server.faults().respond_after(hanging_namespaces(), WEBHOOK_TIMEOUT, InjectedResponse::code(500));
    let _hanging = fixture.start_hanging(20)?;
    let requests_before = fixture.server.requests().len();
    for number in 0..18 {
        // The write is outside of the informer's namespace, so the probe returns a version without an event for the
        // informer.
        fixture.server.create(&config_map_in("default", &format!("other-{number}"), "0"))?;
        sleep(Duration::from_secs(10)).await;
    }
    let is_own_list =
        |request: &steadfast_apiserver::RequestRecord| request.verb == Verb::List && request.path.contains("/team-0/");
    let proofs = fixture.server.requests().iter().skip(requests_before).filter(|request| is_own_list(request)).count();
    ensure(proofs > 0, || "no list was requested as a proof".to_owned())?;
    ensure(healthy.freshness().is_fresh(), || healthy.freshness().to_string())
}
