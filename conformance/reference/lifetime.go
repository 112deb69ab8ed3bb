package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience is how long a stop may take. An API server whose etcd has gone would otherwise go on for minutes.
const patience = 10 * time.Second

// endWithStdin stops this process when its standard input ends, as it does when the parent is gone, however it went.
func endWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// insistOnStopping ends the process by force if it still runs some time after it was asked to stop.
func insistOnStopping() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	<-asked
	time.Sleep(patience)
	fmt.Fprintln(os.Stderr, "reference: still not stopped after", patience, "- stopped by force")
	os.Exit(1)
}
