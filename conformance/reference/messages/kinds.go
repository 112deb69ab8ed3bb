package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// kind is a built-in kind with its Go type.
type kind struct {
	schema.GroupVersionKind
	goType reflect.Type
}

func (k kind) String() string {
	return fmt.Sprintf("%s/%s", k.GroupVersion(), k.Kind)
}

// known contains all built-in types.
var known = func() *runtime.Scheme {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
	metadata := schema.GroupVersion{Group: "meta.k8s.io", Version: "v1"}
	known.AddKnownTypes(metadata, &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{})
	return known
}()

// kinds returns the kinds of responses of an API server, in a fixed order: objects, their lists, and Status.
func kinds() []kind {
	var found []kind
	for gvk, goType := range known.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || !isAnswer(gvk, goType) {
			continue
		}
		found = append(found, kind{gvk, goType})
	}
	slices.SortFunc(found, func(one, other kind) int { return strings.Compare(one.String(), other.String()) })
	return found
}

// isAnswer returns true if a type is registered under its own kind. The options of requests, and some others, are in
// every group.
func isAnswer(gvk schema.GroupVersionKind, goType reflect.Type) bool {
	if goType == reflect.TypeFor[metav1.Status]() {
		return gvk.Group == ""
	}
	if goType == reflect.TypeFor[metav1.PartialObjectMetadata]() || goType == reflect.TypeFor[metav1.PartialObjectMetadataList]() {
		return gvk.Group == "meta.k8s.io" && gvk.Version == "v1"
	}
	if goType.PkgPath() == reflect.TypeFor[metav1.Status]().PkgPath() {
		return false
	}
	_, hasObjectMeta := goType.FieldByName("ObjectMeta")
	_, hasListMeta := goType.FieldByName("ListMeta")
	return hasObjectMeta || hasListMeta
}
