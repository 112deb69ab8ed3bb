//! Builders of protobuf messages.

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

/// Creates a standalone object with its envelope.
pub(crate) fn enveloped(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let types = [text(1, api_version), text(2, kind)].concat();
    [b"k8s\0".to_vec(), delimited(1, &types), delimited(2, object)].concat()
}

/// Creates a record of a watch with its length.
pub(crate) fn event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let event = [text(1, event_type), delimited(2, &delimited(1, object))].concat();
    [&(event.len() as u32).to_be_bytes()[..], &event].concat()
}

/// Returns the message within the envelope that Go has written.
pub(crate) fn bare(enveloped: &[u8]) -> &[u8] {
    let begin = 6 + usize::from(enveloped[5]);
    let mut rest = enveloped[begin..].strip_prefix(&[0x12]).expect("the object comes after its kind");
    let (mut length, mut place) = (0, 0);
    while let [byte, after @ ..] = rest {
        length |= usize::from(byte & 0x7f) << (7 * place);
        (place, rest) = (place + 1, after);
        if *byte < 0x80 {
            break;
        }
    }
    &rest[..length]
}
