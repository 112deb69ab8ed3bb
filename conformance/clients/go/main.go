// Runs client-go and controller-runtime against any server: objects, lists, watches, informers, leader election, and a
// manager with a controller as users of envtest start it.
//
//	clients KUBECONFIG
//
// Exits with 1 and prints one line at the first difference from a real API server.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "go-conformance"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clients KUBECONFIG")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must("the kubeconfig", err)
	config.QPS = -1 // disables the client's own rate limit, which is not tested
	ctx, cancel := limited()
	defer cancel()

	set := kubernetes.NewForConfigOrDie(config)
	printVersions(set)
	prepare(ctx, set)
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		fmt.Println("-- client-go, bodies in " + encoding)
		encoded := rest.CopyConfig(config)
		encoded.ContentType = encoding
		encoded.AcceptContentTypes = encoding + ",application/json"
		set := kubernetes.NewForConfigOrDie(encoded)
		objects(ctx, set)
		pages(ctx, set)
		watches(ctx, set)
		informer(ctx, set)
		applies(ctx, set)
		appliesWorkloads(ctx, set)
		pagesByPager(ctx, set)
	}
	fmt.Println("-- client-go, with default settings")
	table(ctx, set)
	elect(ctx, set)
	retriesWatches(ctx, set)
	watchesMetadata(ctx, config, set)
	recordsEvents(ctx, set)
	define(ctx, config)
	dynamics(ctx, config)
	fmt.Println("-- envtest")
	environment := install(ctx, config)
	appliesCustom(ctx, config)
	scales(ctx, config, set, discovers(config))
	tests(ctx, config)
	uninstall(ctx, config, environment)
	fmt.Println("-- controller-runtime")
	typed(ctx, config)
	manage(ctx, config)
	undefine(ctx, config)
	prepare(ctx, set)
}

func printVersions(set *kubernetes.Clientset) {
	server, err := set.Discovery().ServerVersion()
	must("the server's version", err)
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "k8s.io/client-go" || module.Path == "sigs.k8s.io/controller-runtime" {
			fmt.Print(module.Path, " ", module.Version, ", ")
		}
	}
	fmt.Printf("%s, server %s\n", runtime.Version(), server.GitVersion)
}

// Creates the namespace, and removes the objects of an earlier, killed run.
func prepare(ctx context.Context, set *kubernetes.Clientset) {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := set.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must("a namespace", err)
	}
	all := metav1.ListOptions{}
	must("empty it", set.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	must("empty it", set.CoreV1().Secrets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	must("empty it", set.AppsV1().Deployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	must("empty it", set.EventsV1().Events(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	must("empty it", set.CoordinationV1().Leases(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
}
