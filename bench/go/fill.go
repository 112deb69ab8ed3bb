package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Number of concurrent requests.
const fillers = 16

// fill writes the generated objects to a real server, as their controllers and kubelets would: first the spec, then the
// status. The server derives their managedFields from these writes.
func fill(arguments []string) error {
	flags := flag.NewFlagSet("fill", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server")
	count := flags.Int("count", 1000, "how many")
	seed := flags.Uint64("seed", 1, "seed of the objects")
	resource := flags.String("resource", "pods", "pods or widgets")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := writing(*kubeconfig)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := makeNamespaces(ctx, config); err != nil {
		return err
	}
	write, err := writePod(config)
	if *resource == "widgets" {
		write, err = writeWidget(ctx, config)
	}
	if err != nil {
		return err
	}
	return writeAll(ctx, newCluster(*seed), *count, write)
}

// writing returns a client configuration without a rate limit, for writes to a real server.
func writing(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	// The server warns about each generated pod, because two of its containers have the same port.
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

func writeAll(ctx context.Context, cluster *cluster, count int, write func(context.Context, *corev1.Pod) error) error {
	pods, errs := make(chan *corev1.Pod, fillers), make(chan error, fillers)
	for range fillers {
		go func() {
			var err error
			for pod := range pods {
				if err == nil {
					err = write(ctx, pod)
				}
			}
			errs <- err
		}()
	}
	for range count {
		pod := cluster.next()
		pod.UID, pod.ResourceVersion, pod.ManagedFields = "", "", nil
		pod.CreationTimestamp = metav1.Time{}
		pods <- pod
	}
	close(pods)
	var failed error
	for range fillers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

func makeNamespaces(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for number := range namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%d", number)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func writePod(config *rest.Config) (func(context.Context, *corev1.Pod) error, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, pod *corev1.Pod) error {
		created, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
		if err != nil {
			return err
		}
		created.Status = pod.Status
		_, err = client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"})
		return err
	}, nil
}

// writeWidget also creates the custom resource definition. Widgets have no subresources, so one write is enough.
func writeWidget(ctx context.Context, config *rest.Config) (func(context.Context, *corev1.Pod) error, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + widgets.Group},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	if _, err := client.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	// The resource is served shortly after its definition.
	for attempt := 0; ; attempt++ {
		if _, err = client.Resource(widgets).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			break
		}
		if attempt == 150 {
			return nil, err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return func(ctx context.Context, pod *corev1.Pod) error {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			return err
		}
		widget := &unstructured.Unstructured{Object: object}
		widget.SetAPIVersion(widgets.GroupVersion().String())
		widget.SetKind("Widget")
		_, err = client.Resource(widgets).Namespace(pod.Namespace).Create(ctx, widget, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
		return err
	}, nil
}
