//! Faults: each has an effect on a client and ends when it is switched off.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{CONFIG_MAPS, Client, config_map, in_memory_server, names, seconds_since, version_of};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast_apiserver::{
    ApiServer, BodyCorruption, InjectedResponse, InterceptAction, LinkEnd, RequestRule, RequestStage, Status, Verb,
};
use tokio::time::timeout;

fn watch_from(version: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}&allowWatchBookmarks=true")
}

const STREAMED_LIST: &str = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true\
                        &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Returns the I/O error kind at the root of a failure.
fn io_kind(failure: &crate::support::Failure) -> Option<ErrorKind> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(failure.as_ref());
    let mut kind = None;
    while let Some(error) = cause {
        let http2 = error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io);
        kind = error.downcast_ref::<std::io::Error>().or(http2).map(std::io::Error::kind).or(kind);
        cause = error.source();
    }
    kind
}

#[tokio::test(start_paused = true)]
async fn stopped_server_rejects_until_restart() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().stop();
    assert_eq!(io_kind(&watch.assert_breaks().await), Some(ErrorKind::ConnectionReset));
    assert_eq!(server.connect(0).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.faults().start();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);
    let ends: Vec<Option<LinkEnd>> =
        server.connections().iter().map(|connection| connection.ended.map(|(_, end)| end)).collect();
    assert_eq!(ends, [Some(LinkEnd::Reset), None]);
}

#[tokio::test]
async fn cut_network_resets_and_refuses_sockets() {
    let server = ApiServer::start().await.unwrap();
    let mut client = Client::over_tcp(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().cut();
    assert_eq!(io_kind(&watch.assert_breaks().await), Some(ErrorKind::ConnectionReset));
    let refused = tokio::net::TcpStream::connect(server.address(0).unwrap()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.faults().heal();
    let mut client = Client::over_tcp(&server, 0).await.unwrap();
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);
    let log: Vec<_> = server.fault_log().iter().map(|record| (record.fault, record.on)).collect();
    assert_eq!(log, [("cut", Some(true)), ("cut", Some(false))]);
}

#[tokio::test]
async fn restarted_server_is_reachable_immediately() {
    let server = ApiServer::start().await.unwrap();
    let address = server.address(0).unwrap();
    for round in 0..50 {
        let mut client = Client::over_tcp(&server, 0).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        client
            .call(Method::GET, "/version", &Value::Null)
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 2 == 0 {
            server.faults().restart();
        } else {
            server.faults().stop();
            let refused = tokio::net::TcpStream::connect(address).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused, "round {round}");
            server.faults().start();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connection_breaks_within_an_object() {
    let server = in_memory_server().await;
    let mut client = Client::http1(server.connect(0).await.unwrap()).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.create(&config_map("a")).unwrap();
    assert_eq!(watch.summary().await.1, "a");
    server.faults().reset_after_bytes(100);
    server.create(&config_map("b")).unwrap();
    watch.assert_breaks().await;
    assert_eq!(server.connections()[0].ended.map(|(_, end)| end), Some(LinkEnd::Reset));
}

#[tokio::test(start_paused = true)]
async fn black_hole_stalls_without_an_error() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().black_hole(true);
    server.create(&config_map("a")).unwrap();
    watch.assert_silent_for(Duration::from_secs(1000)).await;
    assert!(timeout(Duration::from_secs(1000), server.connect(0)).await.is_err(), "a SYN gets no response");
    assert!(server.connections()[0].failed_at.is_some());
    server.faults().black_hole(false);
    assert_eq!(watch.summary().await.1, "a");
}

#[tokio::test(start_paused = true)]
async fn accepted_connection_closes_immediately() {
    let server = in_memory_server().await;
    server.faults().accept_and_close(true);
    let Ok(mut client) = Client::in_memory(&server, 0).await else { return };
    assert!(client.call(Method::GET, CONFIG_MAPS, &Value::Null).await.is_err());
    assert_eq!(server.connections()[0].ended.map(|(_, end)| end), Some(LinkEnd::Closed));
}

#[tokio::test(start_paused = true)]
async fn frozen_server_only_acknowledges_pings() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().freeze(true);
    server.create(&config_map("a")).unwrap();
    watch.assert_silent_for(Duration::from_secs(300)).await;
    let call = timeout(Duration::from_secs(300), client.call(Method::GET, CONFIG_MAPS, &Value::Null));
    assert!(call.await.is_err(), "no request is handled");
    let builder = h2::client::Builder::new();
    let (_requests, mut connection) =
        builder.handshake::<_, bytes::Bytes>(server.connect(0).await.unwrap()).await.unwrap();
    let ping = async {
        let mut pings = connection.ping_pong().expect("a ping handle");
        let pong = pings.ping(h2::Ping::opaque());
        tokio::select! {
            pong = pong => pong.map(drop),
            ended = &mut connection => ended,
        }
    };
    timeout(Duration::from_secs(1), ping).await.expect("pings are acknowledged").unwrap();
    server.faults().freeze(false);
    assert_eq!(watch.summary().await.1, "a");
}

#[tokio::test(start_paused = true)]
async fn stalled_stream_leaves_its_connection_healthy() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let start = server.revision();
    let path = watch_from(start).replace("&allowWatchBookmarks=true", "");
    let mut stalled = client.watch(&path).await;
    let mut healthy = client.watch(&path).await;
    let request = server.requests()[0].id;
    server.faults().stall_stream(request, true);
    server.create(&config_map("a")).unwrap();
    assert_eq!(healthy.summary().await.1, "a");
    stalled.assert_silent_for(Duration::from_secs(500)).await;
    server.faults().stall_stream(request, false);
    assert_eq!(stalled.summary().await.1, "a");
    server.faults().stall_streams(true);
    server.create(&config_map("b")).unwrap();
    stalled.assert_silent_for(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn ended_watches_close_cleanly() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    assert_eq!(server.open_watches(0), 1);
    server.faults().end_watches();
    watch.assert_ends().await;
    assert_eq!(server.open_watches(0), 0);
    let short = ApiServer::builder().in_memory().watch_timeout(Duration::from_secs(5)..Duration::from_secs(10));
    let server = short.start().await.unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    client.watch(&watch_from(server.revision())).await.assert_ends().await;
    assert!((5..=10).contains(&seconds_since(&server, Duration::ZERO)));
}

#[tokio::test(start_paused = true)]
async fn goaway_lets_streams_in_flight_finish() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().goaway();
    server.create(&config_map("a")).unwrap();
    assert_eq!(watch.summary().await.1, "a");
    assert!(client.call(Method::GET, CONFIG_MAPS, &Value::Null).await.is_err(), "no new stream is opened");
    server.faults().end_watches();
    watch.assert_ends().await;
}

