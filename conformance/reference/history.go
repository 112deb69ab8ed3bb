package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// registry is the prefix of all keys of the API server.
const registry = "/registry/"

// line is one change, as a line of the history's file.
type line struct {
	Revision int64  `json:"revision"`
	AtMillis int64  `json:"at_ms"` // since 1970, when this process received the change
	Key      string `json:"key"`
	Deleted  bool   `json:"deleted"`
	identity
	Object   json.RawMessage `json:"object"`   // null in a deletion
	Previous json.RawMessage `json:"previous"` // null in a creation
}

// writeHistory writes every change of the etcd since the first one to a file. After it is stopped, it writes all
// changes up to that time, and returns.
//
// It reads from the etcd, not from the API server, because the history is the reference for the API server's output.
// Therefore it continues while the API server is down, and after restarts of the etcd.
func writeHistory(stop context.Context, etcd, path string) error {
	// The file is truncated each time, because the history starts with the first change.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	client, err := connect(etcd)
	if err != nil {
		return err
	}
	defer client.Close()

	watching, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := client.Watch(watching, registry,
		clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(1), clientv3.WithCreatedNotify())
	return (&historian{out: file, path: path, client: client, answers: answers}).follow(stop, watching)
}

type historian struct {
	out     io.Writer
	path    string
	client  *clientv3.Client
	answers clientv3.WatchChan
	// reached is the revision up to which all changes have been written.
	reached int64
	created bool
}

func (h *historian) follow(stop, watching context.Context) error {
	for {
		select {
		case answer, open := <-h.answers:
			if !open {
				return errors.New("etcd ended the watch")
			}
			if err := h.take(answer); err != nil {
				return err
			}
		case <-stop.Done():
			return h.finish(watching)
		}
	}
}

// finish continues until all changes before the call have been written.
func (h *historian) finish(watching context.Context) error {
	limit, cancel := context.WithTimeout(watching, patience)
	defer cancel()
	end, err := presentRevision(limit, h.client)
	if err != nil {
		return err
	}
	// Revisions after the last change under the prefix are reported only on request.
	ask := time.NewTicker(100 * time.Millisecond)
	defer ask.Stop()
	for h.reached < end {
		if err := h.client.RequestProgress(watching); err != nil {
			return fmt.Errorf("ask etcd how far it is: %w", err)
		}
		select {
		case answer, open := <-h.answers:
			if !open {
				return errors.New("etcd ended the watch")
			}
			if err := h.take(answer); err != nil {
				return err
			}
		case <-ask.C:
		case <-limit.Done():
			return fmt.Errorf("the history ends at revision %d, the etcd is at %d", h.reached, end)
		}
	}
	return nil
}

func (h *historian) take(answer clientv3.WatchResponse) error {
	switch err := answer.Err(); {
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("etcd has forgotten what lies before revision %d: start the history before the API server",
			answer.CompactRevision)
	case err != nil:
		return fmt.Errorf("watch etcd: %w", err)
	}
	if answer.Created && !h.created {
		h.created = true // etcd repeats this after each reconnect; only the first time is reported
		ready(h.path)
	}
	if answer.IsProgressNotify() {
		h.reached = answer.Header.Revision
		return nil
	}
	now := time.Now().UnixMilli()
	for _, event := range answer.Events {
		if err := h.write(event, now); err != nil {
			return fmt.Errorf("revision %d, %s: %w", event.Kv.ModRevision, event.Kv.Key, err)
		}
		h.reached = event.Kv.ModRevision
	}
	return nil
}

func (h *historian) write(event *clientv3.Event, now int64) error {
	entry := line{
		Revision: event.Kv.ModRevision,
		AtMillis: now,
		Key:      string(event.Kv.Key),
		Deleted:  event.Type == clientv3.EventTypeDelete,
	}
	var last *object
	if event.PrevKv != nil {
		previous, err := decode(event.PrevKv)
		if err != nil {
			return err
		}
		last, entry.Previous = previous, previous.json
	}
	if !entry.Deleted {
		present, err := decode(event.Kv)
		if err != nil {
			return err
		}
		last, entry.Object = present, present.json
	}
	if last == nil {
		return errors.New("a deletion event without the deleted object")
	}
	if last.UID == "" {
		return nil // internal objects of the API server (ranges of addresses and ports), which no client can see
	}
	entry.identity = last.identity
	encoded, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	// One write per line: concurrent readers see whole lines, and a kill loses none.
	_, err = h.out.Write(append(encoded, '\n'))
	return err
}
