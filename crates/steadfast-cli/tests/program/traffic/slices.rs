//! Pods of a Service in the `EndpointSlices` of the control plane, and a rule for these slices only.

use std::time::Duration;

use serde_json::{Value, json};

use super::balancer::Balancer;
use super::fixture::{SHOP, Setup};
use super::{DOCUMENTED, start_fixture};

/// The recipe of the cookbook for load balancers.
const ENDPOINTS: Setup = Setup {
    rules: r#"
[sinks.web]
haproxy = { socket = "admin.sock", backend = "web", server_options = "check inter 500ms fall 2 observe layer4 error-limit 1 on-error mark-down" }

[[rules]]
name = "web"
endpoints = "shop/web"
port = "http"
to = ["web"]
"#,
    has_slices: true,
    ..DOCUMENTED
};

/// Endpoint in the format of the `EndpointSlice` controller.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) pod: String,
    pub(super) address: String,
    pub(super) is_ready: bool,
    pub(super) is_terminating: bool,
}

impl Endpoint {
    fn object(&self) -> Value {
        json!({
            "addresses": [self.address],
            "conditions": {
                "ready": self.is_ready && !self.is_terminating, "serving": self.is_ready, "terminating": self.is_terminating,
            },
            "targetRef": {"kind": "Pod", "namespace": SHOP, "name": self.pod},
        })
    }
}

/// Returns the two slices of the Service `web`. An empty slice contains `null`, the JSON of a nil slice in Go.
pub(super) fn slices(endpoints: &[Endpoint], port: u16) -> [Value; 2] {
    [0, 1].map(|half| {
        let in_half = endpoints.iter().filter(|endpoint| endpoint.pod.len() % 2 == half);
        let endpoints_json: Vec<Value> = in_half.map(Endpoint::object).collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": SHOP, "name": format!("web-{half}"), "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
            "endpoints": if endpoints_json.is_empty() { Value::Null } else { endpoints_json.into() },
        })
    })
}

#[test]
fn endpoint_slices_rolling_update_fails_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "slices", ..ENDPOINTS }, 6) else { return };
    // From the tenth pod on, names have one more character, so all endpoints move from one slice to the other.
    web.replace_pods(&mut fixture);
    fixture.disturb("HAProxy reloads", |balancer: &mut Balancer| balancer.reload());
    fixture.sleep(Duration::from_millis(2500));
    web.scale_down(&mut fixture, 2);
    fixture.sleep(Duration::from_secs(2));
    for _ in 0..3 {
        web.add_pod(&mut fixture);
    }
    web.replace_crashed(&mut fixture, Duration::from_millis(300));
    fixture.finish();
}
