package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// faultClient follows config maps with a shared informer with default settings. It prints each event of its handler, each
// error that the library reports, and on request the contents of its cache, as one line of JSON each.
func faultClient(arguments []string) error {
	flags := flag.NewFlagSet("fault-client", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer()
	var lock sync.Mutex
	output := json.NewEncoder(os.Stdout)
	say := func(line any) {
		lock.Lock()
		defer lock.Unlock()
		if err := output.Encode(line); err != nil {
			fail(err)
		}
	}
	err = informer.SetWatchErrorHandler(func(reflector *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(context.Background(), reflector, err)
		say(map[string]any{"doubt": err.Error()})
	})
	if err != nil {
		return err
	}
	printEvent := func(eventType string, object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		line := identityOf(object)
		line["event"] = eventType
		say(line)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { printEvent("applied", object) },
		UpdateFunc: func(_, object any) { printEvent("applied", object) },
		DeleteFunc: func(object any) { printEvent("deleted", object) },
	})
	if err != nil {
		return err
	}
	go informer.RunWithContext(context.Background())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		all := []map[string]any{}
		for _, object := range informer.GetStore().List() {
			all = append(all, identityOf(object))
		}
		say(map[string]any{"cache": all})
	}
	return nil
}

// identityOf returns the fields of an output line that identify an object and its version.
func identityOf(object any) map[string]any {
	meta, ok := object.(metav1.Object)
	if !ok {
		return map[string]any{}
	}
	return map[string]any{
		"name": meta.GetName(), "namespace": meta.GetNamespace(), "uid": meta.GetUID(), "version": meta.GetResourceVersion(),
	}
}
