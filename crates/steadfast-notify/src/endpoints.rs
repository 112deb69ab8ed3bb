//! Endpoints of Services as entries of mirrors, merged from `EndpointSlice`s.
//!
//! Several slices describe one Service: at least one for each address family, and during an update an endpoint may be
//! in two slices. Entries therefore result from all slices of a namespace together. An entry belongs to the endpoint
//! (the pod), not to a slice.
//!
//! An endpoint accepts new connections while ready. Without any ready endpoint of a Service, terminating endpoints that
//! still serve accept connections, like in kube-proxy.

mod slice;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};

use crate::config::endpoints::{EndpointPort, Family};
use crate::config::{Config, Rule};
use crate::shape::{FieldKind, KEY, READY, SERVER, Shape};
pub(crate) use slice::Slice;
use slice::{Condition, Endpoint, Port, SERVICE_LABEL};

/// Resource with the endpoints of Services.
const RESOURCE: &str = "endpointslices.discovery.k8s.io";

/// Endpoints that a rule mirrors.
#[derive(Clone, Debug)]
pub(crate) struct EndpointSource {
    /// Namespace and name of each Service.
    services: BTreeSet<(String, String)>,
    port: Option<EndpointPort>,
    family: Option<Family>,
    host: Option<String>,
    /// Entry shape of the rule's first mirror, for explanations.
    shape: Shape,
}

/// An endpoint of a Service, the owner of entries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndpointEntries {
    pub(crate) namespace: String,
    /// Name of the pod, or Service and address for an endpoint without pod.
    pub(crate) name: String,
    /// UID of the pod. Empty without a pod, or if the UID is unknown.
    pub(crate) uid: String,
    /// True if the endpoint is terminating.
    pub(crate) is_terminating: bool,
    /// Entries in the format of a `send` expression, or the reason why the entries are unknown.
    pub(crate) entries: Result<Vec<Value>, String>,
}

/// Identity of an endpoint within a cluster: namespace, name and UID.
type Identity = (String, String, String);

/// Service, address and port of an endpoint. DNS needs no port.
type Address = (String, IpAddr, Option<u16>);

/// State of an endpoint at one address.
#[derive(Default)]
struct Reached {
    /// True if any slice reports the endpoint as ready.
    is_ready: bool,
    is_serving: bool,
    /// True if any slice reports the endpoint as terminating. Termination is final, so slices without the condition
    /// are outdated.
    is_terminating: bool,
    pod: Option<String>,
    hostname: Option<String>,
    node: Option<String>,
    zone: Option<String>,
}

/// Merged data of one endpoint from all slices.
#[derive(Default)]
struct Merged {
    reached: BTreeMap<Address, Reached>,
    unknown: Option<String>,
}

