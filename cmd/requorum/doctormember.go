package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/schedule/space"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/walfile"
)

// examineMember looks at a member's files, without changing or locking any.
func (e *examination) examineMember() {
	o := e.options
	wal := cmp.Or(o.walDir, filepath.Join(o.dataDir, "member", "wal"))
	log, err := walfile.Open(wal)
	if err != nil {
		next := e.orKey("give the member's data directory, and its --wal-dir where it has one", "write the member's data directory to member.data-dir, and its --wal-dir to member.wal-dir where it has one")
		if errors.Is(err, fs.ErrPermission) {
			next = "let " + e.orKey("the archiver's", "the agent's") + " user read it: docs/archive.md has the ways"
		}
		e.failed("log "+wal, err, next)
	} else {
		e.examineIdentity(wal, log.Identity())
		if err := log.Close(); err != nil {
			e.failed("log "+wal, err, "look at the disk that it is on")
		}
	}
	if o.dataDir != "" {
		e.examineDatabase(filepath.Join(o.dataDir, "member", "snap", "db"))
	}
}

// examineIdentity holds the log against those who answer.
func (e *examination) examineIdentity(wal string, id walfile.Identity) {
	check := "log " + wal
	whose := fmt.Sprintf("of member %s of cluster %s", snapshot.ID(id.MemberID), snapshot.ID(id.ClusterID))
	switch {
	case e.survey == nil:
		e.add(checkWarn, check, "is "+whose+"; nobody answers to compare with", "")
		return
	case e.survey.ClusterID != id.ClusterID:
		e.add(checkFail, check, fmt.Sprintf("is %s, and the endpoints are of cluster %s", whose, snapshot.ID(e.survey.ClusterID)), "give the data directory and the endpoints of one cluster")
		return
	}
	for _, m := range e.survey.Members {
		if m.Err == nil && m.MemberID == id.MemberID {
			e.add(checkOK, check, "is "+whose+", which answers at "+m.Endpoint, "")
			return
		}
	}
	e.add(checkFail, check, "is "+whose+", which no endpoint leads to", "name the client URL of the member itself, no load balancer's")
}

// examineDatabase finds a database of the other byte order: etcd's files are in
// the order of the machine that wrote them.
func (e *examination) examineDatabase(path string) {
	f, err := os.Open(path)
	if err != nil {
		e.add(checkWarn, "database "+path, err.Error(), "archiving needs the log alone; a restore from this data directory needs it")
		return
	}
	defer f.Close() //nolint:errcheck // it was only read
	// Only what never changes: a running member writes the file while it is read.
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], boltMagicAt); err != nil {
		e.failed("database "+path, err, "look at the disk that it is on, and that it is the member's data directory")
		return
	}
	switch magic {
	case boltMagic:
		e.add(checkOK, "database "+path, "can be read", "")
	case [4]byte{boltMagic[3], boltMagic[2], boltMagic[1], boltMagic[0]}:
		e.add(checkFail, "database "+path, "was written on a big-endian machine", "members on such machines are not supported")
	default:
		e.add(checkFail, "database "+path, "is no bbolt database", "give the member's data directory")
	}
}

// boltMagicAt is where the first page of a bbolt file has its magic number,
// behind the page's header.
const boltMagicAt = 16

// boltMagic is that number, 0xED0CDAED, as little-endian machines write it.
var boltMagic = [4]byte{0xED, 0xDA, 0x0C, 0xED}

// examineSpool looks whether the spool has the room that it may take.
func (e *examination) examineSpool(all []sinks.Sink, limit int64) {
	dir := e.options.spoolDir
	if dir == "" {
		if len(all) != 1 {
			return // it depends on the repository
		}
		var err error
		if dir, err = defaultSpoolDir(e.getenv, e.options.dataDir+"\n"+e.options.walDir+"\n"+all[0].String()); err != nil {
			e.failed("spool", err, "name a folder with "+e.orKey("--spool-dir", "archive.spool-dir"))
			return
		}
	}
	free, known, err := space.Free(dir)
	switch {
	case err != nil:
		e.failed("spool "+dir, err, "give the folder to "+e.orKey("the archiver's", "the agent's")+" user, or name another one with "+e.orKey("--spool-dir", "archive.spool-dir"))
	case !known:
		e.add(checkOK, "spool "+dir, "its free space cannot be told here", "")
	case free < limit:
		e.add(checkWarn, "spool "+dir, fmt.Sprintf("%s free, less than its bound of %s", size(free), size(limit)), e.orKey("a smaller --spool-limit, or a --spool-dir with more room", "a smaller archive.spool-limit, or an archive.spool-dir with more room"))
	default:
		e.add(checkOK, "spool "+dir, fmt.Sprintf("%s free for at most %s", size(free), size(limit)), "")
	}
}

// existing is a folder, or the nearest one above it that there is.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
