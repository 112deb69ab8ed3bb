//! Objects written in both encodings by Go's own packages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use steadfast_core::protobuf::MessageType;

/// Returns the corpus: apiVersion, kind, protobuf, JSON.
pub(crate) fn corpus() -> Vec<(&'static str, &'static str, Vec<u8>, &'static str)> {
    let lines = include_str!("corpus.txt").lines().filter(|line| !line.starts_with('#'));
    let samples: Vec<_> = lines
        .map(|line| match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            [api_version, kind, protobuf, json] => {
                (api_version, kind, STANDARD.decode(protobuf).expect("base64"), json)
            }
            _ => panic!("a line of the corpus has four words"),
        })
        .collect();
    assert!(samples.len() > 30);
    samples
}

/// Returns the message type of the kind.
pub(crate) fn id(api_version: &str, kind: &str) -> MessageType {
    MessageType::of_kind(api_version, kind).expect("a built-in kind")
}