impl EndpointSource {
    /// Reads the source of `rule` with this `shape` of the first mirror. Returns `None` if the rule reads resources.
    pub(crate) fn of(rule: &Rule, config: &Config, shape: Option<Shape>) -> Option<Self> {
        let services = rule.endpoints.as_ref()?.services().into_iter();
        let mut sinks = rule.to.iter().filter_map(|name| config.sinks.get(name));
        // The kernel forwards only between addresses of the same family.
        let address = sinks.find_map(|sink| {
            let nftables = sink.nftables.as_ref().map(|nftables| nftables.address);
            nftables.or(sink.ipvs.as_ref().map(|ipvs| ipvs.address))
        });
        let family = address.map(|address| if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 });
        Some(Self {
            services: services.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect(),
            port: rule.port.clone(),
            family: rule.family.or(family),
            host: rule.host.clone(),
            shape: shape.unwrap_or(SERVER),
        })
    }

    /// Returns `rule` with the resource, namespaces and labels of the slices.
    ///
    /// With Services in several namespaces the selection may include other Services, which [`resolve`](Self::resolve)
    /// skips.
    pub(crate) fn watched(&self, rule: &Rule) -> Rule {
        let mut namespaces: Vec<String> = self.services.iter().map(|(namespace, _)| namespace.clone()).collect();
        // `services` is sorted, so equal namespaces are adjacent.
        namespaces.dedup();
        let names: BTreeSet<&str> = self.services.iter().map(|(_, name)| name.as_str()).collect();
        let labels = match names.iter().collect::<Vec<_>>()[..] {
            [name] => format!("{SERVICE_LABEL}={name}"),
            _ => format!("{SERVICE_LABEL} in ({})", names.into_iter().collect::<Vec<_>>().join(",")),
        };
        Rule { resources: vec![RESOURCE.to_owned()], namespaces, labels: Some(labels), ..rule.clone() }
    }

    /// Returns the entries of a single slice, for explanations.
    ///
    /// # Errors
    ///
    /// Returns an error if the slice or an endpoint is malformed.
    pub(crate) fn explained(&self, cluster: &str, object: &Value) -> Result<Value, String> {
        let slice = Slice::read(object)?;
        let endpoints = self.resolve(cluster, std::iter::once(&slice), self.shape);
        let mut entries = Vec::new();
        for endpoint in endpoints {
            entries.extend(endpoint.entries?);
        }
        Ok(entries.into())
    }

    /// Returns the endpoints of all `slices` of a cluster, each with entries for a mirror of this `shape`.
    pub(crate) fn resolve<'a>(
        &self,
        cluster: &str,
        slices: impl Iterator<Item = &'a Slice>,
        shape: Shape,
    ) -> Vec<EndpointEntries> {
        let mut endpoints = BTreeMap::<Identity, Merged>::new();
        for slice in slices {
            // Slices without the label are managed by other tools and belong to no Service.
            let Some(service) = slice.service() else { continue };
            let namespace = slice.namespace();
            if self.services.contains(&(namespace.to_owned(), service.to_owned())) {
                self.merge(slice, service, &mut endpoints, shape);
            }
        }
        // Readiness is known per Service only after all slices are merged.
        let ready_services: BTreeSet<(String, String)> = endpoints
            .iter()
            .flat_map(|((namespace, ..), merged)| {
                let ready = merged.reached.iter().filter(|(_, reached)| reached.is_ready());
                ready.map(|((service, ..), _)| (namespace.clone(), service.clone()))
            })
            .collect();
        let resolved = endpoints.into_iter().map(|((namespace, name, uid), Merged { reached, unknown })| {
            // An endpoint counts as terminating only if all its addresses terminate.
            let is_terminating = !reached.is_empty() && reached.values().all(|reached| reached.is_terminating);
            let mut entries = BTreeMap::new();
            for ((service, address, port), reached) in reached {
                let is_ready = reached.is_ready()
                    // Kubernetes sends traffic to terminating endpoints if no endpoint is ready (KEP-1669).
                    || reached.is_serving && !ready_services.contains(&(namespace.clone(), service.clone()));
                let at = At { cluster, namespace: &namespace, service: &service, address, port };
                for (key, mut fields) in at.fields(&reached, self.host.as_deref(), shape) {
                    // The same key can come from several slices during a move of endpoints. One ready copy suffices.
                    let is_ready = is_ready || entries.get(&key).is_some_and(|other: &Value| other[READY.name] == true);
                    fields.insert(KEY.name.to_owned(), key.clone().into());
                    fields.insert(READY.name.to_owned(), is_ready.into());
                    entries.insert(key, Value::Object(fields));
                }
            }
            let entries = unknown.map_or_else(|| Ok(entries.into_values().collect()), Err);
            EndpointEntries { namespace, name, uid, is_terminating, entries }
        });
        resolved.collect()
    }

    /// Merges the endpoints of `slice`.
    fn merge(&self, slice: &Slice, service: &str, endpoints: &mut BTreeMap<Identity, Merged>, shape: Shape) {
        let namespace = slice.namespace();
        let ports = self.ports(slice.ports(), shape);
        if slice.has_names() {
            let reason = format!(
                "the EndpointSlice {} has names (FQDN) instead of addresses, which no mirror can use",
                slice.name()
            );
            let identity = (namespace.to_owned(), slice.name().to_owned(), String::new());
            endpoints.entry(identity).or_default().unknown = Some(reason);
            return;
        }
        for endpoint in slice.endpoints() {
            let pod = endpoint.pod();
            let identity = |address: IpAddr| {
                let (name, uid) = match pod {
                    Some((name, uid)) => (name.to_owned(), uid.to_owned()),
                    None => (format!("{service}_{address}"), String::new()),
                };
                (namespace.to_owned(), name, uid)
            };
            // Skipping the address would remove its entry. Doubt keeps the entry instead.
            if let Some(address) = endpoint.malformed_address() {
                let reason = format!("the EndpointSlice {} has {address:?} as an address", slice.name());
                let (name, uid) = pod.unwrap_or((slice.name(), ""));
                let identity = (namespace.to_owned(), name.to_owned(), uid.to_owned());
                endpoints.entry(identity).or_default().unknown = Some(reason);
            }
            for address in endpoint.addresses().filter(|address| self.has_family(*address)) {
                let merged = endpoints.entry(identity(address)).or_default();
                match &ports {
                    Err(reason) => merged.unknown = Some(format!("the EndpointSlice {}: {reason}", slice.name())),
                    Ok(ports) => {
                        for port in ports {
                            let at = (service.to_owned(), address, *port);
                            merged.reached.entry(at).or_default().add(endpoint);
                        }
                    }
                }
            }
        }
    }

    fn has_family(&self, address: IpAddr) -> bool {
        match self.family {
            None => true,
            Some(Family::Ipv4) => address.is_ipv4(),
            Some(Family::Ipv6) => address.is_ipv6(),
        }
    }

    /// Returns the port of a slice. A named port of a Service may have a different number in each slice.
    ///
    /// Address records have no port. For DNS, `port` only selects slices with this port.
    fn ports(&self, ports: &[Port], shape: Shape) -> Result<Vec<Option<u16>>, String> {
        let is_portless = is_dns(shape);
        let found: BTreeSet<u16> = match &self.port {
            None if is_portless => return Ok(vec![None]),
            None => ports.iter().filter_map(Port::number).collect(),
            Some(EndpointPort::Name(name)) => {
                ports.iter().filter(|port| port.name() == name).filter_map(Port::number).collect()
            }
            // A headless Service may have no ports. A slice port without a number matches every port number.
            Some(EndpointPort::Number(number)) if ports.iter().all(|port| port.port.is_none()) => [*number].into(),
            Some(EndpointPort::Number(number)) => {
                ports.iter().filter_map(Port::number).filter(|port| port == number).collect()
            }
        };
        let listed = || {
            let listed = ports.iter().map(|port| match (port.name(), port.number()) {
                (name, None) => format!("{name} without number"),
                ("", Some(number)) => number.to_string(),
                (name, Some(number)) => format!("{name} ({number})"),
            });
            listed.collect::<Vec<_>>().join(", ")
        };
        match (found.len(), &self.port) {
            (0, _) if ports.is_empty() && self.port.is_none() => {
                Err("the Service has no port; set `port` to the number".to_owned())
            }
            // A slice without ports has no usable endpoint.
            (0, Some(EndpointPort::Name(_))) if ports.is_empty() => Ok(Vec::new()),
            (0, _) => {
                let wanted = match &self.port {
                    Some(EndpointPort::Name(name)) => format!("{name:?}"),
                    Some(EndpointPort::Number(number)) => number.to_string(),
                    None => "a number".to_owned(),
                };
                let description = format!("it has the ports {}, and none is {wanted}", listed());
                Err(format!(
                    "{description}; `port` takes the name, or the number at the endpoints (the Service's targetPort)"
                ))
            }
            (1, _) if is_portless => Ok(vec![None]),
            (1, _) => Ok(found.into_iter().map(Some).collect()),
            (_, None) => Err(format!("the Service has the ports {}; choose one with `port`", listed())),
            (_, Some(_)) => Err(format!("several ports match: {}; choose one by number", listed())),
        }
    }
}

