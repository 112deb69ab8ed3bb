package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/pager"
	clientwatch "k8s.io/client-go/tools/watch"
)

// requests records the paths of a client's requests.
type requests struct {
	http.RoundTripper
	mutex sync.Mutex
	paths []string
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mutex.Lock()
	r.paths = append(r.paths, request.URL.Path)
	r.mutex.Unlock()
	return r.RoundTripper.RoundTrip(request)
}

func discovers(config *rest.Config) *restmapper.DeferredDiscoveryRESTMapper {
	seen := &requests{}
	noted := rest.CopyConfig(config)
	noted.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.RoundTripper = next; return seen })
	client := discovery.NewDiscoveryClientForConfigOrDie(noted)
	groups, lists, err := client.ServerGroupsAndResources()
	must("discovery", err)
	equal("discovery is aggregated: two requests are enough", seen.paths, []string{"/api", "/apis"})
	found := map[string]string{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+" "+resource.Name] = fmt.Sprint(resource.Kind, " ", resource.Namespaced, " ", resource.ShortNames)
		}
	}
	equal("it has kinds, subresources and definitions", []string{found["v1 configmaps"], found["apps/v1 deployments/scale"],
		found[gadgets.GroupVersion().String()+" gadgets"], found[gadgets.GroupVersion().String()+" gadgets/scale"]},
		[]string{"ConfigMap true [cm]", "Scale true []", "Gadget true [gdg]", "Scale true []"})
	holds("and groups with the version to use", func() bool {
		for _, group := range groups {
			if group.Name == "apps" {
				return group.PreferredVersion.Version == "v1"
			}
		}
		return false
	}(), groups)

	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	expanded, err := restmapper.NewShortcutExpander(mapper, cached, nil).ResourceFor(schema.GroupVersionResource{Resource: "gdg"})
	must("a short name", err)
	equal("a RESTMapper finds a definition by its short name", expanded, gadgets)
	// The documents of a real server follow its definitions with a delay.
	eventually("OpenAPI v3 has a definition's fields", func() bool {
		document, err := openapi3.NewRoot(client.OpenAPIV3()).GVSpec(gadgets.GroupVersion())
		if err != nil {
			return false
		}
		for name, kind := range document.Components.Schemas {
			if strings.HasSuffix(name, ".Gadget") {
				return len(kind.Properties["spec"].Properties) == 4
			}
		}
		return false
	})
	return mapper
}

// The scale of any resource with the subresource, as a horizontal autoscaler reads and writes it.
func scales(ctx context.Context, config *rest.Config, set *kubernetes.Clientset, mapper *restmapper.DeferredDiscoveryRESTMapper) {
	client, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(set.Discovery()))
	must("a scale client", err)
	one := int32(1)
	labels := map[string]string{"app": "scaled"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "scaled"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nothing"}}}}},
	}
	_, err = set.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	must("create", err)
	all := dynamic.NewForConfigOrDie(config).Resource(gadgets).Namespace(namespace)
	_, err = all.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget", "metadata": map[string]any{"name": "scaled"},
		"spec": map[string]any{"size": int64(1)}}}, metav1.CreateOptions{})
	must("create", err)
	for _, resource := range []schema.GroupVersionResource{appsv1.SchemeGroupVersion.WithResource("deployments"), gadgets} {
		read, err := client.Scales(namespace).Get(ctx, resource.GroupResource(), "scaled", metav1.GetOptions{})
		must("get the scale", err)
		equal("the scale client reads "+resource.Resource, read.Spec.Replicas, int32(1))
		read.Spec.Replicas = 3
		written, err := client.Scales(namespace).Update(ctx, resource.GroupResource(), read, metav1.UpdateOptions{})
		must("update the scale", err)
		equal("it scales "+resource.Resource, written.Spec.Replicas, int32(3))
		patched, err := client.Scales(namespace).Patch(ctx, resource, "scaled", types.MergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{})
		must("patch the scale", err)
		equal("it patches the scale of "+resource.Resource, patched.Spec.Replicas, int32(4))
		_, err = client.Scales(namespace).Update(ctx, resource.GroupResource(), read, metav1.UpdateOptions{})
		refused("it rejects an old version of "+resource.Resource, apierrors.IsConflict, err)
	}
	object, err := all.Get(ctx, "scaled", metav1.GetOptions{})
	must("get", err)
	replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	equal("a scaled custom resource is a new generation", []any{replicas, object.GetGeneration()}, []any{int64(4), int64(3)})
	must("delete", all.Delete(ctx, "scaled", metav1.DeleteOptions{}))
	must("delete", set.AppsV1().Deployments(namespace).Delete(ctx, "scaled", metav1.DeleteOptions{}))
}

func pagesByPager(ctx context.Context, set *kubernetes.Clientset) {
	maps := set.CoreV1().ConfigMaps(namespace)
	for n := range 7 {
		_, err := maps.Create(ctx, configMap(fmt.Sprint("page", n), "1"), metav1.CreateOptions{})
		must("create", err)
	}
	asked := 0
	list := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		asked++
		return maps.List(ctx, options)
	}))
	list.PageSize = 3
	var names []string
	err := list.EachListItem(ctx, metav1.ListOptions{LabelSelector: "app"}, func(object runtime.Object) error {
		names = append(names, object.(*corev1.ConfigMap).Name)
		return nil
	})
	must("a pager", err)
	equal("a pager has each item once, in their order, page by page", []any{names, asked},
		[]any{[]string{"page0", "page1", "page2", "page3", "page4", "page5", "page6"}, 3})
	// Any version: a real server responds from its cache, also with pages.
	whole, paged, err := list.List(ctx, metav1.ListOptions{LabelSelector: "app", ResourceVersion: "0"})
	must("a pager's list", err)
	holds("a pager's list from any version", whole != nil, paged)
	must("delete", maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app"}))
}

