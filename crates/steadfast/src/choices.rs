//! With what an informer was requested, and in what two requests differ: who joins one that runs has no wish dropped.

use std::any::TypeId;
use std::fmt::Debug;

use steadfast_core::breach::Breaches;
use steadfast_core::reflector::ReflectorSettings;

use crate::error::Difference;

/// Everything that all who share an informer have to want alike.
#[derive(Clone)]
pub(crate) struct Choices {
    pub(crate) settings: ReflectorSettings,
    pub(crate) managed_fields: bool,
    pub(crate) transform: Option<TransformId>,
    /// The longest record that is read, in bytes.
    pub(crate) object_limit: usize,
    /// Whether protobuf is asked for.
    pub(crate) protobuf: bool,
    /// The most that the cache may take up, in bytes.
    pub(crate) memory_limit: Option<usize>,
    /// Whether what is kept encoded is packed.
    pub(crate) packed: bool,
    /// In which file the cache is kept beyond the program's life.
    pub(crate) checkpoint: Option<String>,
    /// Whether that may have Secrets in it.
    pub(crate) secrets_on_disk: SecretsOnDisk,
    pub(crate) breaches: Breaches,
}

/// Whether Secrets may be written to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretsOnDisk {
    Refused,
    #[cfg(feature = "checkpoint")]
    Asked,
}

/// Which transform it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransformId {
    /// A function that captures nothing is what its type says.
    Function(TypeId),
    /// A closure that captures something is like no other.
    Closure,
}

impl TransformId {
    /// Which one `F` is.
    pub(crate) fn of<F: 'static>() -> Self {
        if size_of::<F>() > 0 { Self::Closure } else { Self::Function(TypeId::of::<F>()) }
    }

    fn is(self, other: Self) -> bool {
        self == other && self != Self::Closure
    }

    fn described(self) -> &'static str {
        match self {
            Self::Function(_) => "a function",
            Self::Closure => "a closure that captures something",
        }
    }
}

/// The fields of two values that differ, each by its name.
macro_rules! differing {
    ($running:expr, $requested:expr, $type:ident { $($field:ident),* $(,)? }, not $($other:ident),*) => {{
        let (running, requested): (&$type, &$type) = ($running, $requested);
        // A field that is named in neither list is an error here.
        let $type { $($field: _,)* $($other: _),* } = running;
        let mut differences = Vec::new();
        $(if running.$field != requested.$field {
            differences.push(difference(stringify!($field), &running.$field, &requested.$field));
        })*
        differences
    }};
}

impl Choices {
    /// In what these, with which an informer runs, differ from those that are `requested`.
    pub(crate) fn differences(&self, requested: &Self) -> Vec<Difference> {
        let mut differences = differing!(
            &self.settings,
            &requested.settings,
            ReflectorSettings {
                streamed_lists, delta_relists, delta_least, delta_one_in, delta_within, page_size, list_patience, initial_events_within, pages_for, poll_every, period,
                shortest_period, longest_period, audit_every, stream_patience, healthy_after, short_watch,
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
        if self.packed != requested.packed {
            differences.push(difference("packed", &self.packed, &requested.packed));
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
        if self.breaches != requested.breaches {
            differences.push(difference("breach", &self.breaches, &requested.breaches));
        }
        differences.extend(self.transforms(requested));
        differences
    }

    fn transforms(&self, requested: &Self) -> Option<Difference> {
        let (running, requested) = match (self.transform, requested.transform) {
            (None, None) => return None,
            (Some(running), Some(requested)) if running.is(requested) => return None,
            (Some(running), Some(_)) => (running.described(), "another one"),
            (running, requested) => {
                let described = |id: Option<TransformId>| id.map_or("none", TransformId::described);
                (described(running), described(requested))
            }
        };
        Some(Difference { setting: "transform", running: running.to_owned(), requested: requested.to_owned() })
    }
}

fn difference<T: Debug>(setting: &'static str, running: &T, requested: &T) -> Difference {
    Difference { setting, running: shown(running), requested: shown(requested) }
}

/// A value for people: what is optional by itself, or `none`.
fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.strip_prefix("Some(").and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => inner.to_owned(),
        None if text == "None" => "none".to_owned(),
        None => text,
    }
}
