//! Addresses of Services: cluster IPs and node ports, assigned when a real server assigns them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::super::State;
use crate::field_violation::FieldViolation;
use crate::resources::GroupResource;
use crate::status::Status;

/// First and last address of Services. The range is that of a kubeadm cluster, without its network and broadcast
/// addresses.
const ADDRESS_RANGE: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 96, 0, 1), Ipv4Addr::new(10, 111, 255, 254));
/// Range of node ports on a real server.
const NODE_PORT_RANGE: std::ops::RangeInclusive<i64> = 30_000..=32_767;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the ports of a Service.
fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten()
}

fn node_port(port: &Value) -> Option<i64> {
    port.get("nodePort").and_then(Value::as_i64).filter(|port| *port > 0)
}

/// Returns whether the resource is that of Services.
fn is_service(resource: &GroupResource) -> bool {
    resource.group().is_empty() && resource.resource() == "services"
}

/// Returns the node ports of a Service that are out of range. A real server finds them when it allocates the ports.
pub(super) fn node_port_violations(resource: &GroupResource, service: &Value) -> Vec<FieldViolation> {
    if !is_service(resource) || !matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer") {
        return Vec::new();
    }
    let requested = ports(service).map(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or_default());
    let violations = requested.enumerate().filter(|(_, port)| *port != 0 && !NODE_PORT_RANGE.contains(port));
    violations
        .map(|(index, port)| {
            let detail = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORT_RANGE.start(),
                NODE_PORT_RANGE.end()
            );
            FieldViolation::invalid(format!("spec.ports[{index}].nodePort"), &port.into(), &detail)
        })
        .collect()
}

impl State {
    /// Assigns the missing addresses of a Service. An update keeps the previous addresses.
    pub(super) fn assign_addresses(
        &self,
        resource: &GroupResource,
        service: &mut Value,
        before: Option<&Value>,
    ) -> Result<(), Status> {
        let kind = text(service, "/spec/type").to_owned();
        if !is_service(resource) || kind == "ExternalName" || !service.get("spec").is_some_and(Value::is_object) {
            return Ok(());
        }
        // `None` is the valid address of a headless service, and does not count as empty.
        if text(service, "/spec/clusterIP").is_empty() {
            // An update without an address keeps the assigned address.
            let previous = before.map(|before| text(before, "/spec/clusterIP")).filter(|previous| !previous.is_empty());
            let address = previous.map_or_else(|| self.free_address(resource), |previous| Ok(previous.to_owned()))?;
            service["spec"]["clusterIP"] = address.into();
        }
        let address = service["spec"]["clusterIP"].clone();
        if address != "None" && service["spec"].get("clusterIPs").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            service["spec"]["clusterIPs"] = json!([address]);
        }
        let declines_node_ports = service.pointer("/spec/allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
        if kind == "NodePort" || kind == "LoadBalancer" && !declines_node_ports {
            self.assign_node_ports(resource, service, before)?;
        }
        Ok(())
    }

    fn services<'a>(&'a self, resource: &GroupResource) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.live(resource, None).filter_map(|(_, change)| change.object.as_deref()).collect::<Vec<_>>().into_iter()
    }

    fn free_address(&self, resource: &GroupResource) -> Result<String, Status> {
        let used: BTreeSet<Ipv4Addr> =
            self.services(resource).filter_map(|service| text(service, "/spec/clusterIP").parse().ok()).collect();
        let (first, last) = (u32::from(ADDRESS_RANGE.0), u32::from(ADDRESS_RANGE.1));
        // The lowest free address is assigned, so that runs are reproducible. A real server chooses at random.
        let free = (first..=last).map(Ipv4Addr::from).find(|address| !used.contains(address));
        let range_is_full = || Status::new(500, "InternalError", "failed to allocate a serviceIP: range is full");
        free.map(|address| address.to_string()).ok_or_else(range_is_full)
    }

    fn assign_node_ports(
        &self,
        resource: &GroupResource,
        service: &mut Value,
        before: Option<&Value>,
    ) -> Result<(), Status> {
        // Requested node ports are reserved first, so that no assigned port collides within the service.
        let mut taken: BTreeSet<i64> = ports(service).filter_map(node_port).collect();
        let mut used: BTreeSet<i64> =
            self.services(resource).flat_map(ports).filter_map(node_port).chain(taken.iter().copied()).collect();
        let name = |port: &Value| port.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten();
        for port in list.filter(|port| port.is_object() && node_port(port).is_none()) {
            // Like `patchAllocatedValues` of kube-apiserver: a port keeps the node port of the old port with its name,
            // unless another port of the update has that node port.
            let is_same = |old: &&Value| name(old) == name(port);
            let previous = before.and_then(|before| ports(before).find(is_same)).and_then(node_port);
            let previous = previous.filter(|previous| !taken.contains(previous));
            let range_is_full = || Status::new(500, "InternalError", "failed to allocate a nodePort: range is full");
            let free = previous
                .or_else(|| NODE_PORT_RANGE.into_iter().find(|port| !used.contains(port)))
                .ok_or_else(range_is_full)?;
            used.insert(free);
            taken.insert(free);
            port["nodePort"] = free.into();
        }
        Ok(())
    }
}
