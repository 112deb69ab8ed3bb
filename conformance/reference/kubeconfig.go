package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// announce writes the kubeconfig, waits until the server is ready, and then reports readiness.
func announce(options *options, files certificates) {
	path := filepath.Join(options.dir, "kubeconfig")
	if err := writeKubeconfig(path, options.port, files); err != nil {
		fail(err)
	}
	// The check uses the announced file itself, so that the file works when the ready line is printed.
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		fail(err)
	}
	config.Timeout = time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	for !isReady(client) {
		time.Sleep(50 * time.Millisecond)
	}
	ready(path)
}

func isReady(client kubernetes.Interface) bool {
	answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
	return err == nil && string(answer) == "ok"
}

// writeKubeconfig writes a kubeconfig with two users for the same administrator: one with a token, which is the
// default, and one with a client certificate.
func writeKubeconfig(path string, port int, files certificates) error {
	var authority, admin, adminKey []byte
	for target, source := range map[*[]byte]string{
		&authority: files.authority, &admin: files.admin, &adminKey: files.adminKey,
	} {
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		*target = content
	}
	config := api.NewConfig()
	config.Clusters["reference"] = &api.Cluster{
		Server:                   fmt.Sprintf("https://127.0.0.1:%d", port),
		CertificateAuthorityData: authority,
	}
	config.AuthInfos["token"] = &api.AuthInfo{Token: token}
	config.AuthInfos["certificate"] = &api.AuthInfo{ClientCertificateData: admin, ClientKeyData: adminKey}
	config.Contexts["reference"] = &api.Context{Cluster: "reference", AuthInfo: "token"}
	config.Contexts["reference-certificate"] = &api.Context{Cluster: "reference", AuthInfo: "certificate"}
	config.CurrentContext = "reference"
	return clientcmd.WriteToFile(*config, path)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "reference:", err)
	os.Exit(1)
}
