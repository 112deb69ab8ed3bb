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

use crate::config::endpoints::{AddressFamily, EndpointPort};
use crate::config::{Config, RuleConfig};
use crate::entry_fields::{EntryFields, FieldKind, KEY, READY, SERVER};
pub(crate) use slice::EndpointSlice;
use slice::{Endpoint, EndpointCondition, Port, SERVICE_LABEL};

/// Resource with the endpoints of Services.
const RESOURCE: &str = "endpointslices.discovery.k8s.io";

/// Endpoints that a rule mirrors.
#[derive(Clone, Debug)]
pub(crate) struct EndpointSource {
    /// Namespace and name of each Service.
    services: BTreeSet<(String, String)>,
    port: Option<EndpointPort>,
    family: Option<AddressFamily>,
    host: Option<String>,
    /// Entry fields of the rule's first mirror, for explanations.
    entry_fields: EntryFields,
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
type EndpointIdentity = (String, String, String);

/// Service, address and port of an endpoint. DNS needs no port.
type ServiceAddress = (String, IpAddr, Option<u16>);

/// State of an endpoint at one address.
#[derive(Default)]
struct EndpointState {
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
struct MergedEndpoint {
    states: BTreeMap<ServiceAddress, EndpointState>,
    unknown_reason: Option<String>,
}

impl EndpointSource {
    /// Reads the source of `rule`. `entry_fields` are the fields of the first mirror's entries. Returns `None` if the
    /// rule reads resources.
    pub(crate) fn from_rule(rule: &RuleConfig, config: &Config, entry_fields: Option<EntryFields>) -> Option<Self> {
        let services = rule.endpoints.as_ref()?.services().into_iter();
        let mut sinks = rule.to.iter().filter_map(|name| config.sinks.get(name));
        // The kernel forwards only between addresses of the same family.
        let address = sinks.find_map(|sink| {
            let nftables = sink.nftables.as_ref().map(|nftables| nftables.address);
            nftables.or(sink.ipvs.as_ref().map(|ipvs| ipvs.address))
        });
        let family = address.map(|address| if address.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 });
        Some(Self {
            services: services.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect(),
            port: rule.port.clone(),
            family: rule.family.or(family),
            host: rule.host.clone(),
            entry_fields: entry_fields.unwrap_or(SERVER),
        })
    }

    /// Returns `rule` with the resource, namespaces and labels of the slices.
    ///
    /// With Services in several namespaces the selection may include other Services, which [`resolve`](Self::resolve)
    /// skips.
    pub(crate) fn watch_rule(&self, rule: &RuleConfig) -> RuleConfig {
        let mut namespaces: Vec<String> = self.services.iter().map(|(namespace, _)| namespace.clone()).collect();
        // `services` is sorted, so equal namespaces are adjacent.
        namespaces.dedup();
        let names: BTreeSet<&str> = self.services.iter().map(|(_, name)| name.as_str()).collect();
        let labels = match names.iter().collect::<Vec<_>>()[..] {
            [name] => format!("{SERVICE_LABEL}={name}"),
            _ => format!("{SERVICE_LABEL} in ({})", names.into_iter().collect::<Vec<_>>().join(",")),
        };
        RuleConfig { resources: vec![RESOURCE.to_owned()], namespaces, labels: Some(labels), ..rule.clone() }
    }

    /// Returns the entries of a single slice, for explanations.
    ///
    /// # Errors
    ///
    /// Returns an error if the slice or an endpoint is malformed.
    pub(crate) fn explain_entries(&self, cluster: &str, object: &Value) -> Result<Value, String> {
        let slice = EndpointSlice::read(object)?;
        let endpoints = self.resolve(cluster, std::iter::once(&slice), self.entry_fields);
        let mut entries = Vec::new();
        for endpoint in endpoints {
            entries.extend(endpoint.entries?);
        }
        Ok(entries.into())
    }

