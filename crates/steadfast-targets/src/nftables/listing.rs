//! Parser for the output of `nft -j` ([libnftables-json(5)](https://manpages.debian.org/libnftables-json.5)).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::backend::{Backend, MAX_NAME_BYTES, MAX_WEIGHT};
use super::table::{BALANCE, DRIFT_WEIGHT_OFFSET, ENTRIES, Table, turn_counts};
use crate::bounded_name::is_valid_name;

/// Returns true if the table `name` is listed.
pub(super) fn has_table(listed: &str, name: &str) -> Result<bool, String> {
    let objects = parse_objects(listed)?;
    Ok(objects.iter().any(|object| object["table"]["name"] == name))
}

/// Returns the entries of the listed table. A foreign rule among the entries causes a rewrite of the table.
///
/// If the selecting rule does not match the entries, another program changed the rule. Entries that the rule contains
/// then get a [drifted weight](DRIFT_WEIGHT_OFFSET), and entries that it lacks get weight 0. An address that only the
/// rule contains becomes an unwanted entry. So the mirror repairs everything, and no unwanted backend loses its traffic
/// earlier than the guard permits.
pub(super) fn parse_entries(listed: &str, table: &Table) -> Result<BTreeMap<String, Backend>, String> {
    let (mut entries, mut listed_turn_counts) = (BTreeMap::new(), BTreeMap::new());
    let (mut hooks, mut has_foreign_rule) = (0, false);
    for object in parse_objects(listed)? {
        let rule = &object["rule"];
        match rule["chain"].as_str() {
            Some(ENTRIES) => match parse_entry(rule["comment"].as_str().unwrap_or_default()) {
                Some((name, backend)) => _ = entries.insert(name.to_owned(), backend),
                None => has_foreign_rule = true,
            },
            Some(BALANCE) => listed_turn_counts.extend(parse_turn_counts(&rule["expr"], table).unwrap_or_default()),
            Some(_) => hooks += usize::from(rule["expr"][0]["jump"]["target"] == BALANCE),
            None => {}
        }
    }
    if hooks != 2 || has_foreign_rule || listed_turn_counts != turn_counts(&entries) {
        for backend in entries.values_mut() {
            let is_known = hooks == 2 && listed_turn_counts.contains_key(&backend.address);
            backend.weight = if is_known { backend.weight + DRIFT_WEIGHT_OFFSET } else { 0 };
        }
        listed_turn_counts.retain(|address, _| entries.values().all(|backend| backend.address != *address));
        let foreign =
            listed_turn_counts.into_keys().map(|address| Backend { address, weight: 1 + DRIFT_WEIGHT_OFFSET });
        // An earlier backend of this kind keeps its name until the guard permits its removal.
        let names = (0..).map(|number: usize| format!("?{number}"));
        let free_names = names.filter(|name| !entries.contains_key(name));
        let foreign: Vec<_> = free_names.zip(foreign).collect();
        entries.extend(foreign);
    }
    Ok(entries)
}

fn parse_objects(listed: &str) -> Result<Vec<Value>, String> {
    let mut listed: Value = serde_json::from_str(listed).map_err(|error| format!("it is not JSON: {error}"))?;
    match listed["nftables"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Err("it has no list `nftables`".to_owned()),
    }
}

/// Reads a comment: name, address, weight. `None` for a comment that no mirror has written. Its name could change the
/// meaning of the next ruleset, and its weight could overflow.
fn parse_entry(comment: &str) -> Option<(&str, Backend)> {
    let mut words = comment.split(' ');
    let name = words.next().filter(|name| is_valid_name(name.trim_start_matches('?'), MAX_NAME_BYTES))?;
    let backend = Backend { address: words.next()?.parse().ok()?, weight: words.next()?.parse().ok()? };
    (words.next().is_none() && backend.weight <= MAX_WEIGHT).then_some((name, backend))
}

/// Returns the number of turns of each address; `None` if the expressions are not a selecting rule of this table.
fn parse_turn_counts(expressions: &Value, table: &Table) -> Option<BTreeMap<SocketAddr, u32>> {
    let (mut address, mut port, mut balancing_map) = (None, None, None);
    for expression in expressions.as_array()? {
        let right = &expression["match"]["right"];
        let payload = &expression["match"]["left"]["payload"];
        match payload["field"].as_str() {
            Some("daddr") => address = right.as_str().and_then(|address| address.parse::<IpAddr>().ok()),
            Some("dport") if payload["protocol"] == table.protocol.name() => port = right.as_u64(),
            _ => balancing_map = balancing_map.or_else(|| expression["dnat"]["addr"]["map"].as_object()),
        }
    }
    let balancing_map = balancing_map?;
    if (address, port) != (Some(table.front_address.ip()), Some(u64::from(table.front_address.port()))) {
        return None;
    }
    if balancing_map["key"]["numgen"]["mode"] != "inc" {
        return None;
    }
    let mut turn_counts = BTreeMap::new();
    for element in balancing_map["data"]["set"].as_array()? {
        let (turn, backend) = (&element[0], &element[1]["concat"]);
        let address = SocketAddr::new(backend[0].as_str()?.parse().ok()?, u16::try_from(backend[1].as_u64()?).ok()?);
        let count = match turn["range"].as_array() {
            Some(range) => range.get(1)?.as_u64()?.checked_sub(range.first()?.as_u64()?)?.checked_add(1)?,
            None => 1,
        };
        let turns: &mut u32 = turn_counts.entry(address).or_default();
        *turns = turns.checked_add(u32::try_from(count).ok()?)?;
    }
    Some(turn_counts)
}
