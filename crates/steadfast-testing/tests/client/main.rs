//! Connections of a client: kubeconfigs, streamed subprotocols, and the test network.

mod kubeconfigs;
mod proxy;
mod streaming;