// The server ends the watch each second, and the watcher receives each event once.
func retriesWatches(ctx context.Context, set *kubernetes.Clientset) {
	maps := set.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	must("list", err)
	var mutex sync.Mutex
	var versions []string
	one := int64(1)
	follower, err := clientwatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			mutex.Lock()
			versions = append(versions, options.ResourceVersion)
			mutex.Unlock()
			options.TimeoutSeconds, options.LabelSelector = &one, "app=retried"
			return maps.Watch(ctx, options)
		},
	})
	must("a RetryWatcher", err)
	defer follower.Stop()
	log := &eventLog{}
	go func() {
		for event := range follower.ResultChan() {
			object, ok := event.Object.(metav1.Object)
			if !ok {
				log.add(string(event.Type), fmt.Sprint(event.Object))
			} else if event.Type != watch.Bookmark {
				log.add(string(event.Type), object.GetName())
			}
		}
	}()
	watched := func(count int) func() bool {
		return func() bool {
			mutex.Lock()
			defer mutex.Unlock()
			return len(versions) >= count
		}
	}
	eventually("a RetryWatcher watches", watched(1))
	made, err := maps.Create(ctx, configMap("retried", "1"), metav1.CreateOptions{})
	must("create", err)
	eventually("it watches again after the server ended the watch", watched(2))
	made.Data["value"] = "2"
	_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	must("update", err)
	must("delete", maps.Delete(ctx, "retried", metav1.DeleteOptions{}))
	eventually("it receives each change once", log.is("ADDED retried", "MODIFIED retried", "DELETED retried"))
	mutex.Lock()
	defer mutex.Unlock()
	equal("it resumed at the last seen version", versions[1], made.ResourceVersion)
}

// Metadata only, in protobuf if the server supports it.
func watchesMetadata(ctx context.Context, config *rest.Config, set *kubernetes.Clientset) {
	ctx, stop := context.WithCancel(ctx)
	log := &eventLog{}
	client := metadata.NewForConfigOrDie(metadata.ConfigFor(config))
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, namespace, nil)
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	shared := factory.ForResource(secrets)
	_, err := shared.Informer().AddEventHandler(log.handler())
	must("a handler", err)
	factory.Start(ctx.Done())
	holds("a metadata informer is in sync", cache.WaitForCacheSync(ctx.Done(), shared.Informer().HasSynced), nil)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "half", Labels: map[string]string{"app": "half"}}, StringData: map[string]string{"key": "value"}}
	_, err = set.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	must("create a secret", err)
	patched, err := client.Resource(secrets).Namespace(namespace).Patch(ctx, "half", types.MergePatchType, []byte(`{"metadata":{"annotations":{"seen":"yes"}}}`), metav1.PatchOptions{})
	must("patch", err)
	equal("a metadata client patches, and receives metadata", []string{patched.Name, patched.Annotations["seen"]}, []string{"half", "yes"})
	eventually("a metadata informer receives changes", log.is("added half", "updated half"))
	cached, err := shared.Lister().ByNamespace(namespace).Get("half")
	must("its lister", err)
	held, ok := cached.(*metav1.PartialObjectMetadata)
	holds("it has labels, annotations and managed fields", ok && held.Labels["app"] == "half" && held.Annotations["seen"] == "yes" && len(held.ManagedFields) > 0, cached)
	must("delete", client.Resource(secrets).Namespace(namespace).Delete(ctx, "half", metav1.DeleteOptions{}))
	eventually("and deletions", log.is("added half", "updated half", "deleted half"))
	stop()
	factory.Shutdown()
}

// Two equal events become one with a series: the second is written by a patch.
func recordsEvents(ctx context.Context, set *kubernetes.Clientset) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	about, err := set.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("told-of", "1"), metav1.CreateOptions{})
	must("create", err)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: set.EventsV1()})
	must("a broadcaster", broadcaster.StartRecordingToSinkWithContext(ctx))
	recorder := broadcaster.NewRecorder(scheme.Scheme, "conformance.example.com/recorder")
	find := func() []string {
		list, err := set.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=told-of,reason=Tested"})
		must("list events", err)
		var found []string
		for _, event := range list.Items {
			count := int32(0)
			if event.Series != nil {
				count = event.Series.Count
			}
			found = append(found, fmt.Sprint(event.Note, " ", count))
		}
		return found
	}
	recorder.Eventf(about, nil, corev1.EventTypeNormal, "Tested", "Testing", "told %d", 1)
	eventually("a recorder writes an event", func() bool { return strings.Join(find(), ",") == "told 1 0" })
	recorder.Eventf(about, nil, corev1.EventTypeNormal, "Tested", "Testing", "told %d", 1)
	eventually("it creates a series of equal events", func() bool { return strings.Join(find(), ",") == "told 1 2" })
	broadcaster.Shutdown()
	must("delete", set.EventsV1().Events(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	must("delete", set.CoreV1().ConfigMaps(namespace).Delete(ctx, "told-of", metav1.DeleteOptions{}))
}
