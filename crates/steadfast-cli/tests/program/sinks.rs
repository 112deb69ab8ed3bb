//! Unreachable sinks and rejected credentials: each error has a position and a remedy.

use std::net::TcpListener;
use std::path::PathBuf;

use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::dns_server::{DnsKind, DnsServer, KEY};
use crate::run::{stderr_text, steadfast, temp_path};

const RULE: &str = "[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"it\"]\n";

/// A folder with a cluster's kubeconfig, in which `check --online` runs.
struct Fixture {
    folder: PathBuf,
    _runtime: Runtime,
    _server: ApiServer,
}

impl Fixture {
    fn start(name: &str) -> Self {
        let folder = PathBuf::from(temp_path(&format!("sinks-{name}")));
        // Remove files of an earlier test run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(ApiServer::start()).expect("the server starts");
        std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("the folder is writable");
        Self { folder, _runtime: runtime, _server: server }
    }

    fn check(&self, sink: &str, send: &str) -> (Option<i32>, String) {
        let path = self.folder.join("notify.toml");
        let text = format!("[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.it]\n{sink}\n{RULE}{send}");
        std::fs::write(&path, text).expect("the folder is writable");
        let output = steadfast(&["notify", "check", "--online", "-c", path.to_str().expect("a UTF-8 path")]);
        (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr_text(&output)))
    }
}

/// Returns a port without a listener.
fn unused_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

const SERVER: &str = "send = \"{'key': object.metadata.name, 'address': object.status.podIP, 'port': 80}\"\n";
const VALUE: &str = "send = \"{'key': object.metadata.name, 'value': object.status.podIP}\"\n";
const NAME: &str = "send = \"{'key': object.metadata.name, 'name': object.metadata.name + '.example.org', 'type': 'A', 'data': object.status.podIP}\"\n";

#[test]
fn unreachable_sink_is_reported_with_position() {
    let fixture = Fixture::start("nobody");
    std::fs::write(fixture.folder.join("key"), KEY).expect("the folder is writable");
    let port = unused_port();
    let sinks = [
        (
            format!("webhook = {{url = \"http://127.0.0.1:{port}/events?token=hunter2\"}}"),
            "",
            "cannot connect to http://127.0.0.1:",
        ),
        (
            format!("webhook = {{url = \"https://example.test/\", proxy = \"http://127.0.0.1:{port}\"}}"),
            "",
            "cannot connect to http://127.0.0.1:",
        ),
        ("haproxy = {socket = \"none.sock\", backend = \"web\"}".to_owned(), SERVER, "none.sock"),
        (
            format!("etcd = {{endpoints = [\"http://127.0.0.1:{port}\"], prefix = \"/x/\", mark = \"m\"}}"),
            VALUE,
            &format!("127.0.0.1:{port}"),
        ),
        (
            format!(
                "dns = {{server = \"127.0.0.1:{port}\", zone = \"example.org\", secret = {{file = \"key\"}}, mark = \"m\"}}"
            ),
            NAME,
            "does not respond over TCP",
        ),
    ];
    for (sink, send, expected_error) in sinks {
        let (code, error_output) = fixture.check(&sink, send);
        assert_eq!(code, Some(3), "{sink}: {error_output}");
        // Column of the sink's settings.
        let column = sink.find('=').unwrap_or_default() + 3;
        assert!(error_output.contains(&format!("notify.toml:4:{column}: ")), "{sink}: {error_output}");
        assert!(
            error_output.contains(expected_error) && error_output.contains("correct the cause or the configuration"),
            "{sink}: {error_output}"
        );
        assert!(!error_output.contains("hunter2"), "{error_output}");
    }
}

#[test]
fn unknown_zone_and_key_are_reported() {
    let fixture = Fixture::start("zone");
    let Some(dns_server) = DnsServer::start(&fixture.folder, DnsKind::Knot) else { return };
    let key = |text: &str| std::fs::write(fixture.folder.join("key"), text).expect("the folder is writable");
    let sink = |zone: &str| {
        format!(
            "dns = {{server = \"127.0.0.1:{}\", zone = \"{zone}\", secret = {{file = \"key\"}}, mark = \"m\"}}",
            dns_server.port
        )
    };
    key(KEY);
    let (code, error_output) = fixture.check(&sink("example.org"), NAME);
    assert_eq!(code, Some(0), "{error_output}");
    assert!(
        error_output.contains("its sinks can be reached, and its clusters serve the watched resources"),
        "{error_output}"
    );

    let (code, error_output) = fixture.check(&sink("example.net"), NAME);
    assert_eq!(code, Some(3), "{error_output}");
    assert!(
        error_output.contains("notify.toml:4:7: ")
            && error_output.contains("example.net.: NOTAUTH; the server is not authoritative for the zone"),
        "{error_output}"
    );

    let name = |text: &str| KEY.replacen("mirror", text, 1);
    for (invalid_key, expected_error) in [(name("nobody"), "BADKEY"), (KEY.replace("bWly", "eHl6"), "BADSIG")] {
        key(&invalid_key);
        let (code, error_output) = fixture.check(&sink("example.org"), NAME);
        assert_eq!(code, Some(3), "{error_output}");
        assert!(error_output.contains("notify.toml:4:7: ") && error_output.contains(expected_error), "{error_output}");
        let secret = invalid_key.rsplit(':').next().expect("the secret of a key");
        assert!(!error_output.contains(secret), "{error_output}");
    }
}
