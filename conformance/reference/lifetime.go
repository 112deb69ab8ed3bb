package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience is the timeout of a shutdown. An API server without its etcd would otherwise continue for minutes.
const patience = 10 * time.Second

// endWithStdin stops this process when its standard input is closed. The system closes it when the parent process ends,
// whatever the reason.
func endWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// insistOnStopping kills the process if it still runs some time after the request to stop.
func insistOnStopping() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	<-asked
	time.Sleep(patience)
	fmt.Fprintln(os.Stderr, "reference: still not stopped after", patience, "- stopped by force")
	os.Exit(1)
}
