package main

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const group = "go.conformance.example.com"

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
)

const definition = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "widgets.go.conformance.example.com"},
  "spec": {
    "group": "go.conformance.example.com", "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{
      "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}
    }]
  }
}`

func define(ctx context.Context, config *rest.Config) {
	undefine(ctx, config)
	client := dynamic.NewForConfigOrDie(config)
	object := &unstructured.Unstructured{}
	must("the definition", json.Unmarshal([]byte(definition), &object.Object))
	_, err := client.Resource(definitions).Create(ctx, object, metav1.CreateOptions{})
	must("create a definition", err)
	eventually("a definition's resource is served", func() bool {
		_, err := client.Resource(widgets).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err == nil
	})
}

func undefine(ctx context.Context, config *rest.Config) {
	all := dynamic.NewForConfigOrDie(config).Resource(definitions)
	name := "widgets." + group
	err := all.Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	must("delete the definition", err)
	eventually("the definition is deleted", func() bool {
		_, err := all.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func newWidget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     map[string]any{"size": size},
	}}
}

func dynamics(ctx context.Context, config *rest.Config) {
	ctx, stop := context.WithCancel(ctx)
	client := dynamic.NewForConfigOrDie(config)
	mine := client.Resource(widgets).Namespace(namespace)
	made, err := mine.Create(ctx, newWidget("dynamic", 1), metav1.CreateOptions{})
	must("create", err)
	equal("the dynamic client creates", made.GetGeneration(), int64(1))

	log := &eventLog{}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	shared := factory.ForResource(widgets)
	_, err = shared.Informer().AddEventHandler(log.handler())
	must("a handler", err)
	factory.Start(ctx.Done())
	holds("a dynamic informer is in sync", cache.WaitForCacheSync(ctx.Done(), shared.Informer().HasSynced), nil)

	changed, err := mine.Patch(ctx, "dynamic", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	must("patch", err)
	equal("a change of the spec increases the generation", changed.GetGeneration(), int64(2))
	must("the status", unstructured.SetNestedField(changed.Object, true, "status", "ready"))
	must("the spec", unstructured.SetNestedField(changed.Object, int64(99), "spec", "size"))
	written, err := mine.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	must("update the status", err)
	size, _, _ := unstructured.NestedInt64(written.Object, "spec", "size")
	ready, _, _ := unstructured.NestedBool(written.Object, "status", "ready")
	equal("the status is written separately from the spec", []any{size, ready, written.GetGeneration()}, []any{int64(2), true, int64(2)})
	_, err = mine.Update(ctx, made, metav1.UpdateOptions{})
	refused("update by an old version", apierrors.IsConflict, err)
	must("delete", mine.Delete(ctx, "dynamic", metav1.DeleteOptions{}))
	eventually("a dynamic informer receives changes",
		log.is("added dynamic", "updated dynamic", "updated dynamic", "deleted dynamic"))
	stop()
	factory.Shutdown()
}
