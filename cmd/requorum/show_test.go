package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// madeBackup is the manifest of a synthetic backup.
func madeBackup() *snapshot.Manifest {
	t := repository.TimelineID{ClusterID: 7, N: 1}
	return &snapshot.Manifest{
		ID: "20260102T060000Z-0a1b2c", Timeline: t, Started: time.Date(2026, 1, 2, 6, 0, 0, 0, time.UTC),
		Object: snapshot.StoredObject{Name: repository.SnapshotName(t, "20260102T060000Z-0a1b2c", 2, true), Encoding: codec.Encoding{Codecs: []string{codec.Zstd, codec.Age}}},
		Source: snapshot.Source{Version: "3.6.1"},
		Synthesis: &snapshot.Synthesis{Base: "20260102T000000Z-aaaaaa", BaseIndex: 10, Origin: "20260101T010000Z-bbbbbb", Generation: 3, Entries: 25,
			CheckpointHashesEqual: 1},
	}
}

// What show says of a synthetic backup: what it was made from, and no member; and
// by hand the object that the manifest names.
func TestShowSynthetic(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out)
	m := madeBackup()
	showSource(table, m)
	require.NoError(t, table.flush())
	for _, want := range []string{"synthetic from 20260102T000000Z-aaaaaa (raft index 10) and the 25 entries", "3 replays after 20260101T010000Z-bbbbbb", "equal to 1 hash that"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "Read from") || strings.Contains(out.String(), "0000000000000000") {
		t.Errorf("it names a member:\n%s", out.String())
	}
	if got := manual(m); got != "age -d -i IDENTITY snapshot-2.zst.age | zstd -d -o snapshot.db" {
		t.Error(got)
	}
	raw, err := json.Marshal(listedBackup{Manifest: m})
	if err != nil || !strings.Contains(string(raw), `"synthesis":{"base":"20260102T000000Z-aaaaaa"`) || !strings.Contains(string(raw), `"source":{"version":"3.6.1"`) {
		t.Errorf("%s, %v", raw, err)
	}
}

// The list says where each backup came from.
func TestListSynthetic(t *testing.T) {
	var out bytes.Buffer
	m := madeBackup()
	read := *m
	read.ID, read.Synthesis, read.Source.Name = "20260102T000000Z-aaaaaa", nil, "m1"
	g := &globals{environment: environment{stdout: &out}}
	err := g.tableCatalog(catalogReport{Timelines: []repository.Timeline{{ID: m.Timeline, Reason: "test"}}, Backups: []listedBackup{{Manifest: &read}, {Manifest: m}}})
	require.NoError(t, err)
	if s := out.String(); !strings.Contains(s, "SOURCE") || !strings.Contains(s, " m1 ") || !strings.Contains(s, " synthetic from "+read.ID+" ") {
		t.Error(s)
	}
}
