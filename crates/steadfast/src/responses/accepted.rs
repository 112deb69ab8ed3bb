//! Values of the `Accept` header: JSON only, or protobuf with JSON as a fallback.

/// Objects, in a list or a stream.
pub(super) const OBJECTS: [&str; 2] = ["application/json", "application/vnd.kubernetes.protobuf,application/json"];
/// Metadata in a stream.
pub(super) const METADATA: [&str; 2] = [
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
];
/// Metadata in a list.
pub(super) const METADATA_LIST: [&str; 2] = [
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];
/// List of which only the versions are used: metadata, or full objects from servers that cannot return metadata.
pub(super) const VERSIONS: [&str; 2] = [
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
     application/vnd.kubernetes.protobuf,\
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
];
