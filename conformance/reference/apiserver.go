package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// token is the administrator's token. It gives access only to a test server on this machine.
const token = "reference-token"

// runAPIServer runs a kube-apiserver on the etcd of the options until it is stopped.
func runAPIServer(options *options) error {
	if options.port == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		options.port = port
	}
	files, err := certificatesIn(options.certificates)
	if err != nil {
		return err
	}
	tokens := filepath.Join(options.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}

	go insistOnStopping()
	go announce(options, files)
	command := app.NewAPIServerCommand()
	// The caller's flags come last, so that they override the others.
	command.SetArgs(append(apiServerFlags(options, files, tokens), options.apiServer...))
	if code := cli.Run(command); code != 0 {
		return fmt.Errorf("kube-apiserver ended with code %d", code)
	}
	return nil
}

func apiServerFlags(options *options, files certificates, tokens string) []string {
	return []string{
		"--etcd-servers=" + options.etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", options.port),
		"--tls-cert-file=" + files.server,
		"--tls-private-key-file=" + files.serverKey,
		"--client-ca-file=" + files.authority,
		"--token-auth-file=" + tokens,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://reference.test",
		"--service-account-key-file=" + files.serviceAccountKey,
		"--service-account-signing-key-file=" + files.serviceAccountKey,
		"--service-cluster-ip-range=10.0.0.0/24",
		// No controllers run: no service account would be created for pods, and nothing reads the endpoints of the API
		// servers themselves.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}
}
