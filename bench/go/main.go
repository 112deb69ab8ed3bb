// The Go part of the benchmark: the generator of its data, client-go as one of the measured clients, and
// controller-runtime as one of the controllers.
//
//	bench-go generate -out DIR -count N -seed S
//	bench-go fill -kubeconfig FILE -count N -seed S [-resource pods|widgets]
//	bench-go stamp -kubeconfig FILE -objects N -seed S -count N -rate N [-resource pods|widgets]
//	bench-go fault-client -kubeconfig FILE
//	bench-go reconcile -kubeconfig FILE -keys N -rounds N -concurrency N [-wait-us N] [-changes-during-backlog N]
//	bench-go client -kubeconfig FILE -expect N [-resource pods|widgets] [-json] [-paged] [-trim]
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("specify a command: generate, fill, stamp, client, reconcile or fault-client"))
	}
	var err error
	switch os.Args[1] {
	case "generate":
		err = generate(os.Args[2:])
	case "fill":
		err = fill(os.Args[2:])
	case "stamp":
		err = stamp(os.Args[2:])
	case "fault-client":
		err = faultClient(os.Args[2:])
	case "client":
		err = client(os.Args[2:])
	case "reconcile":
		err = reconcile(os.Args[2:])
	default:
		err = fmt.Errorf("unknown command: %s; use generate, fill, stamp, client, reconcile or fault-client", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench-go:", err)
	os.Exit(1)
}
