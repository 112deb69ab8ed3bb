//! Sockets, TLS, and many concurrent servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{CONFIG_MAPS, Client, config_map, names};
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::Full;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use steadfast_apiserver::{ApiServer, MemoryStream};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest};

async fn over_tls(server: &ApiServer, offered_protocols: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = server.ca_pem().expect("a certificate authority");
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = offered_protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(server.address(0).expect("a server with sockets")).await?;
    let name = ServerName::try_from("127.0.0.1").expect("a valid address");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn tls_clients_choose_the_protocol() {
    let server = ApiServer::builder().tls(true).start().await.unwrap();
    server.create(&config_map("a")).unwrap();
    let stream = over_tls(&server, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Client::http2(stream).await.unwrap();
    assert_eq!(names(&client.get(CONFIG_MAPS).await.1), ["a"]);
    let stream = over_tls(&server, &[b"http/1.1"]).await.unwrap();
    let mut client = Client::http1(stream).await.unwrap();
    assert_eq!(names(&client.get(CONFIG_MAPS).await.1), ["a"]);
    assert!(server.url(0).starts_with("https://127.0.0.1:"));
}

#[tokio::test]
async fn server_can_disable_http2() {
    let server = ApiServer::builder().tls(true).http2(false).start().await.unwrap();
    let stream = over_tls(&server, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn concurrent_servers_are_independent() {
    let started = Instant::now();
    let mut servers = Vec::new();
    for index in 0..20 {
        let server = ApiServer::builder().replicas(2).start().await.unwrap();
        server.create(&config_map(&format!("c{index}"))).unwrap();
        servers.push(server);
    }
    for (index, server) in servers.iter().enumerate() {
        let mut client = Client::over_tcp(server, 1).await.unwrap();
        assert_eq!(names(&client.get(CONFIG_MAPS).await.1), [format!("c{index}")]);
    }
    assert!(started.elapsed() < Duration::from_secs(5), "the test took {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_receive_all_changes() {
    let server = ApiServer::start().await.unwrap();
    let mut watches = Vec::new();
    let stream = TcpStream::connect(server.address(0).unwrap()).await.unwrap();
    let mut client = Client::http2(stream).await.unwrap();
    let start = server.revision();
    for _ in 0..20 {
        watches.push(client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await);
    }
    for index in 0..500 {
        server.create(&config_map(&format!("c{index:03}"))).unwrap();
    }
    for watch in &mut watches {
        for index in 0..500 {
            assert_eq!(watch.summary().await.1, format!("c{index:03}"));
        }
    }
}

/// Opens a WebSocket for a watch. The `headers` of most callers contain an `Origin`, as sent by browsers and fabric8.
async fn watch_socket(
    server: &ApiServer,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<WebSocketStream<MemoryStream>, tungstenite::Error> {
    let mut request = format!("ws://localhost{path}").into_client_request()?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().expect("a valid header"));
    }
    let stream = server.connect(0).await.expect("the server accepts");
    Ok(tokio_tungstenite::client_async(request, stream).await?.0)
}

async fn next_event(socket: &mut WebSocketStream<MemoryStream>) -> (String, String) {
    let frame = socket.next().await.expect("an event").expect("a frame");
    let event: Value = serde_json::from_str(frame.to_text().expect("text")).expect("one event in each frame");
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/type"), text("/object/metadata/name"))
}

#[tokio::test(start_paused = true)]
async fn websocket_watch_sends_frames_per_event() {
    let server = ApiServer::builder().in_memory().start().await.unwrap();
    for name in ["a", "b"] {
        server.create(&config_map(name)).unwrap();
    }
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=9");
    let mut socket = watch_socket(&server, &path, &[("origin", "http://localhost")]).await.expect("101");
    let (one, other) = (next_event(&mut socket).await, next_event(&mut socket).await);
    assert_eq!((one, other), (("ADDED".into(), "a".into()), ("ADDED".into(), "b".into())));
    server.delete_named("configmaps", "default", "a").unwrap();
    assert_eq!(next_event(&mut socket).await, ("DELETED".into(), "a".into()));
    let end = socket.next().await;
    assert!(end.as_ref().is_none_or(|end| end.as_ref().is_ok_and(tungstenite::Message::is_close)), "{end:?}");
    let record = server.requests().pop().expect("a request");
    assert_eq!((record.code, record.bytes_sent > 100), (Some(101), true));
}

#[tokio::test(start_paused = true)]
async fn websocket_watch_accepts_subprotocol_and_token() {
    let server = ApiServer::builder().in_memory().token("secret").start().await.unwrap();
    server.create(&config_map("a")).unwrap();
    let code = |outcome: Result<WebSocketStream<MemoryStream>, tungstenite::Error>| match outcome {
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        other => panic!("the request was accepted: {other:?}"),
    };
    let path = format!("{CONFIG_MAPS}?watch=true");
    let origin = ("origin", "http://localhost");
    assert_eq!(code(watch_socket(&server, &path, &[origin]).await), 401);
    // The protocols contain the token in base64. The two texts below are "wrong" and "secret".
    let protocols_with_token =
        |token: &str| format!("base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io");
    let wrong = protocols_with_token("d3Jvbmc");
    assert_eq!(code(watch_socket(&server, &path, &[origin, ("sec-websocket-protocol", &wrong)]).await), 401);
    let right = protocols_with_token("c2VjcmV0");
    let mut socket = watch_socket(&server, &path, &[origin, ("sec-websocket-protocol", &right)]).await.expect("101");
    assert_eq!(next_event(&mut socket).await, ("ADDED".into(), "a".into()));
    assert_eq!(code(watch_socket(&server, &path, &[("authorization", "Bearer secret")]).await), 403, "no origin");
    let refused = format!("{path}&fieldSelector=odd%3Da");
    let headers = [origin, ("authorization", "Bearer secret")];
    assert_eq!(code(watch_socket(&server, &refused, &headers).await), 400);
}

#[tokio::test]
async fn anonymous_server_rejects_wrong_credentials() {
    let server = ApiServer::builder().in_memory().token("secret").anonymous(true).start().await.unwrap();
    let stream = server.connect(0).await.unwrap();
    let mut client = Client::http1(stream).await.unwrap();
    for (headers, expected) in [
        (&[][..], 200),
        (&[("authorization", "Bearer secret")], 200),
        (&[("authorization", "Bearer wrong")], 401),
        (&[("origin", "http://localhost")], 200),
        (&[("origin", "http://elsewhere.example")], 403),
        (&[("origin", "null")], 403),
    ] {
        let (code, body) = client.call_with(Method::GET, CONFIG_MAPS, headers, &Value::Null).await.unwrap();
        assert_eq!(code, expected, "{headers:?}: {body}");
    }
    let request =
        Request::builder().uri(CONFIG_MAPS).header("host", "rebound.example:80").body(Full::default()).unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), 403);
}

#[tokio::test]
async fn case_of_authentication_scheme_is_ignored() {
    let server = ApiServer::builder().in_memory().token("secret").user("ada", "lovelace").start().await.unwrap();
    let stream = server.connect(0).await.unwrap();
    let mut client = Client::http1(stream).await.unwrap();
    for (authorization, expected) in [
        ("Bearer secret", 200),
        ("bearer secret", 200),
        ("BEARER  secret ", 200),
        ("Basic YWRhOmxvdmVsYWNl", 200),
        ("basic YWRhOmxvdmVsYWNl", 200),
        ("bearer wrong", 401),
        ("bearersecret", 401),
        ("basic d3Jvbmc6d3Jvbmc=", 401),
        ("secret", 401),
    ] {
        let headers = [("authorization", authorization)];
        let (code, body) = client.call_with(Method::GET, CONFIG_MAPS, &headers, &Value::Null).await.unwrap();
        assert_eq!(code, expected, "{authorization}: {body}");
    }
}
