package main

import (
	"testing"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// The way by hand names the object that the manifest names: of any attempt.
func TestManual_SecondAttempt_NamesItsObject(t *testing.T) {
	name := repository.SnapshotName(repository.TimelineID{ClusterID: 7, N: 1}, "20260102T060000Z-0a1b2c", 2, true)
	m := &snapshot.Manifest{Object: snapshot.StoredObject{Name: name, Encoding: codec.Encoding{Codecs: []string{codec.Zstd, codec.Age}}}}
	if got := manual(m); got != "age -d -i IDENTITY snapshot-2.zst.age | zstd -d -o snapshot.db" {
		t.Error(got)
	}
}
