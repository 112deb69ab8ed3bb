//! Sends messages on changes in Kubernetes clusters, by configured rules.
//!
//! A configuration lists resources, conditions and messages in CEL, and sinks. A [`Plan`] is a checked configuration.
//! An [`Engine`] runs a plan: the caller passes [changes](change::Change) with stable IDs, the engine evaluates the
//! rules and delivers the resulting messages, at least once and in order for each object. The engine notifies the
//! caller when all messages of a change are delivered or [dead letters](dead_letter::DeadLetters).
//!
//! | module | contents |
//! |---|---|
//! | `document` | parser of TOML and YAML with positions of values |
//! | [`config`] | configuration types |
//! | `plan`, [`problem`] | checked configuration, configuration errors |
//! | `expression`, `path` | CEL expressions of rules, paths of fields |
//! | [`rule`], [`explain`] | evaluation of a rule for a change, explanation of the result |
//! | [`change`], [`message`], `ack` | input, output and acknowledgement of the engine |
//! | `offload` | evaluation outside of the threads for sockets and timers |
//! | `projections` | hashes of sent results, which suppress unchanged messages |
//! | [`outbox`], [`outcome`] | queue of one sink, without clock or tasks |
//! | `worker`, `chance` | task of a sink: delivers messages of an outbox; random jitter |
//! | [`sink`], `secret`, `template` | streams (standard output, programs, webhooks), secrets, templates with secrets |
//! | `fields` | checks of fields against the cluster's OpenAPI document |
//! | `inspect` | checks of local programs, secrets and certificates |
//! | `reach` | checks of external systems without sending messages |
//! | [`dead_letter`], `redrive` | dead letters, and further delivery attempts |
//! | `engine`, [`engine_event`] | the engine, and events for the operator |
//! | `endpoints` | endpoints of Services as entries of mirrors, merged from EndpointSlices |
//! | `mirror`, `shape` | sinks that are made equal to the results of rules; fields of entries |
//! | `state`, `short_hash` | folder with state across restarts, file lock; short names of files |
//! | `private_file` | files with access for the owner only |
//! | `supervise` | long-lived tasks, restarted after unexpected ends |
//! | `replication` | positions up to which replicas have settled changes |
//! | `server` | HTTP connection by configuration: headers, certificates, proxy |
//! | `source` | resource and scope of a rule, and the informer |
//! | `follow` | informer handlers that pass changes to the engine; unsettled changes survive restarts |
//! | `object_state`, `subject` | state of an object in expressions, identity of an object |
//! | `lookups` | objects of other resources for expressions, and dependent objects |
//! | `instants`, `recheck` | re-evaluation of unchanged objects, and resulting messages of streams |
//! | `watermark` | instant up to which messages caused by time or lookups are settled, on disk |
//! | `key_locks` | locks by sink and object |
//! | `wake` | tasks that wake another task on cache changes |

mod ack;
mod chance;
pub mod change;
pub mod config;
pub mod dead_letter;
mod document;
mod endpoints;
mod engine;
pub mod engine_event;
pub mod explain;
mod expression;
mod fields;
mod follow;
mod inspect;
mod instants;
mod key_locks;
mod lookups;
pub mod message;
mod mirror;
mod object_state;
mod offload;
pub mod outbox;
pub mod outcome;
mod path;
mod plan;
mod private_file;
pub mod problem;
mod projections;
mod reach;
mod recheck;
mod redrive;
mod replication;
pub mod rule;
mod secret;
mod server;
mod shape;
mod short_hash;
pub mod sink;
mod source;
pub mod state;
mod subject;
mod supervise;
mod template;
mod trouble;
mod wake;
mod watermark;
mod worker;

pub use engine::{Counts, Engine, Streams};
pub use fields::{Schemas, Typed};
pub use follow::{RuleSubscription, forget_others};
pub use inspect::Findings;
pub use lookups::{Lookups, look_up};
pub use mirror::{
    Approvals, DryRun, Feed, MAX_LISTED, MirrorContext, MirrorPreview, MirrorStatus, MirrorTask, MirrorView,
    MirrorViewSource, Openings, preview_mirrors,
};
pub use plan::{DEFAULT_CLUSTER, Plan};
pub use reach::reach;
pub use redrive::{Redriven, redrive};
pub use replication::{Replication, SettledVersions, position_name, position_owner};
pub use source::{LookedUp, Source, WatchSpec};
pub use state::State;
pub use steadfast_outside::{ApprovalRequest, Memory, State as MirrorState, Term, TermGate, TermKeeper};
pub use supervise::{Supervised, Supervisor};
pub use watermark::forget_watermarks;
pub use worker::SinkStats;
