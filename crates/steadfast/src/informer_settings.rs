//! Settings of an informer, and the differences between two requests. A request with other settings than the running
//! informer's is an error, so no setting is silently ignored.

use std::any::TypeId;
use std::fmt::Debug;

use steadfast_core::reflector::ReflectorSettings;

use crate::error::SettingMismatch;

/// Settings that must be equal for all callers that share an informer.
#[derive(Clone)]
pub(crate) struct InformerSettings {
    pub(crate) reflector: ReflectorSettings,
    pub(crate) managed_fields: bool,
    pub(crate) transform: Option<TransformId>,
    /// Maximum size of a record in bytes.
    pub(crate) object_limit: usize,
    /// True if protobuf is requested.
    pub(crate) protobuf: bool,
    /// Maximum size of the cache in bytes.
    pub(crate) memory_limit: Option<usize>,
    /// True if encoded objects are delta-compressed.
    pub(crate) delta_compressed: bool,
    /// Minimum memory of a decoded object that is cached encoded, in bytes; `None` if all objects are cached decoded.
    pub(crate) decode_on_demand_above: Option<usize>,
    /// Path of the checkpoint file.
    pub(crate) checkpoint: Option<String>,
    /// Permission to store Secrets in the checkpoint.
    pub(crate) secrets_on_disk: SecretsOnDisk,
}

/// Permission to store Secrets on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretsOnDisk {
    Denied,
    #[cfg(feature = "checkpoint")]
    Allowed,
}

/// Identity of a transform.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransformId {
    /// A function without captures is identified by its type.
    Function(TypeId),
    /// A closure with captures equals no other closure.
    Closure,
}

impl TransformId {
    /// Returns the identity of `F`.
    pub(crate) fn of<F: 'static>() -> Self {
        if size_of::<F>() > 0 { Self::Closure } else { Self::Function(TypeId::of::<F>()) }
    }

    fn is(self, other: Self) -> bool {
        self == other && self != Self::Closure
    }

    fn described(self) -> &'static str {
        match self {
            Self::Function(_) => "a function",
            Self::Closure => "a closure with captures",
        }
    }
}

/// Lists the fields that differ between two values, by name.
macro_rules! differing {
    ($running:expr, $requested:expr, $type:ident { $($field:ident),* $(,)? }, not $($other:ident),*) => {{
        let (running, requested): (&$type, &$type) = ($running, $requested);
        // The exhaustive pattern makes a field that is missing from both lists a compile error.
        let $type { $($field: _,)* $($other: _),* } = running;
        let mut differences = Vec::new();
        $(if running.$field != requested.$field {
            differences.push(difference(stringify!($field), &running.$field, &requested.$field));
        })*
        differences
    }};
}

impl InformerSettings {
    /// Returns the settings that differ from those in `requested`.
    pub(crate) fn differences(&self, requested: &Self) -> Vec<SettingMismatch> {
        let mut differences = differing!(
            &self.reflector,
            &requested.reflector,
            ReflectorSettings {
                streamed_lists, delta_relists, delta_min_objects, delta_objects_per_difference, delta_timeout, page_size, list_stall_timeout, initial_events_timeout, paged_list_period, poll_every, period,
                min_period, max_period, audit_every, stale_after, healthy_after, min_watch_duration,
                probe_deadline, short_watch_deadline, watch_timeout, relist_jitter, backoff,
            },
            not rules
        );
        if self.object_limit != requested.object_limit {
            differences.push(difference("object_limit", &self.object_limit, &requested.object_limit));
        }
        if self.protobuf != requested.protobuf {
            differences.push(difference("protobuf", &self.protobuf, &requested.protobuf));
        }
        if self.memory_limit != requested.memory_limit {
            differences.push(difference("memory_limit", &self.memory_limit, &requested.memory_limit));
        }
        if self.delta_compressed != requested.delta_compressed {
            differences.push(difference("delta_compressed", &self.delta_compressed, &requested.delta_compressed));
        }
        if self.decode_on_demand_above != requested.decode_on_demand_above {
            let (running, requested) = (&self.decode_on_demand_above, &requested.decode_on_demand_above);
            differences.push(difference("decode_on_demand_above", running, requested));
        }
        if self.checkpoint != requested.checkpoint {
            differences.push(difference("checkpoint", &self.checkpoint, &requested.checkpoint));
        }
        if self.secrets_on_disk != requested.secrets_on_disk {
            differences.push(difference("including_secrets", &self.secrets_on_disk, &requested.secrets_on_disk));
        }
        if self.managed_fields != requested.managed_fields {
            differences.push(difference("keep_managed_fields", &self.managed_fields, &requested.managed_fields));
        }
        let (running_faults, faults) = (self.reflector.rules.faults, requested.reflector.rules.faults);
        if running_faults != faults {
            differences.push(difference("injected faults", &running_faults, &faults));
        }
        differences.extend(self.transform_difference(requested));
        differences
    }

    fn transform_difference(&self, requested: &Self) -> Option<SettingMismatch> {
        let (running, requested) = match (self.transform, requested.transform) {
            (None, None) => return None,
            (Some(running), Some(requested)) if running.is(requested) => return None,
            (Some(running), Some(_)) => (running.described(), "a different transform"),
            (running, requested) => {
                let described = |id: Option<TransformId>| id.map_or("none", TransformId::described);
                (described(running), described(requested))
            }
        };
        Some(SettingMismatch { setting: "transform", running: running.to_owned(), requested: requested.to_owned() })
    }
}

fn difference<T: Debug>(setting: &'static str, running: &T, requested: &T) -> SettingMismatch {
    SettingMismatch { setting, running: shown(running), requested: shown(requested) }
}

/// Formats a value for display: the content of an option, or `none`.
fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.strip_prefix("Some(").and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => inner.to_owned(),
        None if text == "None" => "none".to_owned(),
        None => text,
    }
}