    /// Returns the endpoints of all `slices` of a cluster, each with entries of `entry_fields`.
    pub(crate) fn resolve<'a>(
        &self,
        cluster: &str,
        slices: impl Iterator<Item = &'a EndpointSlice>,
        entry_fields: EntryFields,
    ) -> Vec<EndpointEntries> {
        let mut endpoints = BTreeMap::<EndpointIdentity, MergedEndpoint>::new();
        for slice in slices {
            // Slices without the label are managed by other tools and belong to no Service.
            let Some(service) = slice.service() else { continue };
            let namespace = slice.namespace();
            if self.services.contains(&(namespace.to_owned(), service.to_owned())) {
                self.merge(slice, service, &mut endpoints, entry_fields);
            }
        }
        // Readiness is known per Service only after all slices are merged.
        let ready_services: BTreeSet<(String, String)> = endpoints
            .iter()
            .flat_map(|((namespace, ..), merged)| {
                let ready = merged.states.iter().filter(|(_, state)| state.is_ready());
                ready.map(|((service, ..), _)| (namespace.clone(), service.clone()))
            })
            .collect();
        let resolved =
            endpoints.into_iter().map(|((namespace, name, uid), MergedEndpoint { states, unknown_reason })| {
                // An endpoint counts as terminating only if all its addresses terminate.
                let is_terminating = !states.is_empty() && states.values().all(|state| state.is_terminating);
                let mut entries = BTreeMap::new();
                for ((service, address, port), state) in states {
                    let is_ready = state.is_ready()
                    // Kubernetes sends traffic to terminating endpoints if no endpoint is ready (KEP-1669).
                    || state.is_serving && !ready_services.contains(&(namespace.clone(), service.clone()));
                    let location =
                        EndpointLocation { cluster, namespace: &namespace, service: &service, address, port };
                    for (key, mut fields) in location.fields(&state, self.host.as_deref(), entry_fields) {
                        // The same key can come from several slices during a move of endpoints. One ready copy
                        // suffices.
                        let is_ready = is_ready
                            || entries
                                .get(&key)
                                .is_some_and(|equal_key_entry: &Value| equal_key_entry[READY.name] == true);
                        fields.insert(KEY.name.to_owned(), key.clone().into());
                        fields.insert(READY.name.to_owned(), is_ready.into());
                        entries.insert(key, Value::Object(fields));
                    }
                }
                let entries = unknown_reason.map_or_else(|| Ok(entries.into_values().collect()), Err);
                EndpointEntries { namespace, name, uid, is_terminating, entries }
            });
        resolved.collect()
    }

    /// Merges the endpoints of `slice`.
    fn merge(
        &self,
        slice: &EndpointSlice,
        service: &str,
        endpoints: &mut BTreeMap<EndpointIdentity, MergedEndpoint>,
        entry_fields: EntryFields,
    ) {
        let namespace = slice.namespace();
        let ports = self.ports(slice.ports(), entry_fields);
        if slice.has_host_names() {
            let reason = format!(
                "the EndpointSlice {} has names (FQDN) instead of addresses, which no mirror can use",
                slice.name()
            );
            let identity = (namespace.to_owned(), slice.name().to_owned(), String::new());
            endpoints.entry(identity).or_default().unknown_reason = Some(reason);
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
            // Skipping the address would remove its entry. An error makes the entry uncertain instead, so the entry
            // stays.
            if let Some(address) = endpoint.malformed_address() {
                let reason = format!("the EndpointSlice {} has {address:?} as an address", slice.name());
                let (name, uid) = pod.unwrap_or((slice.name(), ""));
                let identity = (namespace.to_owned(), name.to_owned(), uid.to_owned());
                endpoints.entry(identity).or_default().unknown_reason = Some(reason);
            }
            for address in endpoint.addresses().filter(|address| self.has_family(*address)) {
                let merged = endpoints.entry(identity(address)).or_default();
                match &ports {
                    Err(reason) => {
                        merged.unknown_reason = Some(format!("the EndpointSlice {}: {reason}", slice.name()));
                    }
                    Ok(ports) => {
                        for port in ports {
                            let location = (service.to_owned(), address, *port);
                            merged.states.entry(location).or_default().add(endpoint);
                        }
                    }
                }
            }
        }
    }

    fn has_family(&self, address: IpAddr) -> bool {
        match self.family {
            None => true,
            Some(AddressFamily::Ipv4) => address.is_ipv4(),
            Some(AddressFamily::Ipv6) => address.is_ipv6(),
        }
    }

