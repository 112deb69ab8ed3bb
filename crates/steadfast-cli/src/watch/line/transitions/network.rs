//! Services, endpoints and ingresses.

use serde_json::{Value, json};

use super::{Row, Table};

pub(super) fn tables() -> Vec<Table> {
    vec![services(), slices(), ingresses()]
}

fn services() -> Table {
    let port = |port: Value| json!({"spec": {"type": "ClusterIP", "ports": [port]}});
    let web = || port(json!({"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}));
    let rows: Vec<Row> = vec![
        (
            "kubectl",
            web(),
            port(json!({"name": "http", "port": 81, "protocol": "TCP", "targetPort": 8080})),
            "~ services shop/front port +81→8080 −80→8080 by kubectl",
        ),
        (
            "kubectl",
            web(),
            json!({"spec": {"type": "NodePort", "externalTrafficPolicy": "Cluster",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080}]}}),
            "~ services shop/front type ClusterIP→NodePort, port +80→8080 (node port 30080) −80→8080, \
             +spec.externalTrafficPolicy=Cluster by kubectl",
        ),
        (
            "kubectl",
            json!({"spec": {"selector": {"app": "web"}}}),
            json!({"spec": {"selector": {"app": "web", "track": "stable"}}}),
            "~ services shop/front selector app=web→app=web,track=stable by kubectl",
        ),
        (
            "cloud-controller-manager",
            json!({"status": {"loadBalancer": {}}}),
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "VIP"}]}}}),
            "~ services shop/front load balancer +203.0.113.1 by cloud-controller-manager",
        ),
        (
            "cloud-controller-manager",
            web(),
            json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}}),
            "~ services shop/front finalizer +service.kubernetes.io/load-balancer-cleanup by cloud-controller-manager",
        ),
    ];
    Table::new("Service", "services shop/front", rows)
}

/// Returns a slice of endpoints with these addresses, each with its readiness and whether its pod terminates.
fn slice(endpoints: &[(&str, bool, bool)], time: u32) -> Value {
    let endpoint = |(address, ready, terminating): &(&str, bool, bool)| {
        json!({
            "addresses": [address], "nodeName": "node-3", "targetRef": {"kind": "Pod", "name": format!("web-{address}")},
            "conditions": {"ready": ready, "serving": ready, "terminating": terminating},
        })
    };
    json!({
        "metadata": {"annotations": {
            "endpoints.kubernetes.io/last-change-trigger-time": format!("2026-01-01T00:00:{time:02}Z")}},
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn slices() -> Table {
    let one = || slice(&[("10.0.0.3", true, false)], 1);
    let controller = "kube-controller-manager";
    let many: Vec<String> = (1..=7).map(|number| format!("10.0.1.{number}")).collect();
    let all = |ready: bool| {
        let endpoints: Vec<(&str, bool, bool)> = many.iter().map(|address| (address.as_str(), ready, false)).collect();
        slice(&endpoints, 1)
    };
    let rows: Vec<Row> = vec![
        (
            controller,
            slice(&[("10.0.0.3", true, false), ("10.0.0.4", true, false)], 1),
            slice(&[("10.0.0.4", true, false), ("10.0.0.7", true, false)], 2),
            "~ endpointslices.discovery.k8s.io shop/front-j2k endpoints +10.0.0.7 −10.0.0.3 by kube-controller-manager",
        ),
        (
            controller,
            one(),
            slice(&[("10.0.0.3", true, false), ("10.0.0.7", false, false)], 2),
            "~ endpointslices.discovery.k8s.io shop/front-j2k endpoints +10.0.0.7, not ready: 10.0.0.7 \
             by kube-controller-manager",
        ),
        (
            controller,
            slice(&[("10.0.0.3", false, false)], 1),
            slice(&[("10.0.0.3", true, false)], 2),
            "~ endpointslices.discovery.k8s.io shop/front-j2k ready: 10.0.0.3 by kube-controller-manager",
        ),
        (
            controller,
            one(),
            slice(&[("10.0.0.3", false, false)], 2),
            "~ endpointslices.discovery.k8s.io shop/front-j2k not ready: 10.0.0.3 by kube-controller-manager",
        ),
        (
            controller,
            one(),
            slice(&[("10.0.0.3", false, true)], 2),
            "~ endpointslices.discovery.k8s.io shop/front-j2k terminating: 10.0.0.3 by kube-controller-manager",
        ),
        (
            controller,
            all(true),
            all(false),
            "~ endpointslices.discovery.k8s.io shop/front-j2k not ready: 10.0.1.1 10.0.1.2 10.0.1.3 10.0.1.4 and 3 more \
             by kube-controller-manager",
        ),
        (controller, one(), slice(&[("10.0.0.3", true, false)], 9), ""),
    ];
    Table::new("discovery.k8s.io/EndpointSlice", "endpointslices.discovery.k8s.io shop/front-j2k", rows)
}

fn ingresses() -> Table {
    let rule = |host: &str, service: &str| {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}})
    };
    let old = || json!({"spec": {"ingressClassName": "nginx", "rules": [rule("a.example.org", "web")]}});
    let rows: Vec<Row> = vec![
        (
            "kubectl",
            old(),
            json!({"spec": {"rules": [rule("a.example.org", "web"), rule("b.example.org", "web")]}}),
            "~ ingresses.networking.k8s.io shop/front host +b.example.org by kubectl",
        ),
        (
            "kubectl",
            old(),
            json!({"spec": {"rules": [rule("a.example.org", "web-2")]}}),
            "~ ingresses.networking.k8s.io shop/front \
             spec.rules[a.example.org].http.paths[0].backend.service.name web→web-2 by kubectl",
        ),
        (
            "nginx",
            old(),
            json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]}}}),
            "~ ingresses.networking.k8s.io shop/front load balancer +lb.example.org by nginx",
        ),
    ];
    Table::new("networking.k8s.io/Ingress", "ingresses.networking.k8s.io shop/front", rows)
}