#[tokio::test(start_paused = true)]
async fn connection_limits_its_streams() {
    let server = ApiServer::builder().in_memory().max_streams(2).start().await.unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let start = server.revision();
    let _first = client.watch(&watch_from(start)).await;
    let second = client.watch(&watch_from(start)).await;
    let third = client.call(Method::GET, CONFIG_MAPS, &Value::Null);
    assert!(timeout(Duration::from_secs(60), third).await.is_err(), "the request waits behind the watches");
    drop(second);
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn dropped_event_only_appears_in_lists() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().drop_next_event("configmaps");
    let dropped_object = server.create(&config_map("a")).unwrap();
    server.create(&config_map("b")).unwrap();
    assert_eq!(watch.summary().await.1, "b");
    assert_eq!(names(&client.get(CONFIG_MAPS).await.1), ["a", "b"]);
    server.faults().drop_event(dropped_object["metadata"]["uid"].as_str().unwrap());
    server.delete(&dropped_object).unwrap();
    // The bookmark skips the dropped event.
    assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), server.revision()));
}

#[tokio::test(start_paused = true)]
async fn resumed_watch_repeats_old_events() {
    let server = in_memory_server().await;
    let first = version_of(&server.create(&config_map("a")).unwrap());
    let second = version_of(&server.create(&config_map("b")).unwrap());
    server.faults().repeat_events(2);
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(second)).await;
    assert_eq!(watch.summary().await, ("ADDED".into(), "a".into(), first));
    assert_eq!(watch.summary().await, ("ADDED".into(), "b".into(), second));
}

