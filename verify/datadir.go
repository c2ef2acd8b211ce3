package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

// DataDir proves a member's data directory; walDir is its separate WAL folder,
// empty where it has none. Of a stopped member the log, the database, and what
// the two give together are looked at; of a running one the log only, since its
// database changes all the time. Files are opened read-only.
func DataDir(ctx context.Context, dir, walDir string, req Request) (*report.Report, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkMemberFolder(dir, walDir); err != nil {
		return nil, err
	}
	if walDir == "" {
		walDir = filepath.Join(dir, "member", "wal")
	}
	d := &dataDir{run: run{Request: req, report: req.newReport(dir)}, dir: dir, walDir: walDir, db: filepath.Join(dir, "member", "snap", "db")}
	err = restore.CheckMemberIdle(dir, walDir)
	running := errors.Is(err, restore.ErrInUse)
	switch {
	case err != nil && !running:
		return nil, err
	case running:
		err = d.checkRunning(ctx)
	default:
		err = d.checkStopped(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.noteNextStep("where the cluster has a quorum without this member, remove it and add it anew with an empty directory")
	return d.finish(), nil
}

// dataDir is a verification of a data directory.
type dataDir struct {
	run
	dir, walDir, db string

	files     map[string]string // as a stopped member's were when they were first looked at
	disturbed string            // why what was read of them counts no more
	changed   uint64            // the last entry of the log that may have added or removed this member
	snaps     []walfile.Mark    // of the files *.snap that are whole
	foreign   bool              // the log is of another member than the database
}

// checkStopped takes a stopped member up the rungs, as long as it stays stopped.
func (d *dataDir) checkStopped(ctx context.Context) error {
	d.files = d.look()
	var read *walfile.Summary
	steps := []struct {
		rung report.Rung
		do   func() error
	}{
		{report.Checksum, func() (err error) { read, err = d.checkLog(ctx); return err }},
		{report.Checksum, func() error { return d.checkSnaps(ctx, read) }},
		{report.Structure, func() error { return d.checkDatabase(ctx, read) }},
		{report.Structure, func() error { return d.checkReceived(ctx) }},
		{report.Replay, func() error { return d.replay(ctx) }},
	}
	for _, s := range steps {
		if !d.Rung.Includes(s.rung) {
			break
		}
		if err := d.quietly(s.do); err != nil {
			return err
		}
	}
	if d.disturbed != "" {
		d.refuseLeft()
		return nil
	}
	return d.drillRebuilt(ctx)
}

// checkLog reads the log; it is nil where it could not be read.
func (d *dataDir) checkLog(ctx context.Context) (read *walfile.Summary, err error) {
	_, err = d.check(ctx, report.Checksum, d.walDir, func(c *report.Check) error {
		c.Compared = "every record of the log with the CRC that runs through all its files, entries with their order, and the log with the database's index"
		c.Bytes = sizeOf(d.walDir)
		log, err := d.readLog(ctx)
		if err != nil {
			d.tookLog(c, err)
			return nil
		}
		read = &log
		d.compareEnds(ctx, c, log)
		return nil
	})
	return read, err
}

func (d *dataDir) checkDatabase(ctx context.Context, log *walfile.Summary) error {
	if _, err := os.Stat(d.db); errors.Is(err, fs.ErrNotExist) {
		d.add(report.Check{Rung: report.Structure, Object: d.db, Findings: []report.Finding{{Kind: report.KindMissing, Text: "it is gone"}}})
		return nil
	}
	read, err := d.readStructure(ctx, d.db, d.db, nil)
	if err != nil || log == nil {
		return err
	}
	c := &d.report.Checks[len(d.report.Checks)-1]
	d.compareSnaps(ctx, c, log)
	d.compareOwner(c, log, read)
	return nil
}

func (d *dataDir) replay(ctx context.Context) error {
	if d.foreign {
		d.add(report.Check{Rung: report.Replay, Object: d.dir, Reason: foreignReason})
		return nil
	}
	checks, err := replaying.CheckDataDir(ctx, d.dir, d.separateWAL(), replaying.Options{ScratchDir: d.ScratchDir, Progress: d.Progress, Logger: d.Logger})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.report.Checks = append(d.report.Checks, checks...)
	if err != nil {
		d.add(report.Check{Rung: report.Replay, Object: d.dir, Reason: err.Error()})
	}
	return nil
}

// readLog reads the whole log once for its order, and once more for its entries.
func (d *dataDir) readLog(ctx context.Context) (walfile.Summary, error) {
	log, err := walfile.Open(d.walDir)
	if err != nil {
		return walfile.Summary{}, err
	}
	defer log.Close() //nolint:errcheck // reading
	s, err := log.Summary(ctx)
	if err != nil {
		return s, err
	}
	if s.Torn != nil {
		d.note("%s ends at byte %d with a record that was not written to its end, as a crash leaves it: it was never acknowledged, and etcd repairs it when it starts", filepath.Join(d.walDir, s.Torn.Segment), s.Torn.Offset)
	}
	for first := s.FirstIndex; first != 0 && first <= s.LastIndex; {
		var gap *walfile.GapError
		err := error(nil)
		var e raftlog.Entry
		for e, err = range log.Entries(ctx, first) {
			if err != nil {
				break
			}
			if changesMember(e, s.Identity.MemberID) {
				d.changed = e.Index
			}
		}
		if !errors.As(err, &gap) {
			return s, err
		}
		first = gap.Next
	}
	return s, nil
}

// tookLog files an error of a log.
func (d *dataDir) tookLog(c *report.Check, err error) {
	var corrupt *walfile.CorruptError
	switch {
	case errors.As(err, &corrupt):
		found(c, report.Finding{Kind: report.KindLogCorrupt, Object: filepath.Join(corrupt.Dir, corrupt.Segment), Where: byteOf(corrupt.Offset), Text: corrupt.Err.Error()})
	case errors.Is(err, walfile.ErrNoLog), errors.Is(err, fs.ErrNotExist):
		found(c, report.Finding{Kind: report.KindMissing, Text: err.Error()})
	default:
		unchecked(c, err)
	}
}

// compareEnds holds the log's end against what it and the database say was
// there: etcd writes to its log first.
func (d *dataDir) compareEnds(ctx context.Context, c *report.Check, log walfile.Summary) {
	if log.Commit > log.LastIndex {
		found(c, report.Finding{Kind: report.KindLogTail, Where: fmt.Sprintf("index %d", log.LastIndex),
			Text: fmt.Sprintf("the log ends here, but says that the entries up to index %d are committed: its end was cut off", log.Commit)})
	}
	image, err := snapshot.OpenFile(d.db)
	if err != nil {
		return // the structure rung tells
	}
	facts, err := image.Facts(ctx)
	if err == nil && facts.RaftIndex > log.LastIndex {
		found(c, report.Finding{Kind: report.KindLogTail, Where: fmt.Sprintf("index %d", log.LastIndex),
			Text: fmt.Sprintf("the log ends here, but the database holds the entries up to index %d: its end was cut off, or the two are of different members", facts.RaftIndex)})
	}
}

// separateWAL is empty where the log is in the data directory.
func (d *dataDir) separateWAL() string {
	if d.walDir == filepath.Join(d.dir, "member", "wal") {
		return ""
	}
	return d.walDir
}

// drillRebuilt drills what the directory would be restored to: its database with
// the log's end.
func (d *dataDir) drillRebuilt(ctx context.Context) (err error) {
	if !d.Rung.Includes(report.Drill) {
		return nil
	}
	if d.foreign {
		d.add(report.Check{Rung: report.Drill, Object: d.dir, Reason: foreignReason})
		return nil
	}
	began := time.Now()
	image, err := d.rebuild(ctx)
	if image != nil {
		defer func() { err = errors.Join(err, image.Close()) }()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d.isDisturbed() {
		d.refuseLeft()
		return nil
	}
	if err != nil {
		d.add(report.Check{Rung: report.Drill, Object: d.dir, Reason: fmt.Sprintf("its database and log could not be put together: %v", err)})
		return nil
	}
	return d.drill(ctx, drilled{
		name: d.dir, image: image, phases: replaying.PhasesOf(image, time.Since(began)),
		from: fmt.Sprintf("from %s, which is what 'requorum restore --from-data-dir' gives", image.Name()),
	})
}

func (d *dataDir) rebuild(ctx context.Context) (*walreplay.Rebuilt, error) {
	h, err := walreplay.OpenDataDir(ctx, d.dir, d.separateWAL())
	if err != nil {
		return nil, err
	}
	defer h.Close() //nolint:errcheck // reading
	o := walreplay.Options{ScratchDir: d.ScratchDir, Logger: d.Logger}
	p, err := h.Resolve(ctx, walreplay.Target{Kind: walreplay.Latest}, "", o)
	if err != nil {
		return nil, err
	}
	return h.Rebuild(ctx, p, o)
}

// sizeOf is the size of the files in a folder, as far as they can be asked.
func sizeOf(dir string) int64 {
	var sum int64
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0 // who reads them tells
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && filepath.Ext(e.Name()) == ".wal" {
			sum += info.Size()
		}
	}
	return sum
}
