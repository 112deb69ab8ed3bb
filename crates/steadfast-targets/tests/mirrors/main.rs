//! Mirrors: scenarios in virtual time, previews, and the targets HAProxy, DNS, etcd and registries over HTTP.

mod dns;
mod etcd;
mod haproxy;
mod preview;
mod random;
mod registry;
mod snippets;
