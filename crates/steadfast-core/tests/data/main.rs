//! Store, handlers, queues, framing and decoding.

mod checkpoint;
mod decoding;
mod events;
mod framing;
mod handlers;
mod items;
mod json;
mod lazy;
mod ordmap;
mod protobuf;
mod queue;
mod slots;
mod store;
mod store_model;
mod test_objects;