impl Reached {
    fn is_ready(&self) -> bool {
        self.is_ready && !self.is_terminating
    }

    fn add(&mut self, endpoint: &Endpoint) {
        let Condition { is_ready, is_serving, is_terminating } = endpoint.condition();
        // An endpoint may be in two slices while the controller moves it. The states are combined.
        self.is_ready |= is_ready;
        self.is_serving |= is_serving;
        self.is_terminating |= is_terminating;
        let pod = endpoint.pod().map(|(name, _)| name.to_owned());
        self.pod = self.pod.take().or(pod);
        self.hostname = self.hostname.take().or_else(|| endpoint.hostname.clone());
        self.node = self.node.take().or_else(|| endpoint.node_name.clone());
        self.zone = self.zone.take().or_else(|| endpoint.zone.clone());
    }
}

/// Location of an endpoint.
struct At<'a> {
    cluster: &'a str,
    namespace: &'a str,
    service: &'a str,
    address: IpAddr,
    port: Option<u16>,
}

impl At<'_> {
    /// Returns the fields of the entries, by key. Keys of different endpoints differ: names of clusters, namespaces and
    /// Services contain no dots, and no name contains an underscore.
    fn fields(&self, reached: &Reached, host: Option<&str>, shape: Shape) -> Vec<(String, Map<String, Value>)> {
        let Self { cluster, namespace, service, address, port } = self;
        let address_text = match address {
            IpAddr::V4(address) => address.to_string(),
            // Some targets do not accept colons in keys.
            IpAddr::V6(address) => format!("{:032x}", address.to_bits()),
        };
        // Names of Pods and Services contain no underscores, so keys of different objects never collide.
        let suffix = port.map_or_else(|| format!("_{address_text}"), |port| format!("_{address_text}_{port}"));
        let pod = reached.pod.as_deref();
        let place = port.map(|port| SocketAddr::new(*address, port).to_string());
        let entries = if is_dns(shape) {
            let kind = if address.is_ipv4() { "A" } else { "AAAA" };
            let record = |name: &str| json!({"name": name, "type": kind, "data": address.to_string()});
            let host = host.unwrap_or_default();
            let key = format!("{cluster}.{namespace}.{}{suffix}", pod.unwrap_or(service));
            let mut records = vec![(key.clone(), record(host))];
            if let Some(hostname) = &reached.hostname {
                records.push((format!("{key}_{hostname}"), record(&format!("{hostname}.{host}"))));
            }
            records
        } else if let Some(value) = shape.iter().find(|field| field.name == "value") {
            // Registry users search by key, so the key contains the Service.
            let pod_part = pod.map(|pod| format!(".{pod}")).unwrap_or_default();
            let key = format!("{cluster}.{namespace}.{service}{pod_part}{suffix}");
            let value = if value.kind == FieldKind::Text {
                json!({"value": place.unwrap_or_else(|| address.to_string())})
            } else {
                let item = json!({
                    "cluster": cluster, "namespace": namespace, "service": service, "pod": pod,
                    "address": address.to_string(), "port": port, "node": reached.node, "zone": reached.zone,
                });
                json!({"value": item})
            };
            vec![(key, value)]
        } else {
            let key = format!("{cluster}.{namespace}.{}{suffix}", pod.unwrap_or(service));
            vec![(key, json!({"address": address.to_string(), "port": port}))]
        };
        let fields = entries.into_iter().filter_map(|(key, value)| match value {
            Value::Object(fields) => Some((key, fields)),
            _ => None,
        });
        fields.collect()
    }
}

/// Returns true for the entry shape of a DNS zone.
fn is_dns(shape: Shape) -> bool {
    shape.iter().any(|field| field.name == "data")
}

#[cfg(test)]
mod tests;