#[tokio::test(start_paused = true)]
async fn rules_replace_responses() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let lists = RequestRule::any().verb(Verb::List).resource("configmaps");
    let busy = InjectedResponse::retry_after(429, Duration::from_millis(1500));
    server.faults().respond(lists.clone().times(2), busy);
    for _ in 0..2 {
        let response = client.request(Method::GET, CONFIG_MAPS, &[], &Value::Null).await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"2".parse().unwrap()));
    }
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);

    server.faults().respond(lists.namespace("default"), InjectedResponse::Forbidden);
    let (code, status) = client.get(CONFIG_MAPS).await;
    let expected = "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API \
                    group \"\" in the namespace \"default\"";
    assert_eq!((code, status["message"].as_str()), (403, Some(expected)));
    assert_eq!(client.get("/api/v1/pods").await.0, 200);

    let expired = Status::of_code(410).with_reason("Gone").with_message("too old resource version");
    server.faults().respond(RequestRule::any().verb(Verb::Watch), InjectedResponse::InStream(expired));
    let mut watch = client.watch(&watch_from(server.revision())).await;
    let event = watch.event().await;
    assert_eq!((watch.code, &event["type"], &event["object"]["reason"]), (200, &json!("ERROR"), &json!("Gone")));
    watch.assert_ends().await;
    server.faults().clear_rules();
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn namespace_rule_ignores_longer_names() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.faults().respond(RequestRule::any().namespace("shop"), InjectedResponse::code(503));
    for (path, code) in [
        ("/api/v1/namespaces/shop/configmaps", 503),
        ("/api/v1/namespaces/shop", 503),
        ("/api/v1/namespaces/shop-2/configmaps", 200),
        ("/api/v1/namespaces/my-shop/configmaps", 200),
        ("/api/v1/namespaces", 200),
    ] {
        assert_eq!(client.get(path).await.0, code, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn corruption_affects_each_body() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    let intact_length = client.get(CONFIG_MAPS).await.1.to_string().len();
    let once = || RequestRule::any().times(1);
    for corruption in [BodyCorruption::Malformed, BodyCorruption::Truncated, BodyCorruption::WrongContentType] {
        server.faults().corrupt(once(), corruption);
        let (code, body) = client.get(CONFIG_MAPS).await;
        assert!(code == 200 && body.is_string(), "{corruption:?} makes {body}");
    }
    server.faults().corrupt(once(), BodyCorruption::Oversized(5_000_000));
    let (_, large) = client.get(CONFIG_MAPS).await;
    assert!(large["oversized"].as_str().unwrap().len() == 5_000_000);
    server.faults().corrupt(once(), BodyCorruption::MissingIdentity);
    let (_, anonymous) = client.get(CONFIG_MAPS).await;
    let object = &anonymous["items"][0]["metadata"];
    assert_eq!(
        (&object["name"], &object["uid"], &object["resourceVersion"]),
        (&json!("a"), &Value::Null, &Value::Null)
    );
    assert_eq!(anonymous["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(client.get(CONFIG_MAPS).await.1.to_string().len(), intact_length);

    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.faults().undecodable("default", "b", true);
    server.create(&config_map("b")).unwrap();
    assert_eq!(watch.summary().await.1, "b");
    let mut watch = client.watch(&watch_from(server.revision() - 1)).await;
    let corrupted = watch.event().await;
    assert_eq!((&corrupted["object"]["data"], corrupted["object"]["metadata"]["uid"].is_string()), (&json!(7), true));
}

#[tokio::test(start_paused = true)]
async fn streams_are_corrupted_by_event() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let start = server.revision();
    let watches = || RequestRule::any().verb(Verb::Watch).times(1);
    server.faults().corrupt(watches(), BodyCorruption::Malformed);
    let mut malformed = client.watch(&watch_from(start)).await;
    server.faults().corrupt(watches(), BodyCorruption::Truncated);
    let mut truncated = client.watch(&watch_from(start)).await;
    server.faults().corrupt(watches(), BodyCorruption::Oversized(100_000));
    let mut oversized = client.watch(&watch_from(start)).await;
    server.create(&config_map("a")).unwrap();
    assert!(malformed.next().await.is_err(), "the line must not be valid JSON");
    truncated.assert_ends().await;
    let event = oversized.event().await;
    assert_eq!(event["oversized"].as_str().map(str::len), Some(100_000));
    assert_eq!(event["object"]["metadata"]["name"], "a");
    server.create(&config_map("b")).unwrap();
    assert_eq!(oversized.summary().await.1, "b");
}

#[tokio::test(start_paused = true)]
async fn streamed_lists_fail_in_each_mode() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    server.faults().no_initial_events_end(true);
    let mut endless = client.watch(STREAMED_LIST).await;
    assert_eq!(endless.summary().await.1, "a");
    endless.assert_silent_for(Duration::from_secs(50)).await;
    server.faults().no_initial_events_end(false);
    server.faults().unannotated_initial_events_end(true);
    let mut unannotated = client.watch(STREAMED_LIST).await;
    assert_eq!(unannotated.summary().await.1, "a");
    let end = unannotated.event().await;
    assert_eq!((&end["type"], end["object"]["metadata"].get("annotations")), (&json!("BOOKMARK"), None));
    server.faults().refuse_streamed_lists(true);
    assert_eq!(client.get(STREAMED_LIST).await.0, 422);
    server.faults().refuse_streamed_lists(false);
    server.faults().ignore_streamed_lists(true);
    let mut plain = client.watch(STREAMED_LIST).await;
    assert_eq!(plain.summary().await.1, "a");
    plain.assert_silent_for(Duration::from_secs(50)).await;
    server.faults().no_bookmarks(true);
    server.create(&config_map("b")).unwrap();
    assert_eq!(plain.summary().await.1, "b");
    plain.assert_silent_for(Duration::from_secs(500)).await;
}

#[tokio::test(start_paused = true)]
async fn delay_applies_to_responses() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.faults().delay(Duration::from_secs(4));
    let before = server.elapsed();
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);
    assert_eq!(seconds_since(&server, before), 4);
}

