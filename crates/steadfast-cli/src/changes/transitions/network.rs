//! Services, endpoints, ingresses, network policies.

use serde_json::{Value, json};

use super::assert_rows;

fn slice(endpoints: &[(&str, bool)]) -> Value {
    let endpoint = |(address, ready): &(&str, bool)| json!({"addresses": [address], "conditions": {"ready": ready}});
    json!({"endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()})
}

#[test]
fn endpoint_transitions() {
    assert_rows(
        "discovery.k8s.io/EndpointSlice",
        &[
            (
                slice(&[("10.0.0.3", true), ("10.0.0.4", true)]),
                slice(&[("10.0.0.4", true), ("10.0.0.7", true)]),
                "endpoints +10.0.0.7 −10.0.0.3",
            ),
            (slice(&[("10.0.0.3", true)]), slice(&[("10.0.0.3", false)]), "not ready: 10.0.0.3"),
            (slice(&[("10.0.0.3", false)]), slice(&[("10.0.0.3", true)]), "ready: 10.0.0.3"),
            (
                slice(&[("10.0.0.3", true)]),
                json!({"endpoints": [{"addresses": ["10.0.0.3"], "conditions": {"ready": false, "terminating": true}}]}),
                "terminating: 10.0.0.3",
            ),
            (slice(&[("10.0.0.3", true)]), slice(&[]), "endpoints −10.0.0.3"),
        ],
    );
    let subsets = |ready: &[&str]| {
        let addresses: Vec<Value> = ready.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]})
    };
    assert_rows(
        "Endpoints",
        &[
            (subsets(&["10.0.0.3"]), subsets(&["10.0.0.3", "10.0.0.7"]), "endpoints +10.0.0.7"),
            (
                json!({"metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "1"}}}),
                json!({"metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2"}}}),
                "",
            ),
        ],
    );
}

#[test]
fn service_transitions() {
    let port =
        |port: u32, target: u32| json!({"spec": {"ports": [{"port": port, "targetPort": target, "protocol": "TCP"}]}});
    assert_rows(
        "Service",
        &[
            (port(80, 8080), port(81, 8080), "port +81→8080 −80→8080"),
            (
                json!({"spec": {"type": "ClusterIP"}}),
                json!({"spec": {"type": "LoadBalancer"}}),
                "type ClusterIP→LoadBalancer",
            ),
            (
                json!({"spec": {"selector": {"app": "web"}}}),
                json!({"spec": {"selector": {"app": "web-2"}}}),
                "selector app=web→app=web-2",
            ),
            (
                json!({"status": {"loadBalancer": {}}}),
                json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}}),
                "load balancer +203.0.113.1",
            ),
        ],
    );
    assert_rows(
        "networking.k8s.io/Ingress",
        &[
            (
                json!({"spec": {"rules": [{"host": "a.example.org"}]}}),
                json!({"spec": {"rules": [{"host": "a.example.org"}, {"host": "b.example.org"}]}}),
                "host +b.example.org",
            ),
            (
                json!({"status": {"loadBalancer": {}}}),
                json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]}}}),
                "load balancer +lb.example.org",
            ),
        ],
    );
    assert_rows(
        "networking.k8s.io/NetworkPolicy",
        &[(
            json!({"spec": {"policyTypes": ["Ingress"]}}),
            json!({"spec": {"policyTypes": ["Ingress", "Egress"]}}),
            "spec.policyTypes [Ingress]→[Ingress Egress]",
        )],
    );
}
