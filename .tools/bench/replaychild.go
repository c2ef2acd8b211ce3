package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/walfile"
)

// replayResult is what the processes that apply a log write into their reports.
type replayResult struct {
	Entries  int           `json:"entries"`
	Revision int64         `json:"revision"`
	Took     time.Duration `json:"took"` // the applying alone
}

func (r replayResult) write(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// replayMain is "bench replay ENGINE SYNC BASE WAL SCRATCH REPORT": it replays a log onto
// a copy of a database, by etcd's applier or in bulk, and syncs the result where SYNC is true.
func replayMain(ctx context.Context, args []string) (err error) {
	if len(args) != 6 {
		return errors.New("replay: want ENGINE SYNC BASE WAL SCRATCH REPORT")
	}
	base, dir, scratch, report := args[2], args[3], args[4], args[5]
	start := time.Now()
	if err := copyFile(base, scratch); err != nil {
		return err
	}
	log, err := walfile.Open(dir)
	if err != nil {
		return err
	}
	var eng engine.Replayer
	out := scratch
	if walreplay.ReplayEngine(args[0]) == walreplay.BulkEngine {
		out = scratch + ".bulk"
		eng, err = engine.OpenBulk(ctx, scratch, out, engine.Options{})
	} else {
		eng, err = engine.Open(ctx, scratch, engine.Options{})
	}
	if err != nil {
		return err
	}
	first, _ := eng.Applied()
	stopped, err := engine.Run(ctx, eng, log.Entries(ctx, first+1), engine.RunOptions{})
	if err := errors.Join(err, eng.Close()); err != nil {
		return err
	}
	if args[1] == "true" {
		if err := safedir.Sync(out); err != nil {
			return err
		}
	}
	result := replayResult{Entries: int(stopped.Index - first), Revision: stopped.Revision, Took: time.Since(start)}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return result.write(report)
}

// clientMain is "bench client WAL DIR N REPORT": it makes the first N puts of a
// log through a client into an embedded server, as tools do that archive
// events.
func clientMain(ctx context.Context, args []string) (err error) {
	if len(args) != 4 {
		return errors.New("client: want WAL DIR N REPORT")
	}
	dir, dataDir, report := args[0], args[1], args[3]
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	log, err := walfile.Open(dir)
	if err != nil {
		return err
	}
	member, err := newMember("embedded", dataDir)
	if err != nil {
		return err
	}
	server, err := store.StartMember(ctx, store.MemberConfig{
		Name: member.name, DataDir: dataDir, ListenClientURLs: []string{member.clientURL}, ListenPeerURLs: []string{member.peerURL},
	})
	if err != nil {
		return err
	}
	defer server.Kill()
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	result := replayResult{}
	start := time.Now()
	for e, err := range log.Entries(ctx, 1) {
		if err != nil {
			return err
		}
		var r pb.InternalRaftRequest
		if len(e.Data) == 0 || proto.Unmarshal(e.Data, &r) != nil || r.Put == nil {
			continue
		}
		put, err := client.Put(ctx, string(r.Put.Key), string(r.Put.Value))
		if err != nil {
			return err
		}
		result.Revision = put.Header.Revision
		if result.Entries++; result.Entries == n {
			break
		}
	}
	result.Took = time.Since(start)
	if result.Entries < n {
		return fmt.Errorf("the log has %d puts, not %d", result.Entries, n)
	}
	return result.write(report)
}
