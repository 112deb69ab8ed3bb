// The program reference is the reference for tests of Steadfast: a real etcd and a real kube-apiserver on loopback, and
// the history of their changes, read from the etcd itself.
//
//	reference [-dir DIR] [-port N] [-- kube-apiserver flags]    both in one process
//	reference -only-etcd [-dir DIR] [-etcd-port N]              etcd alone
//	reference -etcd URL [-dir DIR] [-port N] [-- flags]         an API server alone, on that etcd
//	reference -history FILE -etcd URL                           one JSON line for each change, to FILE
//	reference -compact -etcd URL [-revision N]                  compacts that etcd and ends
//
// Each prints one line on standard output when it is ready, and exits on SIGTERM. README.md in this folder describes
// details.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	options, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2) // parse has printed the error
	}
	if options.whileStdin {
		go endWithStdin()
	}
	if err := run(options); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(options *options) error {
	switch options.mode() {
	case modeHistory:
		stop, done := untilSignal()
		defer done()
		return writeHistory(stop, options.etcd, options.history)
	case modeCompact:
		return compact(context.Background(), options.etcd, options.revision)
	}

	if err := options.makeDir(); err != nil {
		return err
	}
	if options.etcd == "" {
		etcd, address, err := startEtcd(filepath.Join(options.dir, "etcd"), options.etcdPort, options.progress)
		if err != nil {
			return err
		}
		defer etcd.Close()
		options.etcd = address
	}
	if options.mode() == modeEtcd {
		stop, done := untilSignal()
		defer done()
		ready(options.etcd)
		<-stop.Done()
		return nil
	}
	return runAPIServer(options)
}

// ready prints the line that a parent process waits for: the address of the started server.
func ready(where string) {
	fmt.Println("ready", where)
}

func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
}
