package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startEtcd starts an etcd with one member, and returns it with its client URL when it accepts requests.
func startEtcd(dir string, port int, progress time.Duration) (*embed.Etcd, string, error) {
	client, err := loopback(port)
	if err != nil {
		return nil, "", err
	}
	peer, err := loopback(0)
	if err != nil {
		return nil, "", err
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.WatchProgressNotifyInterval = progress
	config.QuotaBackendBytes = 8 << 30
	config.UnsafeNoFsync = true // test data must survive a crash of the process, but not of the machine
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, client.String(), nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, "", fmt.Errorf("start etcd: %w", err)
	}
}

// compact makes the etcd drop every state before revision. 0 means the current revision.
func compact(ctx context.Context, etcd string, revision int64) error {
	client, err := connect(etcd)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if revision == 0 {
		if revision, err = presentRevision(ctx, client); err != nil {
			return err
		}
	}
	// Physical: after the call returns, the old states are removed, not only marked.
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact at %d: %w", revision, err)
	}
	fmt.Println("compacted", revision)
	return nil
}

func connect(etcd string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:          []string{etcd},
		DialTimeout:        patience,
		MaxCallRecvMsgSize: 256 << 20, // one response may contain many changes, each with the previous value
		Logger:             zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", etcd, err)
	}
	return client, nil
}

// presentRevision returns the revision of the last change in etcd, of any key.
func presentRevision(ctx context.Context, client *clientv3.Client) (int64, error) {
	answer, err := client.Get(ctx, registry, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("ask etcd for its revision: %w", err)
	}
	return answer.Header.Revision, nil
}

// loopback returns a plain URL on this machine. Port 0 selects a free port.
func loopback(port int) (url.URL, error) {
	if port == 0 {
		free, err := freePort()
		if err != nil {
			return url.URL{}, err
		}
		port = free
	}
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}, nil
}

// freePort requests a port from the kernel. The kernel reuses a port only after many others.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
