package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane" // registers every built-in type in legacyscheme
)

// identity identifies the object of a change.
type identity struct {
	Resource  resource `json:"resource"`
	Namespace *string  `json:"namespace"` // null for cluster-scoped objects
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
}

type resource struct {
	Group  string `json:"group"`
	Plural string `json:"plural"`
}

// object is a stored value: its identity, and the JSON that a client would receive.
type object struct {
	identity
	json json.RawMessage
}

// protobufMark is the prefix of values that the API server stores as protobuf: built-in kinds. Others are stored as
// JSON.
var protobufMark = []byte("k8s\x00")

var jsonSerializer = k8sjson.NewSerializerWithOptions(
	k8sjson.DefaultMetaFactory, legacyscheme.Scheme, legacyscheme.Scheme, k8sjson.SerializerOptions{})

// decode reads a stored value. The value does not contain its revision, so it is added, as the API server does.
func decode(pair *mvccpb.KeyValue) (*object, error) {
	stored, kind, err := decodeStored(pair.Value)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	fields, err := meta.Accessor(stored)
	if err != nil {
		return nil, fmt.Errorf("%s without metadata: %w", kind, err)
	}
	fields.SetResourceVersion(strconv.FormatInt(pair.ModRevision, 10))
	encoded, err := encode(stored, kind)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	decoded := &object{json: bytes.TrimSpace(encoded)}
	decoded.Resource = resource{kind.Group, plural(string(pair.Key), kind)}
	if namespace := fields.GetNamespace(); namespace != "" {
		decoded.Namespace = &namespace
	}
	decoded.Name = fields.GetName()
	decoded.UID = string(fields.GetUID())
	return decoded, nil
}

// decodeStored returns built-in kinds in their internal form, with the defaults that the API server sets on every read,
// and all others unchanged.
func decodeStored(value []byte) (runtime.Object, schema.GroupVersionKind, error) {
	if bytes.HasPrefix(value, protobufMark) {
		stored, kind, err := legacyscheme.Codecs.UniversalDecoder().Decode(value, nil, nil)
		if err != nil {
			return nil, schema.GroupVersionKind{}, err
		}
		return stored, *kind, nil
	}
	stored := &unstructured.Unstructured{}
	if err := stored.UnmarshalJSON(value); err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	return stored, stored.GroupVersionKind(), nil
}

func encode(stored runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	if stored, ok := stored.(*unstructured.Unstructured); ok {
		return stored.MarshalJSON()
	}
	encoder := legacyscheme.Codecs.EncoderForVersion(jsonSerializer, kind.GroupVersion())
	return runtime.Encode(encoder, stored)
}

// plural returns the name of the resource in URLs. For custom resources, the key contains it after the group. The keys
// of built-in kinds are irregular (minions, services/specs), but the plurals of their names are not.
func plural(key string, kind schema.GroupVersionKind) string {
	parts := strings.Split(strings.TrimPrefix(key, registry), "/")
	if len(parts) > 2 && parts[0] == kind.Group {
		return parts[1]
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind)
	return guess.Resource
}
