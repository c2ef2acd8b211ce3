package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// Promise 1, the long form: images taken while everything that etcd knows goes
// on, with users, alarms and members that come and go, give no false alarm.
func TestPromise1NoFalseAlarmUnderMixedLoads(t *testing.T) {
	if !storetest.Soak() {
		t.Skip("a long test: set REQUORUM_SOAK=1")
	}
	for seed, version := range storetest.Versions() {
		t.Run(version, func(t *testing.T) {
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
			load := storetest.StartMixed(t, c, storetest.MixedOptions{Seed: uint64(seed), Observations: 4})
			var paths []string
			const images = 6
			for i := range images {
				load.WaitFor(t, float64(i+1)/images)
				path := filepath.Join(t.TempDir(), fmt.Sprint("snapshot-", i))
				saveFrom(t, c.Endpoints()[i%3], path)
				paths = append(paths, path)
			}
			load.Wait(t)
			c.StopAll()
			for _, path := range paths {
				check := run(t, open(t, path), DrillOptions{})
				t.Logf("%s %s", check.Status, check.Compared)
				if check.Status != report.Passed {
					t.Errorf("%s %v", check.Reason, check.Findings)
				}
			}
		})
	}
}

// saveFrom streams a snapshot of a member, trying until it may: authentication
// goes on and off.
func saveFrom(t *testing.T, endpoint, path string) {
	t.Helper()
	var err error
	for range 100 {
		if err = stream(t.Context(), endpoint, path); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal(err)
}

func stream(ctx context.Context, endpoint, path string) error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, Username: storetest.RootUser, Password: storetest.RootPassword, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
