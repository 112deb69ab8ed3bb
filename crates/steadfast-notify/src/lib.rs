//! Acts on every change of a cluster: rules, what they send, and its delivery.
//!
//! A configuration names resources, says when to act and what to send in CEL, and where to send it. It is read into a
//! [`Plan`]; an [`Engine`] acts by it: it is handed [changes](change::Change), each with an id that stays the same, asks
//! the rules, and has delivered what they send, at least once and in order for each object. Whoever hands a change over is
//! told when all that it caused is delivered, or is among the [dead letters](dead::DeadLetters).
//!
//! | room | what it is |
//! |---|---|
//! | `document` | a file of TOML or YAML as values, and the place of each |
//! | [`config`] | what a configuration may say |
//! | `plan`, [`problem`] | a configuration that was looked through, and what is wrong with one |
//! | `expression`, `path` | the language of rules: read, looked through, evaluated |
//! | [`rule`], [`explain`] | whether a rule fires for a change and what it sends, and why not |
//! | [`change`], [`message`], `ack` | what comes in, what goes out, and the acknowledgement |
//! | `offload` | evaluation outside of the threads that serve sockets and timers |
//! | `projections` | what rules have sent: the same again is no news |
//! | [`outbox`], [`outcome`] | what waits for one sink: what goes next, and when; without clock or task |
//! | `courier`, `chance` | an outbox at work: time, tasks, the stream at its end |
//! | [`sink`], `secret`, `template` | the streams: standard output, programs, webhooks; what nobody else is to see |
//! | `fields` | fields of resources, by the cluster's OpenAPI document |
//! | `inspect` | programs, secrets and certificates that a configuration refers to |
//! | `reach` | whether what lies outside is there, asked before anything is sent |
//! | [`dead`], `redrive` | what could not be delivered, and trying it again |
//! | `engine`, [`notice`] | all of it together, and what it tells |
//! | `endpoints` | the endpoints of Services as entries of mirrors: EndpointSlices, read and merged |
//! | `mirror`, `shape` | sinks that are made equal to what rules send, and what that has to be |
//! | `state`, `short_hash` | the folder of what no restart may forget, and its lock; names in it |
//! | `private_file` | files that only their owner may read |
//! | `supervise` | long-lived tasks, restarted when they end unexpectedly |
//! | `replication` | what replicas know of each other: up to which version everything is settled |
//! | `server` | a web server as a configuration says it: headers, certificates, proxy |
//! | `source` | what a rule looks at in one place, and the informer of it |
//! | `follow` | the handlers of informers that changes come from: what is not settled when the program dies, they tell its next life |
//! | `object_state`, `subject` | a state of an object as rules see it, and which object it is |
//! | `lookups` | objects of other resources that expressions look up, and which objects depend on them |
//! | `instants`, `recheck` | when objects are evaluated again although they do not change, and the messages of streams that this causes |
//! | `watermark` | the instant up to which messages that time or lookups cause are settled, in the state folder |
//! | `turns` | locks by sink and object |
//! | `wake` | tasks that wake another one when caches change |

mod ack;
mod chance;
pub mod change;
pub mod config;
pub mod dead;
mod document;
mod endpoints;
mod engine;
pub mod explain;
mod expression;
mod fields;
mod follow;
mod inspect;
mod instants;
mod lookups;
pub mod message;
mod mirror;
pub mod notice;
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
mod turns;
mod wake;
mod watermark;
mod worker;

pub use engine::{Counts, Engine, Streams};
pub use fields::{Schemas, Typed};
pub use follow::{Following, forget_others};
pub use inspect::Findings;
pub use lookups::{Lookups, look_up};
pub use mirror::{
    Approvals, Feed, How, MAX_LISTED, MirrorStanding, MirrorTask, Openings, Play, Seen, View, ViewSource, previewed,
};
pub use plan::{DEFAULT_CLUSTER, Plan};
pub use reach::reach;
pub use redrive::{Redriven, redrive};
pub use replication::{Replication, SettledVersions, position_name, position_owner};
pub use source::{LookedUp, Lookout, Source};
pub use state::State;
pub use steadfast_outside::{Ask, Memory, State as MirrorState, Term, TermGate, TermKeeper};
pub use supervise::{Supervised, Supervisor};
pub use watermark::forget_watermarks;
pub use worker::SinkStats;
