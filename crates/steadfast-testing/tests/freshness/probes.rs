//! Probes are shared by the informers of one resource; their failures are not.

use k8s_openapi::api::core::v1::Secret;
use steadfast_apiserver::{Answer, RequestRule};
use steadfast_core::record::Bookmark;
use steadfast_core::reflector::{Input, Output, Record, Reflector, ReflectorSettings, Request};

use super::*;

const MANY: usize = 100;

#[tokio::test(start_paused = true)]
async fn a_hundred_informers_of_one_resource_that_fall_silent_ask_once() -> Result<(), WorldError> {
    let world = World::new().await?;
    let mut informers = Vec::new();
    for number in 0..MANY {
        let scope = Scope::all().labels(format!("app=a-{number}"));
        informers.push(build_in_form(&world.factory, scope).start()?);
    }
    world.factory.wait_for_sync(PERIOD).await?;
    let secrets = world.factory.informer::<Secret>(Scope::all())?;
    secrets.wait_for_sync(SOON).await?;
    let begin = world.server.elapsed() + SOON;
    tokio::time::sleep(PERIOD + PERIOD / 5).await;
    let of = |resource: &str| {
        let requests = world.server.requests();
        let probes = requests.iter().filter(|request| request.verb == Verb::Probe && request.at >= begin);
        probes.filter(|probe| probe.path.ends_with(resource)).count()
    };
    assert!((1..=2).contains(&of("configmaps")), "{}", of("configmaps"));
    assert_eq!(of("secrets"), 1, "another resource is another question");
    for informer in &informers {
        let Freshness::Fresh { age, .. } = informer.freshness() else { panic!("{}", informer.freshness()) };
        assert!(age < PERIOD / 2, "proven by the one probe: {age:?}");
    }
    // And so it goes on.
    tokio::time::sleep(10 * PERIOD).await;
    assert!(of("configmaps") <= 24, "{}", of("configmaps"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_forbidden_in_one_namespace_decides_nothing_for_others() -> Result<(), WorldError> {
    let world = World::new().await?;
    let mut informers = Vec::new();
    for name in ["default", "kube-system", "kube-public"] {
        informers.push(build_in_form(&world.factory, Scope::namespace(name)).start()?);
    }
    world.factory.wait_for_sync(PERIOD).await?;
    for namespace in ["kube-system", "kube-public"] {
        let rule = RequestRule::any().verb(Verb::Probe).namespace(namespace);
        world.server.faults().answer_with(rule, Answer::Forbidden);
    }
    for _ in 0..10 {
        tokio::time::sleep(PERIOD / 2).await;
        assert!(informers[0].freshness().is_fresh(), "{}", informers[0].freshness());
    }
    // Where another's answer came first, it serves those who may not ask as well.
    let answered = world.server.requests().iter().filter(|probe| probe.verb == Verb::Probe).count();
    assert!(answered <= 60, "{answered}");
    Ok(())
}

/// A reflector whose probe is answered 4 s after it was sent; tells how old its proof then is said to be.
fn late_answer(breach: Option<Breach>) -> Duration {
    let at = |seconds| steadfast::environment::Instant::from_zero(Duration::from_secs(seconds));
    let mut settings = ReflectorSettings { streamed_lists: Some(true), ..ReflectorSettings::default() };
    if let Some(breach) = breach {
        settings.rules.breaches = steadfast_core::breach::Breaches::only(breach);
    }
    let mut reflector = Reflector::new(settings, 1);
    reflector.step(at(0), Input::Start);
    let sent = |outputs: Vec<Output>| {
        outputs.into_iter().find_map(|output| match output {
            Output::Send(id, request) => Some((id, request)),
            _ => None,
        })
    };
    let (list, _) = sent(reflector.step(at(0), Input::TransferGranted)).expect("a list");
    reflector.step(at(0), Input::Opened(list));
    let end = Bookmark { version: "9".into(), initial_events_end: true };
    reflector.record(at(0), list, Record::Bookmark(&end));
    let (probe, request) = sent(reflector.step(at(70), Input::Tick)).expect("a probe");
    assert!(matches!(request, Request::Probe { .. }));
    reflector.step(at(74), Input::Probed(probe, Some("9".into()), at(70)));
    match reflector.evidence().at(at(74)) {
        Freshness::Fresh { age, .. } => age,
        doubt => panic!("{doubt}"),
    }
}

#[test]
fn a_probe_proves_what_was_true_when_it_was_sent() {
    assert_eq!(late_answer(None), Duration::from_secs(4));
    assert_eq!(late_answer(Some(Breach::LateProof)), Duration::ZERO, "the broken library says otherwise");
}
