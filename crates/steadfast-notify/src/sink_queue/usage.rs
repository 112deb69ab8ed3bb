//! Use of a queue by each namespace: number and size of the unsettled messages.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::message::{ClusterNamespace, Message};
use crate::namespace_share::has_share;

/// Maximum size of the queued messages of a sink, in bytes of memory. Namespaces share this size like the number of
/// messages.
const MAX_PENDING_BYTES: usize = 256 << 20;

/// Approximate memory of a queued message without its data, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 1024;

/// Approximate memory of a field of an object without name and value, in bytes.
const FIELD_OVERHEAD_BYTES: usize = 32;

/// Unsettled messages of a queue.
#[derive(Default)]
pub(super) struct QueueUsage {
    total: Usage,
    by_namespace: BTreeMap<ClusterNamespace, Usage>,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    messages: usize,
    bytes: usize,
}

impl QueueUsage {
    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.total.messages
    }

    /// Adds a message with this [size](message_bytes).
    pub(super) fn add(&mut self, namespace: ClusterNamespace, bytes: usize) {
        for usage in [&mut self.total, self.by_namespace.entry(namespace).or_default()] {
            usage.messages += 1;
            usage.bytes = usage.bytes.saturating_add(bytes);
        }
    }

    /// Changes the size of a message.
    pub(super) fn resize(&mut self, namespace: &ClusterNamespace, previous_bytes: usize, bytes: usize) {
        for usage in [Some(&mut self.total), self.by_namespace.get_mut(namespace)].into_iter().flatten() {
            usage.bytes = usage.bytes.saturating_sub(previous_bytes).saturating_add(bytes);
        }
    }

    /// Removes a message with this size.
    pub(super) fn remove(&mut self, namespace: &ClusterNamespace, bytes: usize) {
        self.resize(namespace, bytes, 0);
        self.total.messages -= 1;
        if let Some(usage) = self.by_namespace.get_mut(namespace) {
            usage.messages -= 1;
            if usage.messages == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }

    /// Returns true if the namespace has used neither its share of `max_messages` nor its share of the size.
    pub(super) fn has_space(&self, namespace: &ClusterNamespace, max_messages: usize) -> bool {
        let own = self.by_namespace.get(namespace);
        let other_namespaces = self.by_namespace.len() - usize::from(own.is_some());
        let own = own.copied().unwrap_or_default();
        has_share(own.messages, self.total.messages, other_namespaces, max_messages)
            && has_share(own.bytes, self.total.bytes, other_namespaces, MAX_PENDING_BYTES)
    }
}

/// Returns the approximate memory of a message, in bytes.
pub(super) fn message_bytes(message: &Message) -> usize {
    MESSAGE_OVERHEAD_BYTES + value_bytes(&message.data)
}

fn value_bytes(value: &Value) -> usize {
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_bytes).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| FIELD_OVERHEAD_BYTES + name.len() + value_bytes(value)).sum()
        }
    };
    size_of::<Value>() + content
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str) -> ClusterNamespace {
        ("default".to_owned(), name.to_owned())
    }

    #[test]
    fn large_messages_use_namespace_share() {
        let message = serde_json::from_value::<Message>(json!({
            "id": "a", "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
            "resource": "pods", "namespace": "hostile", "name": "a", "uid": "u",
            "data": {"text": ["x".repeat(1 << 20)]},
        }));
        let bytes = message_bytes(&message.expect("a message"));
        assert!((1 << 20..(1 << 20) + 2048).contains(&bytes), "{bytes}");
        let (mut usage, hostile, quiet) = (QueueUsage::default(), namespace("hostile"), namespace("quiet"));
        while usage.has_space(&hostile, 10_000) {
            usage.add(hostile.clone(), bytes);
        }
        assert_eq!(usage.len(), 128, "half of the size is the share of a single namespace");
        assert!(usage.has_space(&quiet, 10_000));
        usage.resize(&hostile, bytes, 10 * bytes);
        usage.remove(&hostile, 10 * bytes);
        assert!(usage.has_space(&hostile, 10_000) && !usage.has_space(&hostile, 100));
        for _ in 0..127 {
            usage.remove(&hostile, bytes);
        }
        assert_eq!((usage.len(), usage.total.bytes, usage.by_namespace.len()), (0, 0, 0));
    }
}
