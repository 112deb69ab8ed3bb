//! Informers of one resource share probes, but not their failures.

use k8s_openapi::api::core::v1::Secret;
use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_core::record::Bookmark;
use steadfast_core::reflector::{Input, Output, Record, Reflector, ReflectorSettings, Request};

use super::*;

/// Number of informers of one resource.
const INFORMERS: usize = 100;

#[tokio::test(start_paused = true)]
async fn hundred_silent_informers_share_one_probe() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    let mut informers = Vec::new();
    for number in 0..INFORMERS {
        let scope = Scope::all().labels(format!("app=a-{number}"));
        informers.push(builder_with_form(&fixture.factory, scope).start()?);
    }
    fixture.factory.wait_for_sync(PERIOD).await?;
    let secrets = fixture.factory.informer::<Secret>(Scope::all())?;
    secrets.wait_for_sync(REACTION_TIME).await?;
    let start = fixture.server.elapsed() + REACTION_TIME;
    tokio::time::sleep(PERIOD + PERIOD / 5).await;
    let of = |resource: &str| {
        let requests = fixture.server.requests();
        let probes = requests.iter().filter(|request| request.verb == Verb::Probe && request.at >= start);
        probes.filter(|probe| probe.path.ends_with(resource)).count()
    };
    assert!((1..=2).contains(&of("configmaps")), "{}", of("configmaps"));
    assert_eq!(of("secrets"), 1, "another resource needs its own probe");
    for informer in &informers {
        let Freshness::Fresh { age, .. } = informer.freshness() else { panic!("{}", informer.freshness()) };
        assert!(age < PERIOD / 2, "the shared probe proves it: {age:?}");
    }
    // The informers share their probes in later periods as well.
    tokio::time::sleep(10 * PERIOD).await;
    assert!(of("configmaps") <= 24, "{}", of("configmaps"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forbidden_probe_does_not_affect_other_namespaces() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    let mut informers = Vec::new();
    for name in ["default", "kube-system", "kube-public"] {
        informers.push(builder_with_form(&fixture.factory, Scope::namespace(name)).start()?);
    }
    fixture.factory.wait_for_sync(PERIOD).await?;
    for namespace in ["kube-system", "kube-public"] {
        let rule = RequestRule::any().verb(Verb::Probe).namespace(namespace);
        fixture.server.faults().respond(rule, InjectedResponse::Forbidden);
    }
    for _ in 0..10 {
        tokio::time::sleep(PERIOD / 2).await;
        assert!(informers[0].freshness().is_fresh(), "{}", informers[0].freshness());
    }
    // The informers without permission repeat rejected probes at a limited rate. They need no probe of their own if the
    // response to another informer's probe arrives first, because this response also proves their caches.
    let probes = fixture.server.requests().iter().filter(|probe| probe.verb == Verb::Probe).count();
    assert!(probes <= 60, "{probes}");
    Ok(())
}

/// Runs a reflector with a probe that takes 4 s. Returns the age of the proof.
fn proof_age_of_slow_probe(fault: Option<InjectedFault>) -> Duration {
    let at = |seconds| steadfast::environment::Instant::from_zero(Duration::from_secs(seconds));
    let mut settings = ReflectorSettings { streamed_lists: Some(true), ..ReflectorSettings::default() };
    if let Some(fault) = fault {
        settings.rules.faults = steadfast_core::fault_injection::FaultInjection::only(fault);
    }
    let mut reflector = Reflector::new(settings, 1);
    reflector.step(at(0), Input::Start);
    let sent = |outputs: Vec<Output>| {
        outputs.into_iter().find_map(|output| match output {
            Output::Send(id, request) => Some((id, request)),
            _ => None,
        })
    };
    let (list, _) = sent(reflector.step(at(0), Input::TransferGranted)).expect("the reflector sends a list");
    reflector.step(at(0), Input::Opened(list));
    let end = Bookmark { version: "9".into(), initial_events_end: true };
    reflector.record(at(0), list, Record::Bookmark(&end));
    let (probe, request) = sent(reflector.step(at(70), Input::Tick)).expect("the reflector sends a probe");
    assert!(matches!(request, Request::Probe { .. }));
    reflector.step(at(74), Input::Probed(probe, Some("9".into()), at(70)));
    match reflector.evidence().at(at(74)) {
        Freshness::Fresh { age, .. } => age,
        doubt => panic!("{doubt}"),
    }
}

#[test]
fn probe_proof_dates_from_its_request() {
    assert_eq!(proof_age_of_slow_probe(None), Duration::from_secs(4));
    assert_eq!(
        proof_age_of_slow_probe(Some(InjectedFault::LateProof)),
        Duration::ZERO,
        "the injected fault must be visible"
    );
}
