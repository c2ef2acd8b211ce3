package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap/snappb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/walfile"
)

// largestSnap is more than a .snap file has, which without etcd 2's keys is little
// more than the members: it is read into memory.
const largestSnap = 256 << 20

// checkSnaps looks at the files that say where the log may begin (*.snap). They
// are read by hand: etcd's own reader renames those that it finds broken. log is
// nil where it could not be read.
func (d *dataDir) checkSnaps(ctx context.Context, log *walfile.Summary) error {
	folder := filepath.Dir(d.db)
	names, err := d.beside(".snap")
	switch {
	case err != nil:
		return d.took(ctx, report.Checksum, folder, report.Check{}, err)
	case len(names) == 0:
		return nil
	}
	_, err = d.check(ctx, report.Checksum, folder, func(c *report.Check) error {
		c.Compared = fmt.Sprintf("the snapshots of raft in %s with the CRC in it, and the term and index with the name", counted(len(names), "file *.snap", "files *.snap, each"))
		for _, name := range names {
			d.checkSnap(c, filepath.Join(folder, name), log)
		}
		return nil
	})
	return err
}

// checkSnap looks at one of them. One that is newer than what the log knows of was
// being written at a crash: etcd goes on with the one before.
func (d *dataDir) checkSnap(c *report.Check, path string, log *walfile.Summary) {
	name := strings.TrimSuffix(filepath.Base(path), ".snap")
	info, err := os.Stat(path)
	if err == nil && info.Size() > largestSnap {
		err = fmt.Errorf("%s has %d bytes: at most %d are read", path, info.Size(), largestSnap)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		unchecked(c, err)
		return
	}
	c.Bytes += int64(len(data))
	fault := snapFault(name, data)
	var term, index uint64
	_, scanned := fmt.Sscanf(name, "%016x-%016x", &term, &index)
	switch {
	case fault == "":
		d.snaps = append(d.snaps, walfile.Mark{Index: index, Term: term})
	case scanned == nil && log != nil && index > log.Snapshot.Index:
		d.note("%s is not whole (%s), as a crash leaves one that is being written: the log does not know it, and etcd goes on without", path, fault)
	default:
		found(c, report.Finding{Kind: report.KindObject, Object: path, Text: fault})
	}
}

// castagnoli is the table of etcd's CRC.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapFault says what is wrong with a .snap file; nothing where it is as etcd
// wrote it.
func snapFault(name string, data []byte) string {
	var outer snappb.Snapshot
	var inner raftpb.Snapshot
	if err := proto.Unmarshal(data, &outer); err != nil {
		return fmt.Sprintf("it cannot be decoded: %v", err)
	}
	if len(outer.GetData()) == 0 || outer.GetCrc() == 0 {
		return "there is nothing in it"
	}
	if got := crc32.Checksum(outer.GetData(), castagnoli); got != outer.GetCrc() {
		return fmt.Sprintf("the CRC of its bytes is %08x, and %08x is in it", got, outer.GetCrc())
	}
	if err := proto.Unmarshal(outer.GetData(), &inner); err != nil {
		return fmt.Sprintf("the snapshot in it cannot be decoded: %v", err)
	}
	m := inner.GetMetadata()
	if want := fmt.Sprintf("%016x-%016x", m.GetTerm(), m.GetIndex()); want != name {
		return fmt.Sprintf("it is of term %d, index %d, which makes its name %s.snap: it was moved or copied here", m.GetTerm(), m.GetIndex(), want)
	}
	return ""
}

// checkReceived looks at the databases that a leader sent (*.snap.db) and that
// etcd has not taken for its own yet.
func (d *dataDir) checkReceived(ctx context.Context) error {
	names, err := d.beside(".snap.db")
	if err != nil {
		return d.took(ctx, report.Structure, filepath.Dir(d.db), report.Check{}, err)
	}
	for _, name := range names {
		path := filepath.Join(filepath.Dir(d.db), name)
		if _, err := d.checkStructure(ctx, path, path, nil); err != nil {
			return err
		}
	}
	return nil
}

// beside are the files beside the database whose names end so.
func (d *dataDir) beside(suffix string) ([]string, error) {
	list, err := os.ReadDir(filepath.Dir(d.db))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the structure rung tells
	}
	var names []string
	for _, e := range list {
		if strings.HasSuffix(e.Name(), suffix) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}
