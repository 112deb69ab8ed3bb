package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// options contains the validated command line.
type options struct {
	dir          string
	certificates string
	port         int
	etcd         string
	etcdPort     int
	onlyEtcd     bool
	progress     time.Duration
	history      string
	compact      bool
	revision     int64
	whileStdin   bool
	apiServer    []string
}

type mode int

const (
	modeAPIServer mode = iota
	modeEtcd
	modeHistory
	modeCompact
)

func (o *options) mode() mode {
	switch {
	case o.history != "":
		return modeHistory
	case o.compact:
		return modeCompact
	case o.onlyEtcd:
		return modeEtcd
	default:
		return modeAPIServer
	}
}

func parse(arguments []string) (*options, error) {
	o := &options{}
	set := flag.NewFlagSet("reference", flag.ContinueOnError)
	set.StringVar(&o.dir, "dir", "", "data folder, which can be reused (default: a new temporary one)")
	set.StringVar(&o.certificates, "certificates", "", "folder of the keys and certificates; API servers that share it have the same identity (default: in -dir)")
	set.IntVar(&o.port, "port", 0, "HTTPS port of the API server (default: a free one)")
	set.StringVar(&o.etcd, "etcd", "", "URL of a running etcd (default: start one)")
	set.IntVar(&o.etcdPort, "etcd-port", 0, "client port of etcd (default: a free one)")
	set.BoolVar(&o.onlyEtcd, "only-etcd", false, "start only etcd")
	set.DurationVar(&o.progress, "progress", 5*time.Second, "interval of etcd's progress notifications to the API server (kubeadm: 5s; etcd's default: 10m)")
	set.StringVar(&o.history, "history", "", "write all changes of the etcd at -etcd to this file, until stopped")
	set.BoolVar(&o.compact, "compact", false, "compact the etcd at -etcd")
	set.Int64Var(&o.revision, "revision", 0, "with -compact: drop states before this revision (default: the current one)")
	set.BoolVar(&o.whileStdin, "while-stdin", false, "exit when standard input is closed, so that no process remains after a killed parent")
	if err := set.Parse(arguments); err != nil {
		return nil, err
	}
	o.apiServer = set.Args()
	if err := o.check(); err != nil {
		fmt.Fprintln(set.Output(), "reference:", err)
		return nil, err
	}
	return o, nil
}

func (o *options) check() error {
	switch mode := o.mode(); {
	case (mode == modeHistory || mode == modeCompact) && o.etcd == "":
		return errors.New("-history and -compact need -etcd URL")
	case mode == modeEtcd && o.etcd != "":
		return errors.New("-only-etcd starts an etcd, -etcd names a running one: choose one")
	case mode != modeAPIServer && len(o.apiServer) > 0:
		return fmt.Errorf("no API server is started here to take %q", o.apiServer)
	}
	return nil
}

// makeDir creates the folders for data and certificates.
func (o *options) makeDir() error {
	if o.dir == "" {
		temporary, err := os.MkdirTemp("", "reference-")
		if err != nil {
			return err
		}
		o.dir = temporary
	}
	// Absolute, because the path of its kubeconfig is passed to processes with other working folders.
	absolute, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = absolute
	if o.certificates == "" {
		o.certificates = filepath.Join(o.dir, "certificates")
	}
	return errors.Join(os.MkdirAll(o.dir, 0o700), os.MkdirAll(o.certificates, 0o700))
}
