//! Ruleset of the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use super::backend::Backend;

/// Name of the chain with the rule that selects a backend.
pub(super) const BALANCE: &str = "balance";

/// Name of the chain that lists the entries.
pub(super) const ENTRIES: &str = "entries";

/// Added in memory to the weight of each entry in the selecting rule, if another program has changed this rule. The
/// weight then differs from the desired one, so the mirror rewrites the table.
pub(super) const DRIFT_WEIGHT_OFFSET: u16 = 1000;

/// Identity of the table and of the forwarded address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    /// Address in front of the backends.
    pub(super) front_address: SocketAddr,
    pub(super) protocol: TransportProtocol,
}

/// Transport protocol of the address in front of the backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportProtocol {
    /// TCP, the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl TransportProtocol {
    /// Returns the name in a ruleset.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl Table {
    pub(super) fn family(&self) -> &'static str {
        if self.front_address.is_ipv4() { "ip" } else { "ip6" }
    }

    /// Returns a transaction that replaces the contents of the table with these entries.
    pub(super) fn ruleset(&self, entries: &BTreeMap<String, Backend>) -> String {
        let (family, name, front_address, protocol) =
            (self.family(), &self.name, self.front_address, self.protocol.name());
        // The table is created first, so that its deletion succeeds in either case.
        let mut text = format!("table {family} {name}\ndelete table {family} {name}\ntable {family} {name} {{\n");
        let (ip, port) = (front_address.ip(), front_address.port());
        let choice = Self::balancing_expression(entries)
            .map(|choice| format!("    {family} daddr {ip} {protocol} dport {port} dnat to {choice}\n"));
        _ = writeln!(text, "  chain {BALANCE} {{\n{}  }}", choice.unwrap_or_default());
        for (chain, hook) in [("from_elsewhere", "prerouting"), ("from_here", "output")] {
            let kind = format!("type nat hook {hook} priority -100; policy accept;");
            _ = writeln!(text, "  chain {chain} {{\n    {kind}\n    jump {BALANCE}\n  }}");
        }
        _ = writeln!(text, "  chain {ENTRIES} {{");
        for (name, Backend { address, weight }) in entries {
            _ = writeln!(text, "    counter comment \"{name} {address} {weight}\"");
        }
        text.push_str("  }\n}\n");
        text
    }

    /// Returns the expression that selects a backend in turn by weight. Returns `None` if no backend has a weight.
    fn balancing_expression(entries: &BTreeMap<String, Backend>) -> Option<String> {
        let turn_counts = turn_counts(entries);
        let total: u32 = turn_counts.values().sum();
        if total == 0 {
            return None;
        }
        let mut text = format!("numgen inc mod {total} map {{ ");
        // Each address gets a contiguous range of turns of the round-robin counter.
        let mut next = 0;
        for (address, share) in turn_counts {
            let last = next + share - 1;
            let turns = if share == 1 { next.to_string() } else { format!("{next}-{last}") };
            _ = write!(text, "{turns} : {} . {}, ", address.ip(), address.port());
            next += share;
        }
        text.push('}');
        Some(text)
    }
}

/// Returns the number of turns of each address: the lowest numbers with the ratio of the weights.
pub(super) fn turn_counts(entries: &BTreeMap<String, Backend>) -> BTreeMap<SocketAddr, u32> {
    let mut turn_counts = BTreeMap::new();
    for Backend { address, weight } in entries.values().filter(|backend| backend.weight > 0) {
        *turn_counts.entry(*address).or_default() += u32::from(*weight);
    }
    // The counts are divided by their common divisor: equal weights of 100 need one turn each, not 100.
    let divisor = turn_counts.values().copied().fold(0, greatest_common_divisor);
    for share in turn_counts.values_mut() {
        *share /= divisor.max(1);
    }
    turn_counts
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