#[tokio::test(start_paused = true)]
async fn slow_watch_is_closed() {
    let server = ApiServer::builder().in_memory().slow_watch_limits(100, Duration::from_secs(5)).start().await.unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.create(&config_map("a")).unwrap();
    let text = "x".repeat(1000);
    for round in 0..3000 {
        server.merge_patch("configmaps", "default", "a", json!({"data": {"k": format!("{round}{text}")}})).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    for round in 0..500 {
        server.merge_patch("configmaps", "default", "a", json!({"data": {"k": format!("{round}")}})).unwrap();
    }
    let mut received = 0;
    while let Ok(Some(_)) = watch.next().await {
        received += 1;
    }
    assert!(received < 3500, "{received} events were received");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_required_if_configured() {
    let server = ApiServer::builder().in_memory().token("secret").start().await.unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let (code, status) = client.get(CONFIG_MAPS).await;
    assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));
    let headers = [("authorization", "Bearer secret")];
    assert_eq!(client.call_with(Method::GET, CONFIG_MAPS, &headers, &Value::Null).await.unwrap().0, 200);
    assert!(server.kubeconfig().contains("secret"));
    server.faults().replace_tokens(&["rotated"]);
    assert_eq!(client.call_with(Method::GET, CONFIG_MAPS, &headers, &Value::Null).await.unwrap().0, 401);
    let headers = [("authorization", "Bearer rotated")];
    assert_eq!(client.call_with(Method::GET, CONFIG_MAPS, &headers, &Value::Null).await.unwrap().0, 200);
}

#[tokio::test(start_paused = true)]
async fn dialer_is_refused_after_server_end() {
    let server = in_memory_server().await;
    let dialer = server.dialer();
    server.stop();
    assert_eq!(dialer.connect(0).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn dropped_server_ends_everything() {
    let server = ApiServer::start().await.unwrap();
    let address = server.address(0).unwrap();
    let mut client = Client::over_tcp(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    drop(server);
    watch.assert_breaks().await;
    let closed = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(5), closed).await.expect("the port is closed");
}

#[tokio::test(start_paused = true)]
async fn interceptor_loses_or_delays_requests() {
    let server = in_memory_server().await;
    let maps = ["before", "after", "waits"].map(config_map);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&calls);
    let count = AtomicU32::new(0);
    server.faults().intercept(move |request, stage| {
        recorder.lock().push((request.id, request.verb, stage));
        match (count.fetch_add(1, Ordering::Relaxed), stage) {
            // The first request is lost on arrival, the second after processing; the third one waits.
            (0, RequestStage::Arrived) | (2, RequestStage::Processed) => InterceptAction::Reset,
            (3, RequestStage::Arrived) => InterceptAction::Delay(Duration::from_secs(20)),
            _ => InterceptAction::Continue,
        }
    });
    let mut outcomes = Vec::new();
    for map in &maps {
        let mut client = Client::in_memory(&server, 0).await.unwrap();
        let started = server.elapsed();
        let outcome = client.call(Method::POST, CONFIG_MAPS, map).await;
        outcomes.push((outcome.is_ok(), seconds_since(&server, started)));
    }
    assert_eq!(outcomes, [(false, 0), (false, 0), (true, 20)]);
    let exists = |name: &str| server.get("configmaps", "default", name).is_ok();
    assert_eq!(["before", "after", "waits"].map(exists), [false, true, true]);
    let (before, after) = (RequestStage::Arrived, RequestStage::Processed);
    let create = |id: u64, stage: RequestStage| (id, Verb::Create, stage);
    let expected = [create(0, before), create(1, before), create(1, after), create(2, before), create(2, after)];
    assert_eq!(*calls.lock(), expected);

    server.faults().clear_interceptor();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    assert_eq!(client.get(CONFIG_MAPS).await.0, 200);
    assert_eq!(calls.lock().len(), 5, "the interceptor is no longer called");
}