    /// Returns the selected port of a slice, or an empty list if the slice has no ports. A named port of a Service may
    /// have a different number in each slice.
    ///
    /// Address records have no port. For DNS, `port` only selects the slices that have this port, and the result is one
    /// `None`.
    fn ports(&self, ports: &[Port], entry_fields: EntryFields) -> Result<Vec<Option<u16>>, String> {
        let is_portless = has_dns_fields(entry_fields);
        let matching_ports: BTreeSet<u16> = match &self.port {
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
        let listed_ports = || {
            let listed_ports = ports.iter().map(|port| match (port.name(), port.number()) {
                (name, None) => format!("{name} without number"),
                ("", Some(number)) => number.to_string(),
                (name, Some(number)) => format!("{name} ({number})"),
            });
            listed_ports.collect::<Vec<_>>().join(", ")
        };
        match (matching_ports.len(), &self.port) {
            (0, _) if ports.is_empty() && self.port.is_none() => {
                Err("the Service has no port; set `port` to the number".to_owned())
            }
            // A slice without ports has no usable endpoint.
            (0, Some(EndpointPort::Name(_))) if ports.is_empty() => Ok(Vec::new()),
            (0, _) => {
                let requested_port = match &self.port {
                    Some(EndpointPort::Name(name)) => format!("{name:?}"),
                    Some(EndpointPort::Number(number)) => number.to_string(),
                    None => "a number".to_owned(),
                };
                let description = format!("it has the ports {}, and none is {requested_port}", listed_ports());
                Err(format!(
                    "{description}; `port` takes the name, or the number at the endpoints (the Service's targetPort)"
                ))
            }
            (1, _) if is_portless => Ok(vec![None]),
            (1, _) => Ok(matching_ports.into_iter().map(Some).collect()),
            (_, None) => Err(format!("the Service has the ports {}; choose one with `port`", listed_ports())),
            (_, Some(_)) => Err(format!("several ports match: {}; choose one by number", listed_ports())),
        }
    }
}

impl EndpointState {
    fn is_ready(&self) -> bool {
        self.is_ready && !self.is_terminating
    }

    fn add(&mut self, endpoint: &Endpoint) {
        let EndpointCondition { is_ready, is_serving, is_terminating } = endpoint.condition();
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
struct EndpointLocation<'a> {
    cluster: &'a str,
    namespace: &'a str,
    service: &'a str,
    address: IpAddr,
    port: Option<u16>,
}

impl EndpointLocation<'_> {
    /// Returns the fields of the entries, by key. Keys of different endpoints differ. Names of clusters, namespaces and
    /// Services contain no dots, and names of pods and Services contain no underscores.
    fn fields(
        &self,
        state: &EndpointState,
        host: Option<&str>,
        entry_fields: EntryFields,
    ) -> Vec<(String, Map<String, Value>)> {
        let Self { cluster, namespace, service, address, port } = self;
        let address_text = match address {
            IpAddr::V4(address) => address.to_string(),
            // Some targets do not accept colons in keys.
            IpAddr::V6(address) => format!("{:032x}", address.to_bits()),
        };
        let suffix = port.map_or_else(|| format!("_{address_text}"), |port| format!("_{address_text}_{port}"));
        let pod = state.pod.as_deref();
        let socket_address = port.map(|port| SocketAddr::new(*address, port).to_string());
        let entries = if has_dns_fields(entry_fields) {
            let kind = if address.is_ipv4() { "A" } else { "AAAA" };
            let record = |name: &str| json!({"name": name, "type": kind, "data": address.to_string()});
            let host = host.unwrap_or_default();
            let key = format!("{cluster}.{namespace}.{}{suffix}", pod.unwrap_or(service));
            let mut records = vec![(key.clone(), record(host))];
            if let Some(hostname) = &state.hostname {
                records.push((format!("{key}_{hostname}"), record(&format!("{hostname}.{host}"))));
            }
            records
        } else if let Some(value) = entry_fields.iter().find(|field| field.name == "value") {
            // Registry users search by key, so the key contains the Service.
            let pod_part = pod.map(|pod| format!(".{pod}")).unwrap_or_default();
            let key = format!("{cluster}.{namespace}.{service}{pod_part}{suffix}");
            let value = if value.kind == FieldKind::Text {
                json!({"value": socket_address.unwrap_or_else(|| address.to_string())})
            } else {
                let item = json!({
                    "cluster": cluster, "namespace": namespace, "service": service, "pod": pod,
                    "address": address.to_string(), "port": port, "node": state.node, "zone": state.zone,
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

/// Returns true for the entry fields of a DNS zone.
fn has_dns_fields(entry_fields: EntryFields) -> bool {
    entry_fields.iter().any(|field| field.name == "data")
}

#[cfg(test)]
mod tests;
