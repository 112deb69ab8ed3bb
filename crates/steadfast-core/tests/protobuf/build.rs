//! Protobuf written by hand.

pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub(crate) fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

pub(crate) fn delimited(field: u64, value: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2), &varint(value.len() as u64), value].concat()
}

pub(crate) fn text(field: u64, value: &str) -> Vec<u8> {
    delimited(field, value.as_bytes())
}

/// An object that stands for itself.
pub(crate) fn enveloped(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let types = [text(1, api_version), text(2, kind)].concat();
    [b"k8s\0".to_vec(), delimited(1, &types), delimited(2, object)].concat()
}
