//! Metrics and readiness of `steadfast notify --metrics`, and `steadfast notify status`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{Exposition, config_map};
use tokio::runtime::Runtime;

use crate::haproxy::eventually;
use crate::run::{KillOnDrop, signal, start, stderr_text, steadfast, temp_path};

const CONFIGURATION: &str = "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.log.stdout]\n[sinks.broken]\n\
    exec = {command = [\"false\"]}\nretry = {first = \"100ms\", longest = \"200ms\"}\n\
    [[rules]]\nname = \"maps\"\ninitial = true\nresources = [\"cm\"]\nnamespaces = [\"default\"]\nto = [\"log\", \"broken\"]\n\
    [[rules]]\nname = \"fails\"\ninitial = true\nresources = [\"cm\"]\nnamespaces = [\"default\"]\nwhen = \"object.data.none == 'x'\"\nto = [\"log\"]\n";

pub(crate) fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the endpoint listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

#[test]
fn metrics_readiness_and_status_agree() {
    let folder = PathBuf::from(temp_path("notify-standing"));
    // Remove files of an earlier test run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::start()).expect("the server starts");
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("the folder is writable");
    write("kubeconfig", &server.kubeconfig());
    write("notify.toml", CONFIGURATION);
    for name in ["a", "b"] {
        server.create(&config_map(name, "1")).expect("the config map is created");
    }
    let path = folder.join("notify.toml").display().to_string();
    let status = |extra_arguments: &[&str]| {
        let output = steadfast(&[&["notify", "status", "-c", &path], extra_arguments].concat());
        assert!(output.status.success(), "{}", stderr_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(status(&[]).starts_with("no process runs this configuration\n"), "{}", status(&[]));

    let mut program = KillOnDrop(start(&["notify", "--metrics", "127.0.0.1:0", "-c", &path]));
    let (mut stderr, output) = (program.0.stderr.take().expect("a piped stderr"), Arc::new(Mutex::new(Vec::new())));
    let output_sink = output.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut buffer) {
            output_sink.lock().extend_from_slice(&buffer[..read]);
        }
    });
    let mut stdout = program.0.stdout.take().expect("a piped stdout");
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let mut address = String::new();
    eventually("the address", || {
        let error_output = String::from_utf8_lossy(&output.lock()).into_owned();
        let address_text = error_output.split("metrics at http://").nth(1).and_then(|rest| rest.split_once("/metrics"));
        address = address_text.map(|(address, _)| address.to_owned()).unwrap_or_default();
        !address.is_empty()
    });
    eventually("all caches", || get(&address, "/readyz").0.starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/livez").0.starts_with("HTTP/1.1 200"));
    let scrape = || Exposition::parse(&get(&address, "/metrics").1).expect("valid OpenMetrics");
    eventually("two deliveries", || scrape().sum("steadfast_notify_delivered_total", &[("sink", "log")]) == (2.0, 1));
    assert_eq!(scrape().sum("steadfast_notify_waiting", &[("sink", "broken")]), (2.0, 1));
    assert!(scrape().sum("steadfast_notify_oldest_waiting_seconds", &[("sink", "broken")]).0 > 0.0);
    assert_eq!(scrape().sum("steadfast_notify_sink_failing", &[("sink", "broken")]), (1.0, 1));
    assert_eq!(scrape().sum("steadfast_notify_sink_failing", &[("sink", "log")]), (0.0, 1));
    assert!(scrape().sum("steadfast_notify_failed_attempts_total", &[("sink", "broken")]).0 > 0.0);
    assert_eq!(scrape().sum("steadfast_notify_failed_total", &[("rule", "fails")]), (2.0, 1));
    assert!(scrape().sum("steadfast_informer_objects", &[]).0 >= 2.0, "the metrics of the library are present");
    let page = get(&address, "/metrics").1;
    let page_text = include_str!("../../../../docs/operations.md");
    for line in page.lines().filter(|line| line.starts_with("# TYPE steadfast_notify_")) {
        let fields: Vec<&str> = line.split(' ').collect();
        let name = if fields[3] == "counter" { format!("{}_total", fields[2]) } else { fields[2].to_owned() };
        assert!(page_text.contains(&format!("| `{name}` |")), "docs/operations.md does not have {name}");
    }

    let text = status(&[]);
    assert!(text.contains("rule maps: configmaps of here, namespace default: fresh at "), "{text}");
    assert!(text.contains("sink broken: 0 delivered, 2 waiting, the oldest for "), "{text}");
    assert!(text.contains("\n  failing: "), "{text}");
    assert!(text.contains("rule fails: could not be evaluated 2 times"), "{text}");
    let json: Value = serde_json::from_str(&status(&["-o", "json"])).expect("valid JSON");
    assert_eq!(json["now"]["sinks"][1]["delivered"], 2, "{json}");

    server.faults().cut();
    eventually("the doubt", || get(&address, "/readyz").0.starts_with("HTTP/1.1 503"));
    let reason = get(&address, "/readyz").1;
    assert!(reason.starts_with("rule maps: configmaps of here, namespace default: "), "{reason}");
    assert!(get(&address, "/livez").0.starts_with("HTTP/1.1 200"), "alive, though not ready");
    signal(&program.0, "KILL");
    program.0.wait().expect("an exit status");
    assert!(
        status(&[]).starts_with("no process runs this configuration\n"),
        "the address of an exited process is not used"
    );
}
