//! Sockets, TLS, and many servers at once.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use steadfast_apiserver::ApiServer;
use support::{CONFIG_MAPS, Client, config_map, names};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

async fn over_tls(server: &ApiServer, offered: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = server.ca_pem().expect("it has an authority");
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(server.address(0).expect("it has sockets")).await?;
    let name = ServerName::try_from("127.0.0.1").expect("it is an address");
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
async fn a_server_may_offer_no_http2() {
    let server = ApiServer::builder().tls(true).http2(false).start().await.unwrap();
    let stream = over_tls(&server, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn many_servers_start_at_once_and_are_apart() {
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
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_keep_up_with_many_changes() {
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
            assert_eq!(watch.told().await.1, format!("c{index:03}"));
        }
    }
}
